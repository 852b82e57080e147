//! Commands: data, errors, and changes of the disk.

use super::*;
use crate::disk::DiskCounters;

#[test]
fn data_goes_to_the_disk_and_back() {
    let (first, second) = (ram(), ram());
    let mut host = Host::new(&[first, second]);
    let mut queue = host.start();
    let data: Vec<u8> = (0..8192u32).map(|at| (at % 251) as u8).collect();
    host.put(DATA_AT, &data);
    for (at, width) in (0u8..).zip([Width::Six, Width::Ten, Width::Twelve, Width::Sixteen]) {
        let range = Range { block: 8 + 32 * u64::from(at), blocks: 16, width };
        let written = Scsi::Write { range, force_unit_access: width != Width::Six, protect: 0 };
        host.run_on(&mut queue, 1, written, (DATA_AT, 8192), true).is_good(0);
        // The memory crosses the end of a region, is not aligned, and is larger than the data.
        let across = MEMORY_BYTES / 2 - 1001;
        host.bytes().zero(across as usize, 8192);
        let back = Scsi::Read { range, force_unit_access: false, protect: 0 };
        let ended = host.run_on(&mut queue, 1, back, (across, 9000), false);
        ended.is_good(9000 - 8192);
        assert_eq!(ended.written as usize, RESPONSE_BYTES + 8192);
        assert!(host.get(across, 8192) == data, "{width:?}");
    }
    // The other target does not have the data.
    assert!(host.ask(&mut queue, read(8, 16), 8192).iter().all(|byte| *byte == 0));
    let flush = Scsi::SynchronizeCache { range: sixteen(0, 0), immediate: false };
    host.run_on(&mut queue, 1, flush, none(), false).is_good(0);

    let same = |block, blocks, no_data| {
        let range = sixteen(block, blocks);
        Scsi::WriteSame { range, unmap: false, anchor: false, no_data, protect: 0 }
    };
    host.run_on(&mut queue, 1, same(9, 1, true), none(), false).is_good(0);
    host.bytes().zero(DATA_AT as usize + 8192, 512);
    host.run_on(&mut queue, 1, same(11, 2, false), (DATA_AT + 8192, 512), true).is_good(0);
    // The list has two ranges, and an empty one.
    let mut list = [0; 8 + 3 * 16];
    (list[1], list[3]) = (6 + 48, 48);
    for (at, block) in [(8, 15u64), (24, 20), (40, 18)] {
        list[at..at + 8].copy_from_slice(&block.to_be_bytes());
    }
    (list[8 + 11], list[40 + 11]) = (1, 2);
    host.put(DATA_AT + 8192, &list);
    let gone = Scsi::Unmap { anchor: false, len: list.len() as u16 };
    host.run_on(&mut queue, 1, gone, (DATA_AT + 8192, list.len() as u32), true).is_good(0);
    host.run_on(&mut queue, 1, read(8, 16), (DATA_AT + 8192, 8192), false).is_good(0);
    let found = host.get(DATA_AT + 8192, 8192);
    for (block, (found, written)) in (8..).zip(found.chunks(512).zip(data.chunks(512))) {
        match block {
            9 | 11 | 12 => assert!(found.iter().all(|byte| *byte == 0), "{block}"),
            // The content of unmapped blocks is undefined.
            15 | 18 | 19 => {}
            _ => assert!(found == written, "{block}"),
        }
    }
    let targets = host.controller.targets();
    let counters = targets[1].1.counters();
    let DiskCounters { writes, reads, discards, flushes, .. } = counters;
    assert_eq!((writes, reads, discards, flushes), (4, 5, 4, 1));
}

