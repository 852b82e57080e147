//! A controller whose commands another thread executes: the operations that it gets, the waits of
//! the controller, and the answers to the driver.

use std::sync::Arc;

use qpair_block::{IoError, Op, Segment};
use qpair_nvme_device::{
    ControllerOptions, Delegated, Names, NamespaceInfo, NvmeController, Operation, Part, status_of,
};
use qpair_nvme_wire::command::{DEALLOCATE, FORCE_UNIT_ACCESS, admin, cns, feature, io};
use qpair_nvme_wire::registers::{
    CC, CC_RUN, CC_SHUTDOWN_NORMAL, CSTS, CSTS_READY, CSTS_SHUTDOWN_COMPLETE,
    CSTS_SHUTDOWN_OCCURRING,
};
use qpair_nvme_wire::{Command, IdentifyController, IdentifyNamespace, NSID_ALL, Range, Status};

use crate::blocks::options;
use crate::host::{self, DATA, IOVA, transfer};

type Device = NvmeController<Delegated>;
type Host = host::Host<Device>;

#[derive(Default)]
struct Taker {
    taken: Vec<(Operation, Vec<Segment>)>,
    is_full: bool,
    fails: Option<IoError>,
}

impl Taker {
    /// Steps the I/O queues, and executes the operations or lets them fail. Returns whether there
    /// was work.
    fn step(&mut self, device: &Device) -> bool {
        device.backend().set_room(if self.is_full { 0 } else { u32::MAX });
        let mut progress = device.step_io().progress;
        let mut segments = Vec::new();
        while let Some(operation) = device.backend().next(&mut segments) {
            progress = true;
            match self.fails {
                Some(error) => {
                    device.answer(operation.ticket, status_of(operation.first.op, Err(error)));
                    device.step_io();
                }
                None => self.taken.push((operation, segments.clone())),
            }
        }
        progress
    }
}

const fn names(uuid: [u8; 16]) -> Names {
    Names { eui64: [0; 8], nguid: uuid, uuid }
}

const SMALL: NamespaceInfo = NamespaceInfo {
    nsid: 1,
    blocks: 2048,
    logical_block_bytes: 512,
    read_only: false,
    deallocates: true,
    names: names([7; 16]),
};
const LARGE: NamespaceInfo = NamespaceInfo {
    nsid: 3,
    blocks: 256,
    logical_block_bytes: 4096,
    read_only: true,
    deallocates: false,
    names: names([9; 16]),
};

fn device(namespaces: Vec<NamespaceInfo>) -> Arc<Device> {
    let options = ControllerOptions {
        queues_max: 4,
        queue_entries_max: 64,
        volatile_write_cache: true,
        controller_id: 5,
        namespaces_max: 8,
        is_shared: true,
        ..options()
    };
    let device = NvmeController::new(options, Delegated::default()).unwrap();
    device.set_namespaces(namespaces);
    Arc::new(device)
}

fn host() -> Host {
    Host::of(device(vec![LARGE, SMALL]))
}

#[test]
fn operations_are_answered_in_any_order() {
    let mut host = host();
    let mut queue = host.queue(1, 8, None);
    let mut taker = Taker::default();
    assert_eq!(host.device.backend().new_memory().unwrap().len(), 1);
    assert!(host.device.backend().new_memory().is_none());
    for (cid, first) in [(10, 0), (11, 2040), (12, 8)] {
        let mut command = transfer(io::READ, first, 8, DATA + 0x1204);
        command.set_cid(cid);
        host.push(&mut queue, &command);
    }
    host.ring(&queue);
    taker.is_full = true;
    taker.step(&host.device);
    assert!(taker.taken.is_empty());
    taker.is_full = false;
    assert!(taker.step(&host.device));
    let part = |offset_bytes| Part { nsid: 1, op: Op::Read, offset_bytes, len_bytes: 4096 };
    let parts: Vec<_> = taker.taken.iter().map(|(operation, _)| operation.first).collect();
    assert_eq!(parts, [part(0), part(2040 * 512), part(8 * 512)]);
    // Adjacent memory forms one segment.
    let at = DATA + 0x1204 - IOVA;
    let whole = Segment { region: 0, offset_bytes: at, len_bytes: 4096 };
    assert_eq!(taker.taken[0].1, [whole]);
    assert!(host.pop(&mut queue).is_none());
    for (at, result) in [(1, Ok(())), (0, Err(IoError::IO)), (2, Ok(()))] {
        host.device.answer(taker.taken[at].0.ticket, status_of(Op::Read, result));
    }
    taker.step(&host.device);
    let ended: Vec<_> = std::iter::from_fn(|| host.pop(&mut queue))
        .map(|entry| (entry.cid, entry.status))
        .collect();
    let read_error = Status::UNRECOVERED_READ_ERROR;
    assert_eq!(ended, [(11, Status::SUCCESS), (10, read_error), (12, Status::SUCCESS)]);
}

