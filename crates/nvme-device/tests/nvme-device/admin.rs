//! Tests registers and admin commands against the specification: the answer of each, and every
//! error status.

use crate::blocks::{Host, device, options, small};
use crate::host::{self, DATA, IOVA};
use qpair_nvme_device::ControllerOptions;
use qpair_nvme_wire::command::{admin, cns, feature};
use qpair_nvme_wire::registers::{
    ACQ, AQA, ASQ, CAP, CC, CC_RUN, CC_SHUTDOWN_NORMAL, CSTS, CSTS_FATAL, CSTS_READY,
    CSTS_SHUTDOWN_COMPLETE, Capabilities, INTMC, INTMS, VS, doorbell,
};
use qpair_nvme_wire::{Command, IdentifyController, IdentifyNamespace, NSID_ALL, Status};
use qpair_pci::PciDevice;

#[test]
fn registers() {
    let host = small(ControllerOptions { queue_entries_max: 256, ..options() });
    let capabilities = Capabilities(host.read64(CAP));
    assert_eq!(capabilities.queue_entries_max(), 256);
    assert!(capabilities.contiguous_queues() && capabilities.nvm_command_set());
    assert_eq!(capabilities.doorbell_stride_bytes(), 4);
    assert!(capabilities.ready_timeout_ms() > 0);
    assert_eq!((capabilities.page_bytes_min(), capabilities.page_bytes_max()), (4096, 4096));
    assert_eq!(u64::from(host.read32(CAP)) | u64::from(host.read32(CAP + 4)) << 32, capabilities.0);
    assert_eq!(host.read32(VS), 0x0001_0400);
    assert_eq!((host.read32(CC), host.read32(CSTS)), (CC_RUN, CSTS_READY));
    // Interrupt masks keep their value, and have no effect.
    host.write32(INTMS, 0xF0);
    host.write32(INTMC, 0x30);
    assert_eq!((host.read32(INTMS), host.read32(INTMC)), (0xC0, 0xC0));
    // Addresses can be written in one access or in two.
    host.write64(ASQ, 0x1234_5678_9000);
    assert_eq!((host.read32(ASQ), host.read32(ASQ + 4)), (0x5678_9000, 0x1234));
    host.write32(ACQ + 4, 7);
    host.write32(ACQ, 0x1fff);
    assert_eq!(host.read64(ACQ), 7 << 32 | 0x1000);
    // Read-only registers do not change.
    host.write64(CAP, 0);
    host.write32(VS, 0);
    host.write32(CSTS, 0);
    assert_eq!(host.read64(CAP), capabilities.0);
    assert_eq!((host.read32(VS), host.read32(CSTS)), (0x0001_0400, CSTS_READY));
    // Accesses with invalid widths or offsets.
    for (bar, offset, len) in [
        (0, 0, 1),
        (0, 0, 2),
        (0, 2, 4),
        (0, 4, 8),
        (0, 0x4000, 4),
        (0, u64::MAX - 3, 4),
        (1, 0, 4),
    ] {
        assert!(!host.device.read_bar(bar, offset, &mut vec![0; len]), "{bar} {offset:#x} {len}");
        assert!(!host.device.write_bar(bar, offset, &vec![0; len]), "{bar} {offset:#x} {len}");
    }
    // The vector table keeps what is written.
    assert!(host.device.write_bar(4, 16, &[1, 2, 3, 4, 5, 6, 7, 8]));
    let mut bytes = [0; 4];
    assert!(host.device.read_bar(4, 20, &mut bytes));
    assert_eq!(bytes, [5, 6, 7, 8]);
}

#[test]
fn enabling_disabling_and_shutting_down() {
    let mut host = small(options());
    let queue = host.queue(1, 8, None);
    host.write32(doorbell(1, false, 4), 3);
    host.write32(CC, CC_RUN | CC_SHUTDOWN_NORMAL);
    assert_eq!(host.read32(CSTS), CSTS_READY | CSTS_SHUTDOWN_COMPLETE);
    host.disable();
    assert_eq!(host.read32(doorbell(1, false, 4)), 0);
    assert!(!host.device.step(1).progress, "there is no queue {}", queue.number);
    // The controller can be enabled again, without any earlier state.
    host.enable();
    host.queue(1, 8, None);
    host.disable();
    let wrong = |host: &Host, cc: u32| {
        host.write32(CC, cc);
        assert_eq!(host.read32(CSTS), CSTS_FATAL, "{cc:#x}");
        assert!(!host.device.step(0).progress);
        host.write32(CC, 0);
        assert_eq!(host.read32(CSTS), 0);
    };
    wrong(&host, CC_RUN | 1 << 7);
    wrong(&host, CC_RUN | 1 << 4);
    wrong(&host, CC_RUN | 1 << 11);
    wrong(&host, CC_RUN & !(0xFF << 16) | 7 << 16 | 4 << 20);
    host.write64(ASQ, IOVA + host::MEMORY_BYTES as u64);
    wrong(&host, CC_RUN);
    host.write64(ASQ, IOVA);
    host.write32(AQA, 0x001F_0000);
    wrong(&host, CC_RUN);
    host.enable();
}