#[test]
fn what_is_wrong_with_a_command_is_its_answer() {
    let mut host = Host::new(&[ram()]);
    let mut queue = host.start();
    let illegal = |code| (Key::IllegalRequest, code);
    let data = (DATA_AT, 1024);
    host.fails(&mut queue, read(2047, 2), data, false, illegal(Code::BLOCK_OUT_OF_RANGE));
    host.fails(&mut queue, write(u64::MAX, 2), data, true, illegal(Code::BLOCK_OUT_OF_RANGE));
    let verify = Scsi::Verify { range: sixteen(0, 1), compare: 0, protect: 0 };
    host.fails(&mut queue, verify, none(), false, illegal(Code::INVALID_OPCODE));
    let same = Scsi::WriteSame {
        range: sixteen(0, 1),
        unmap: false,
        anchor: false,
        no_data: false,
        protect: 0,
    };
    host.put(DATA_AT, &[1; 512]);
    host.fails(&mut queue, same, (DATA_AT, 512), true, illegal(Code::INVALID_FIELD_IN_LIST));
    host.put(DATA_AT, &unmap::encode_one(0, 1)[..20]);
    let short = Scsi::Unmap { anchor: false, len: 24 };
    host.fails(&mut queue, short, (DATA_AT, 20), true, illegal(Code::PARAMETER_LIST_LENGTH));
    // There is too little memory, none, or memory of the other direction.
    for (scsi, data, is_out) in [
        (read(0, 2), (DATA_AT, 1023), false),
        (write(0, 2), none(), false),
        (read(0, 2), (DATA_AT, 1024), true),
        (write(0, 2), (DATA_AT, 1024), false),
    ] {
        let ended = host.run_on(&mut queue, 0, scsi, data, is_out);
        assert_eq!((ended.response, ended.residual), (response::OVERRUN, data.1));
    }
    // The memory does not exist.
    let ended = host.run_on(&mut queue, 0, read(0, 2), (MEMORY_BYTES - 1, 1024), false);
    assert_eq!(ended.response, response::FAILURE);
    // The targets do not exist, or the unit is not 0.
    for target in [1, 7, 8, 255] {
        let ended = host.run_on(&mut queue, target, Scsi::TestUnitReady, none(), false);
        assert_eq!(ended.response, response::BAD_TARGET);
    }
    let mut cdb = [0; CDB_BYTES];
    host.offer_cdb(0, 3, Command { address: address(0, 1), id: 1, cdb }, none(), false);
    host.finish(&mut queue).1.checks(Key::IllegalRequest, Code::NO_SUCH_UNIT);
    host.offer_cdb(0, 3, Command { address: [9; 8], id: 1, cdb }, none(), false);
    assert_eq!(host.finish(&mut queue).1.response, response::BAD_TARGET);
    cdb[0] = 0xFF;
    host.offer_cdb(0, 3, Command { address: address(0, 0), id: 1, cdb }, none(), false);
    host.finish(&mut queue).1.checks(Key::IllegalRequest, Code::INVALID_OPCODE);
    // After all these errors, the host still works.
    host.run_on(&mut queue, 0, read(0, 2), (DATA_AT, 1024), false).is_good(0);
}

#[test]
fn faults_and_changes_of_the_disk_are_told() {
    let below = ram();
    let faulty = Arc::new(FaultDevice::new(below.clone(), FaultOptions::default()).unwrap());
    let options = RamOptions { size_bytes: 1 << 20, read_only: true, ..RamOptions::default() };
    let fixed: Arc<dyn BlockDevice> = Arc::new(RamDevice::new(options).unwrap());
    let mut host = Host::new(&[faulty.clone(), fixed]);
    let mut queue = host.start();
    let control = faulty.control();
    control.fail_next(qpair_block::Op::Read, 1);
    let data = (DATA_AT, 1024);
    let ended = host.fails(
        &mut queue,
        read(77, 2),
        data,
        false,
        (Key::MediumError, Code::UNRECOVERED_READ_ERROR),
    );
    assert_eq!(ended.sense.unwrap().information, Some(77));
    control.fail_writes(true);
    host.fails(&mut queue, write(7, 2), data, true, (Key::MediumError, Code::WRITE_ERROR));
    let full = (Key::DataProtect, Code::SPACE_EXHAUSTED);
    control.set_error(IoError::NO_SPACE);
    host.fails(&mut queue, write(7, 2), data, true, full);
    control.set_error(IoError::UNSUPPORTED);
    host.put(DATA_AT, &unmap::encode_one(0, 1));
    let unmap = Scsi::Unmap { anchor: false, len: 24 };
    host.fails(&mut queue, unmap, (DATA_AT, 24), true, (Key::IllegalRequest, Code::INVALID_OPCODE));
    control.heal();
    host.run_on(&mut queue, 0, write(7, 2), data, true).is_good(0);
    let ended = host.run_on(&mut queue, 1, write(7, 2), data, true);
    ended.checks(Key::DataProtect, Code::WRITE_PROTECTED);

    // The unit is stopped, and started again.
    let power = |start| Scsi::StartStop { immediate: false, start, power: 0 };
    host.run_on(&mut queue, 0, power(false), none(), false).is_good(0);
    host.fails(&mut queue, Scsi::TestUnitReady, none(), false, (Key::NotReady, Code::NEEDS_START));
    host.run_on(&mut queue, 0, power(true), none(), false).is_good(0);

    // The disk grows: the guest gets an event, a unit attention, and the new size.
    let mut events = host.events.open(&host.controller);
    host.expect_event(0);
    host.controller.look_after();
    assert!(!events.turn() && host.event().is_none(), "nothing has happened");
    below.grow(2 << 20).unwrap();
    assert!(!host.controller.look_after());
    events.turn();
    let told = host.event().unwrap();
    assert_eq!((told.kind, told.address, told.reason), (event::PARAMETERS, address(0, 0), 0x092A));
    host.fails(
        &mut queue,
        Scsi::TestUnitReady,
        none(),
        false,
        (Key::UnitAttention, Code::CAPACITY_CHANGED),
    );
    let capacity = host.ask(&mut queue, Scsi::ReadCapacity10, 8);
    assert_eq!(Capacity::decode10(&capacity).unwrap().last_block, 4095);
    assert_eq!(events.stop().taken, 1, "memory for events is taken when there is one");
}