/// There are no more operations under way than can be answered, and completions without room wait
/// for the driver.
#[test]
fn answers_wait_for_room() {
    let mut host = host();
    let mut queue = host.queue(1, 4, None);
    let mut taker = Taker::default();
    let mut ended = Vec::new();
    for round in 0..3u16 {
        for cid in 0..3 {
            let mut command = Command::new(io::FLUSH, 1);
            command.set_cid(round * 3 + cid);
            host.push(&mut queue, &command);
        }
        host.ring(&queue);
        taker.step(&host.device);
        for (operation, _) in taker.taken.drain(..) {
            host.device.answer(operation.ticket, status_of(Op::Flush, Ok(())));
        }
        taker.step(&host.device);
        if round == 1 {
            ended.extend(std::iter::from_fn(|| host.pop(&mut queue)));
            taker.step(&host.device);
            for (operation, _) in taker.taken.drain(..) {
                host.device.answer(operation.ticket, status_of(Op::Flush, Ok(())));
            }
            taker.step(&host.device);
        }
        if round > 0 {
            ended.extend(std::iter::from_fn(|| host.pop(&mut queue)));
        }
    }
    let cids: Vec<u16> = ended.iter().map(|entry| entry.cid).collect();
    assert_eq!(cids, (0..9).collect::<Vec<_>>());
}

#[test]
fn what_makes_no_sense_becomes_no_operation() {
    let mut host = host();
    let mut queue = host.queue(1, 8, None);
    let mut taker = Taker::default();
    let mut ended = |host: &Host, taker: &mut Taker, command: Command| {
        host.push(&mut queue, &command);
        host.ring(&queue);
        taker.step(&host.device);
        host.pop(&mut queue).map(|entry| entry.status)
    };
    let mut to_large = transfer(io::WRITE, 0, 1, DATA);
    to_large.0[1] = 3;
    let mut of_none = transfer(io::READ, 0, 1, DATA);
    of_none.0[1] = 2;
    for (command, status) in [
        (transfer(io::READ, 2047, 2, DATA), Status::LBA_OUT_OF_RANGE),
        (transfer(io::READ, u64::MAX, 1, DATA), Status::LBA_OUT_OF_RANGE),
        (transfer(io::READ, 0, 257, DATA), Status::INVALID_FIELD),
        (transfer(io::READ, 0, 8, 0x1000), Status::DATA_TRANSFER_ERROR),
        (transfer(io::COMPARE, 0, 8, DATA), Status::INVALID_OPCODE),
        (to_large, Status::NAMESPACE_WRITE_PROTECTED),
        (of_none, Status::INVALID_NAMESPACE),
    ] {
        assert_eq!(ended(&host, &mut taker, command), Some(status), "{command:?}");
    }
    assert!(taker.taken.is_empty());
    // The driver gets a status that it turns into the same error.
    for error in
        [IoError::IO, IoError::NO_SPACE, IoError::READ_ONLY, IoError::UNSUPPORTED, IoError::GONE]
    {
        taker.fails = Some(error);
        let status = ended(&host, &mut taker, transfer(io::WRITE, 0, 8, DATA)).unwrap();
        assert_eq!(status.errno(), error.errno, "{status:?}");
    }
    taker.fails = Some(IoError::CANCELED);
    let status = ended(&host, &mut taker, transfer(io::WRITE, 0, 8, DATA)).unwrap();
    assert!(status == Status::NAMESPACE_NOT_READY && !status.do_not_retry());
    // Deallocation may have no effect.
    taker.fails = Some(IoError::UNSUPPORTED);
    host.put(DATA, &Range { attributes: 0, blocks: 8, first_block: 0 }.encode());
    let mut deallocate = Command::new(io::DATASET_MANAGEMENT, 1);
    deallocate.set_prps(DATA, 0);
    deallocate.0[11] = DEALLOCATE;
    assert_eq!(ended(&host, &mut taker, deallocate), Some(Status::SUCCESS));
}