#[test]
fn identify() {
    let mut host = Host::of(device(
        ControllerOptions { mdts: 3, volatile_write_cache: true, ..options() },
        &[(1 << 20, 512), (8 << 20, 4096)],
    ));
    let mut get = |cns: u8, nsid: u32| {
        let status = host.admin_status(Command::identify(cns, nsid, DATA));
        let data: [u8; 4096] = host.get(DATA, 4096).try_into().unwrap();
        (status, data)
    };
    let controller = IdentifyController::parse(&get(cns::CONTROLLER, 0).1);
    assert_eq!((controller.serial.as_str(), controller.mdts), ("SERIAL", 3));
    assert_eq!((controller.namespaces, controller.volatile_write_cache & 1), (2, 1));
    assert_eq!((controller.nvm_commands, controller.scatter_gather), (0b1101, 0));
    assert!(controller.subsystem.starts_with("nqn."));
    let one = IdentifyNamespace::parse(&get(cns::NAMESPACE, 1).1);
    let two = IdentifyNamespace::parse(&get(cns::NAMESPACE, 2).1);
    assert_eq!((one.size_blocks, one.format_in_use().unwrap().data_shift), (2048, 9));
    assert_eq!((two.size_blocks, two.format_in_use().unwrap().data_shift), (2048, 12));
    assert!(one.nguid != two.nguid && one.eui64 != two.eui64);
    let list = get(cns::ACTIVE_NAMESPACES, 0).1;
    assert_eq!(list[..12], [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(get(cns::ACTIVE_NAMESPACES, 1).1[..8], [2, 0, 0, 0, 0, 0, 0, 0]);
    let descriptors = get(cns::NAMESPACE_DESCRIPTORS, 1).1;
    assert_eq!((descriptors[0], descriptors[4..12].try_into().unwrap()), (1, one.eui64));
    assert_eq!((descriptors[12], descriptors[16..32].try_into().unwrap()), (2, one.nguid));
    assert_eq!(get(cns::CONTROLLER_OF_COMMAND_SET, 0), (Status::SUCCESS, [0; 4096]));
    for (cns, nsid, status) in [
        (cns::NAMESPACE, 0, Status::INVALID_NAMESPACE),
        (cns::NAMESPACE, 3, Status::INVALID_NAMESPACE),
        (cns::NAMESPACE, NSID_ALL, Status::INVALID_NAMESPACE),
        (cns::ACTIVE_NAMESPACES, NSID_ALL, Status::INVALID_NAMESPACE),
        (cns::NAMESPACE_DESCRIPTORS, 3, Status::INVALID_NAMESPACE),
        (0x55, 0, Status::INVALID_FIELD),
    ] {
        assert_eq!(get(cns, nsid).0, status, "{cns:#x} {nsid}");
    }
    let at = |prp1| Command::identify(cns::CONTROLLER, 0, prp1);
    assert_eq!(host.admin_status(at(DATA + 2)), Status::INVALID_PRP_OFFSET);
    assert_eq!(host.admin_status(at(0x1000)), Status::DATA_TRANSFER_ERROR);
}

#[test]
fn queues() {
    let mut host = small(ControllerOptions { queues_max: 4, queue_entries_max: 64, ..options() });
    let (cq, sq) = (host.page(1), host.page(1));
    let mut is = |command: Command, status: Status| {
        assert_eq!(host.admin_status(command), status, "{command:?}");
    };
    is(Command::create_cq(0, 8, cq, None), Status::INVALID_QUEUE_ID);
    is(Command::create_cq(5, 8, cq, None), Status::INVALID_QUEUE_ID);
    is(Command::create_cq(1, 1, cq, None), Status::INVALID_QUEUE_SIZE);
    is(Command::create_cq(1, 65, cq, None), Status::INVALID_QUEUE_SIZE);
    is(Command::create_cq(1, 8, cq + 8, None), Status::INVALID_PRP_OFFSET);
    is(Command::create_cq(1, 8, 0x1000, None), Status::DATA_TRANSFER_ERROR);
    is(Command::create_cq(1, 8, cq, Some(5)), Status::INVALID_INTERRUPT_VECTOR);
    let mut scattered = Command::create_cq(1, 8, cq, None);
    scattered.0[11] &= !1;
    is(scattered, Status::INVALID_FIELD);
    is(Command::create_sq(1, 8, sq), Status::INVALID_CQ);
    is(Command::create_cq(1, 8, cq, None), Status::SUCCESS);
    is(Command::create_cq(1, 8, cq, None), Status::INVALID_QUEUE_ID);
    is(Command::create_sq(0, 8, sq), Status::INVALID_QUEUE_ID);
    is(Command::create_sq(1, 65, sq), Status::INVALID_QUEUE_SIZE);
    is(Command::create_sq(1, 8, sq + 16), Status::INVALID_PRP_OFFSET);
    let mut to_admin = Command::create_sq(1, 8, sq);
    to_admin.0[11] = 1;
    is(to_admin, Status::INVALID_CQ);
    is(Command::create_sq(1, 8, sq), Status::SUCCESS);
    is(Command::create_sq(1, 8, sq), Status::INVALID_QUEUE_ID);
    is(Command::delete_queue(admin::DELETE_CQ, 1), Status::INVALID_QUEUE_DELETION);
    is(Command::delete_queue(admin::DELETE_CQ, 0), Status::INVALID_QUEUE_ID);
    is(Command::delete_queue(admin::DELETE_SQ, 2), Status::INVALID_QUEUE_ID);
    is(Command::delete_queue(admin::DELETE_SQ, 0), Status::INVALID_QUEUE_ID);
    // The number of queues is negotiated before any are created.
    let two = Command::set_features(feature::NUMBER_OF_QUEUES, 1 | 1 << 16);
    is(two, Status::COMMAND_SEQUENCE_ERROR);
    is(Command::delete_queue(admin::DELETE_SQ, 1), Status::SUCCESS);
    is(Command::delete_queue(admin::DELETE_CQ, 1), Status::SUCCESS);
    is(Command::delete_queue(admin::DELETE_CQ, 1), Status::INVALID_QUEUE_ID);
    is(Command::set_features(feature::NUMBER_OF_QUEUES, 0xFFFF), Status::INVALID_FIELD);
    let many = Command::set_features(feature::NUMBER_OF_QUEUES, 99 | 50 << 16);
    assert_eq!(host.admin(many).result, 3 | 3 << 16);
    assert_eq!(host.admin(two).result, 1 | 1 << 16);
    assert_eq!(host.admin_status(Command::create_cq(3, 8, cq, None)), Status::INVALID_QUEUE_ID);
}

#[test]
fn several_submission_queues_share_a_completion_queue() {
    let mut host = small(options());
    let (cq, sqs) = (host.page(1), [host.page(1), host.page(1)]);
    assert_eq!(host.admin_status(Command::create_cq(2, 16, cq, None)), Status::SUCCESS);
    for (number, sq) in [(1, sqs[0]), (3, sqs[1])] {
        let mut create = Command::create_sq(number, 8, sq);
        create.0[11] = 1 | 2 << 16;
        assert_eq!(host.admin_status(create), Status::SUCCESS);
    }
    let mut seen = Vec::new();
    for (number, sq) in [(3, sqs[1]), (1, sqs[0])] {
        let mut queue = host::Queue { number, entries: 8, sq, cq, tail: 0, head: 0, phase: true };
        host.push(&mut queue, &Command::new(0, 1));
        host.ring(&queue);
        assert!(host.device.step_all().progress);
        let last = host.bytes().load_u32((cq - IOVA) as usize + seen.len() * 16 + 12);
        let third = host.bytes().load_u32((cq - IOVA) as usize + seen.len() * 16 + 8);
        assert_eq!(last >> 16, 1, "phase, and success");
        seen.push(third >> 16);
    }
    assert_eq!(seen, [3, 1]);
    let delete = |opcode, number| Command::delete_queue(opcode, number);
    assert_eq!(host.admin_status(delete(admin::DELETE_SQ, 1)), Status::SUCCESS);
    assert_eq!(host.admin_status(delete(admin::DELETE_CQ, 2)), Status::INVALID_QUEUE_DELETION);
    assert_eq!(host.admin_status(delete(admin::DELETE_SQ, 3)), Status::SUCCESS);
    assert_eq!(host.admin_status(delete(admin::DELETE_CQ, 2)), Status::SUCCESS);
}

#[test]
fn features_logs_and_the_rest() {
    let mut host = small(ControllerOptions { volatile_write_cache: true, ..options() });
    let get = |number: u8, select: u32| {
        let mut command = Command::new(admin::GET_FEATURES, 0);
        command.0[10] = u32::from(number) | select << 8;
        command
    };
    for (number, value) in [
        (feature::ARBITRATION, 3),
        (feature::TEMPERATURE_THRESHOLD, 350),
        (feature::ERROR_RECOVERY, 1),
        (feature::VOLATILE_WRITE_CACHE, 0),
        (feature::WRITE_ATOMICITY, 1),
        (feature::ASYNC_EVENT, 0x100),
    ] {
        let first = host.admin(get(number, 0)).result;
        assert_eq!(host.admin_status(Command::set_features(number, value)), Status::SUCCESS);
        assert_eq!(host.admin(get(number, 0)).result, value, "{number:#x}");
        assert_eq!(host.admin(get(number, 1)).result, first, "the default");
        assert_eq!(host.admin(get(number, 3)).result, 4, "can be changed");
    }
    let mut saved = Command::set_features(feature::ARBITRATION, 0);
    saved.0[10] |= 1 << 31;
    assert_eq!(host.admin_status(saved), Status::FEATURE_NOT_SAVEABLE);
    assert_eq!(host.admin_status(get(0x7E, 0)), Status::INVALID_FIELD);
    let power = Command::set_features(feature::POWER_MANAGEMENT, 1);
    assert_eq!(host.admin_status(power), Status::INVALID_FIELD);

    let log = |page: u32, dwords: u32, offset: u32| {
        let mut command = Command::new(admin::GET_LOG_PAGE, NSID_ALL);
        command.set_prps(DATA, DATA + 4096);
        command.0[10] = page | (dwords - 1) << 16;
        command.0[12] = offset;
        command
    };
    for (page, dwords) in [(1, 16), (2, 128), (3, 128), (5, 1024)] {
        assert_eq!(host.admin_status(log(page, dwords, 0)), Status::SUCCESS, "{page}");
    }
    assert_eq!(host.admin_status(log(2, 1, 0)), Status::SUCCESS);
    assert_eq!(host.get(DATA, 4)[3], 100, "spare blocks");
    assert_eq!(host.admin_status(log(5, 1, 1024 + 4 * 2)), Status::SUCCESS);
    assert_eq!(host.get(DATA, 4), [1, 0, 0, 0], "reads are known, and change nothing");
    assert_eq!(host.admin_status(log(9, 1, 0)), Status::INVALID_LOG_PAGE);
    assert_eq!(host.admin_status(log(2, 1, 512)), Status::INVALID_FIELD);
    assert_eq!(host.admin_status(log(2, 1, 2)), Status::INVALID_FIELD);

    for opcode in [0x14, admin::FORMAT_NVM, admin::DOORBELL_BUFFER_CONFIG, 0xFF] {
        assert_eq!(host.admin_status(Command::new(opcode, 0)), Status::INVALID_OPCODE);
    }
    let mut scattered = Command::identify(cns::CONTROLLER, 0, DATA);
    scattered.0[0] |= 1 << 14;
    assert_eq!(host.admin_status(scattered), Status::INVALID_FIELD);
    assert_eq!(host.admin(Command::abort(1, 1)).result, 1, "there is nothing to abort");
}

#[test]
fn requests_for_events_wait_until_something_happens() {
    let mut host = small(options());
    let mut admin = std::mem::replace(
        &mut host.admin,
        host::Queue { number: 0, entries: 2, sq: 0, cq: 0, tail: 0, head: 0, phase: true },
    );
    let mut request = |host: &Host, cid: u16| {
        let mut command = Command::new(admin::ASYNC_EVENT_REQUEST, 0);
        command.set_cid(cid);
        host.push(&mut admin, &command);
        host.ring(&admin);
        host.device.step(0);
        host.pop(&mut admin).map(|entry| (entry.cid, entry.status, entry.result))
    };
    for cid in 0..4 {
        assert_eq!(request(&host, cid), None);
    }
    assert_eq!(request(&host, 9), Some((9, Status::ASYNC_EVENT_LIMIT, 0)));
    let mut abort = Command::abort(0, 2);
    abort.set_cid(10);
    host.push(&mut admin, &abort);
    host.ring(&admin);
    host.device.step(0);
    let first = host.pop(&mut admin).unwrap();
    let second = host.pop(&mut admin).unwrap();
    assert_eq!((first.cid, first.result), (10, 0));
    assert_eq!((second.cid, second.status), (2, Status::ABORT_REQUESTED));
    // An invalid doorbell value is reported once, until the error log is read.
    host.admin = admin;
    let queue = host.queue(1, 8, None);
    for value in [8, 0xFFFF_FFFF] {
        host.write32(doorbell(queue.number, false, 4), value);
        assert!(!host.device.step(1).progress);
    }
    host.device.step(0);
    let mut admin = std::mem::replace(
        &mut host.admin,
        host::Queue { number: 0, entries: 2, sq: 0, cq: 0, tail: 0, head: 0, phase: true },
    );
    let event = host.pop(&mut admin).unwrap();
    assert_eq!((event.cid, event.status, event.result), (0, Status::SUCCESS, 0x01_01_00));
    assert_eq!(host.pop(&mut admin), None);
}