#[test]
fn several_parts_are_one_command() {
    let mut host = host();
    let mut queue = host.queue(1, 8, None);
    let mut taker = Taker::default();
    for (number, first_block) in [4u64, 100].into_iter().enumerate() {
        let range = Range { attributes: 0, blocks: 2, first_block };
        host.put(DATA + 16 * number as u64, &range.encode());
    }
    let mut deallocate = Command::new(io::DATASET_MANAGEMENT, 1);
    deallocate.set_prps(DATA, 0);
    deallocate.0[10] = 1;
    deallocate.0[11] = DEALLOCATE;
    host.push(&mut queue, &deallocate);
    host.push(&mut queue, &Command::new(io::FLUSH, NSID_ALL));
    host.ring(&queue);
    taker.step(&host.device);
    let [(ranges, _), (flushes, _)] = &taker.taken[..] else {
        panic!("there are not two operations")
    };
    let discard =
        |first: u64| Part { nsid: 1, op: Op::Discard, offset_bytes: first * 512, len_bytes: 1024 };
    let flush = |nsid| Part { nsid, op: Op::Flush, offset_bytes: 0, len_bytes: 0 };
    assert_eq!((ranges.first, &ranges.then[..]), (discard(4), &[discard(100)][..]));
    assert_eq!((flushes.first, &flushes.then[..]), (flush(1), &[flush(3)][..]));
    // Write-zeroes that must be durable need a flush, because only writes support FUA below.
    let mut zeroes = Command::blocks_of(io::WRITE_ZEROES, 1, 8, 16);
    zeroes.0[12] |= FORCE_UNIT_ACCESS;
    host.push(&mut queue, &zeroes);
    host.ring(&queue);
    taker.step(&host.device);
    let first = Part { nsid: 1, op: Op::WriteZeroes, offset_bytes: 4096, len_bytes: 8192 };
    let (zeroes, _) = &taker.taken[2];
    assert_eq!((zeroes.first, &zeroes.then[..]), (first, &[flush(1)][..]));
}

/// Identify Controller describes all namespaces, including those added later.
#[test]
fn deallocation_is_offered_if_one_has_it() {
    const WRITE_ZEROES: u16 = 1 << 3;
    const BOTH: u16 = WRITE_ZEROES | 1 << 2;
    let plain = NamespaceInfo { nsid: 2, deallocates: false, ..SMALL };
    for (namespaces, commands) in
        [(vec![], BOTH), (vec![SMALL, plain], BOTH), (vec![plain], WRITE_ZEROES)]
    {
        let mut host = Host::of(device(namespaces));
        let identify = Command::identify(cns::CONTROLLER, 0, DATA);
        assert_eq!(host.admin_status(identify), Status::SUCCESS);
        let page = <[u8; 4096]>::try_from(host.get(DATA, 4096)).unwrap();
        assert_eq!(IdentifyController::parse(&page).nvm_commands, commands);
    }
    // If the command is sent anyway, it has no effect.
    let mut host = Host::of(device(vec![plain]));
    let mut queue = host.queue(1, 8, None);
    let mut taker = Taker::default();
    for (first_block, status) in [(0, Status::SUCCESS), (2048, Status::LBA_OUT_OF_RANGE)] {
        host.put(DATA, &Range { attributes: 0, blocks: 8, first_block }.encode());
        let mut deallocate = Command::new(io::DATASET_MANAGEMENT, 2);
        deallocate.set_prps(DATA, 0);
        deallocate.0[11] = DEALLOCATE;
        host.push(&mut queue, &deallocate);
        host.ring(&queue);
        taker.step(&host.device);
        assert_eq!(host.pop(&mut queue).unwrap().status, status);
    }
    assert!(taker.taken.is_empty());
}

/// Only the holder of commands starts admin commands, because they may remove state that commands
/// use.
#[test]
fn admin_commands_wait_to_be_let() {
    let mut host = host();
    let device = host.device.clone();
    assert!(!device.has_admin_commands());
    let mut queue = std::mem::replace(&mut host.admin, host_queue());
    host.push(&mut queue, &Command::identify(cns::CONTROLLER, 0, DATA));
    host.ring(&queue);
    assert!(device.has_admin_commands());
    for _ in 0..3 {
        device.step_admin(false);
        assert!(host.pop(&mut queue).is_none() && device.has_admin_commands());
    }
    assert!(device.step_admin(true));
    assert_eq!(host.pop(&mut queue).unwrap().status, Status::SUCCESS);
    assert!(!device.has_admin_commands());
}

fn host_queue() -> crate::host::Queue {
    crate::host::Queue { number: 0, entries: 2, sq: 0, cq: 0, tail: 0, head: 0, phase: true }
}

#[test]
fn the_driver_is_told_of_other_namespaces() {
    let mut host = host();
    let identify = |host: &mut Host, what, nsid| {
        assert_eq!(host.admin_status(Command::identify(what, nsid, DATA)), Status::SUCCESS);
        <[u8; 4096]>::try_from(host.get(DATA, 4096)).unwrap()
    };
    let numbers = |page: &[u8]| -> Vec<u32> {
        let all = page.chunks_exact(4).map(|it| u32::from_le_bytes(it.try_into().unwrap()));
        all.take_while(|nsid| *nsid != 0).collect()
    };
    let controller = IdentifyController::parse(&identify(&mut host, cns::CONTROLLER, 0));
    assert_eq!((controller.controller_id, controller.namespaces), (5, 8));
    assert_eq!(controller.model, "a model");
    assert_eq!(controller.async_events, 1 << 8);
    assert_eq!(numbers(&identify(&mut host, cns::ACTIVE_NAMESPACES, 0)), [1, 3]);
    let large = IdentifyNamespace::parse(&identify(&mut host, cns::NAMESPACE, 3));
    assert!(large.size_blocks == 256 && large.write_protected && large.shared);
    let inactive = IdentifyNamespace::parse(&identify(&mut host, cns::NAMESPACE, 2));
    assert_eq!(inactive.size_blocks, 0);
    assert_eq!(
        host.admin_status(Command::identify(cns::NAMESPACE, 9, DATA)),
        Status::INVALID_NAMESPACE
    );

    // The driver did not request the event, so it is not notified.
    let log = |host: &mut Host| {
        let mut command = Command::new(admin::GET_LOG_PAGE, NSID_ALL);
        command.set_prps(DATA, 0);
        command.0[10] = 4 | 1023 << 16;
        assert_eq!(host.admin_status(command), Status::SUCCESS);
        numbers(&host.get(DATA, 4096))
    };
    let mut event = Command::new(admin::ASYNC_EVENT_REQUEST, 0);
    event.set_cid(77);
    let mut queue = std::mem::replace(&mut host.admin, host_queue());
    host.push(&mut queue, &event);
    host.ring(&queue);
    let device = host.device.clone();
    device.set_namespaces(vec![SMALL]);
    device.step_admin(true);
    assert!(host.pop(&mut queue).is_none());
    host.admin = queue;
    assert_eq!(log(&mut host), [3]);
    assert_eq!(log(&mut host), []);
    let wanted = Command::set_features(feature::ASYNC_EVENT, 1 << 8);
    assert_eq!(host.admin_status(wanted), Status::SUCCESS);
    device.set_namespaces(vec![SMALL]);
    let larger = NamespaceInfo { blocks: 4096, ..SMALL };
    device.set_namespaces(vec![larger, LARGE]);
    let mut queue = std::mem::replace(&mut host.admin, host_queue());
    // Reporting an event needs no permission.
    assert!(device.step_admin(false));
    let told = host.pop(&mut queue).unwrap();
    assert_eq!((told.cid, told.result), (77, 0x04_00_02));
    assert!(host.pop(&mut queue).is_none());
    host.admin = queue;
    assert_eq!(log(&mut host), [1, 3]);
    let small = IdentifyNamespace::parse(&identify(&mut host, cns::NAMESPACE, 1));
    assert_eq!(small.size_blocks, 4096);
}

#[test]
fn what_is_cached_elsewhere_is_flushed_first() {
    let mut host = host();
    let device = host.device.clone();
    let mut taker = Taker::default();
    let mut off = Command::set_features(feature::VOLATILE_WRITE_CACHE, 0);
    off.set_cid(5);
    let mut queue = std::mem::replace(&mut host.admin, host_queue());
    host.push(&mut queue, &off);
    host.ring(&queue);
    device.step_admin(true);
    taker.step(&device);
    assert!(host.pop(&mut queue).is_none());
    let (operation, _) = taker.taken.pop().unwrap();
    assert_eq!((operation.first.op, operation.then.len()), (Op::Flush, 1));
    device.answer(operation.ticket, status_of(Op::Flush, Err(IoError::IO)));
    device.step_admin(false);
    let ended = host.pop(&mut queue).unwrap();
    assert_eq!((ended.cid, ended.status), (5, Status::WRITE_FAULT));
    host.admin = queue;
    let mut queue = host.queue(1, 8, None);
    host.push(&mut queue, &transfer(io::WRITE, 0, 8, DATA));
    host.ring(&queue);
    taker.step(&device);
    let (operation, _) = taker.taken.pop().unwrap();
    assert!(operation.force_unit_access, "there is no cache any more");
    device.answer(operation.ticket, status_of(Op::Write, Ok(())));
    taker.step(&device);

    host.write32(CC, CC_RUN | CC_SHUTDOWN_NORMAL);
    assert_eq!(host.read32(CSTS), CSTS_READY | CSTS_SHUTDOWN_OCCURRING);
    taker.step(&device);
    let (operation, _) = taker.taken.pop().unwrap();
    device.answer(operation.ticket, status_of(Op::Flush, Ok(())));
    assert_eq!(host.read32(CSTS), CSTS_READY | CSTS_SHUTDOWN_COMPLETE);
}
