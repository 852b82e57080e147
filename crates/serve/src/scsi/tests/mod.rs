//! A SCSI host's queues against a driver made by hand.

mod gate;
mod host;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use qpair_block::{
    BlockDevice, DeviceInfo, FaultDevice, FaultOptions, IoError, Mapping, RamDevice, RamOptions,
};
use qpair_scsi_wire::capacity::Capacity;
use qpair_scsi_wire::command::{Range, opcode};
use qpair_scsi_wire::inquiry::Inquiry;
use qpair_scsi_wire::luns::{self, Lun};
use qpair_scsi_wire::mode;
use qpair_scsi_wire::sense::{Code, Key, Sense};
use qpair_scsi_wire::vpd::{self, BlockLimits, Provisioning};
use qpair_scsi_wire::{Command as Scsi, Width, unmap};
use qpair_virtio::ring::{NEXT, WRITE};
use qpair_virtio::scsi::{
    CDB_BYTES, Command, Event, KIND_QUERY_EVENTS, RESPONSE_BYTES, Task, address, event, response,
    task,
};

use gate::Gate;
use host::*;

use crate::device::Device;
use crate::disk::Disk;
use crate::queue::rig::{MEMORY_BYTES, Narrow, SIZE, ram};
use crate::queue::{Inflight, RingOptions, inflight_bytes};
use crate::unit::Unit;

/// A unit does not report commands that its device does not support.
#[test]
fn verbs_are_those_of_the_device() {
    for (discards, writes_zeroes) in [(true, true), (true, false), (false, true), (false, false)] {
        let inner = ram();
        let info = DeviceInfo { discards, writes_zeroes, ..inner.info().clone() };
        let mut host = Host::new(&[Arc::new(Narrow { info, inner })]);
        let mut queue = host.start();
        let inquiry = Scsi::Inquiry { page: Some(0xB2), allocation: 255 };
        let found = Provisioning::decode(&host.ask(&mut queue, inquiry, 255)).unwrap();
        assert_eq!((found.unmap, found.write_same), (discards, writes_zeroes));
        let capacity = host.ask(&mut queue, Scsi::ReadCapacity16 { allocation: 32 }, 32);
        assert_eq!(Capacity::decode16(&capacity).unwrap().provisioned, discards);
        let known = host.known(&mut queue);
        let knows = |code| known.contains(&code);
        let zeroes = (knows(opcode::WRITE_SAME_10), knows(opcode::WRITE_SAME_16));
        assert_eq!((knows(opcode::UNMAP), zeroes), (discards, (writes_zeroes, writes_zeroes)));
        assert!(knows(opcode::WRITE_10) && !knows(opcode::LOG_SENSE) && !knows(opcode::VERIFY_10));
    }
}

#[test]
fn a_unit_says_what_it_is() {
    let mut host = Host::new(&[ram()]);
    let mut queue = host.start();
    let inquiry = Scsi::Inquiry { page: None, allocation: 96 };
    let found = Inquiry::decode(&host.ask(&mut queue, inquiry, 255)).unwrap();
    assert_eq!((found.device_type, found.vendor.as_str(), found.queues), (0, "QPAIR", true));
    let mut page = |host: &mut Host, page| {
        let inquiry = Scsi::Inquiry { page: Some(page), allocation: 255 };
        host.ask(&mut queue, inquiry, 255)
    };
    let supported = page(&mut host, 0);
    let pages = vpd::decode_supported(&supported).unwrap();
    assert_eq!(pages, [0, 0x80, 0x83, 0xB0, 0xB1, 0xB2]);
    assert_eq!(vpd::decode_serial(&page(&mut host, 0x80)).unwrap(), "disk-0");
    let name = vpd::unit_name(&page(&mut host, 0x83)).unwrap();
    assert!(name.to_string().starts_with("naa.3"), "{name}");
    let limits = BlockLimits::decode(&page(&mut host, 0xB0)).unwrap();
    assert_eq!((limits.transfer_blocks_max, limits.unmap_ranges_max), (8192, 256));
    assert_eq!(vpd::Characteristics::decode(&page(&mut host, 0xB1)).unwrap().rotation, 1);
    let provisioning = Provisioning::decode(&page(&mut host, 0xB2)).unwrap();
    assert!(provisioning.unmap && provisioning.write_same && !provisioning.reads_zeroes);

    let ten = host.ask(&mut queue, Scsi::ReadCapacity10, 8);
    let long = host.ask(&mut queue, Scsi::ReadCapacity16 { allocation: 32 }, 32);
    let (ten, long) = (Capacity::decode10(&ten).unwrap(), Capacity::decode16(&long).unwrap());
    assert_eq!((ten.last_block, ten.block_bytes), (2047, 512));
    assert_eq!((long.last_block, long.block_bytes, long.provisioned), (2047, 512, true));
    let listed = host.ask(&mut queue, Scsi::ReportLuns { select: 0, allocation: 64 }, 64);
    assert_eq!(luns::decode(&listed).collect::<Vec<_>>(), [Lun::default()]);
    for width in [Width::Six, Width::Ten] {
        let sense = Scsi::ModeSense {
            width,
            no_blocks: true,
            control: 0,
            page: mode::page::ALL,
            subpage: 0,
            allocation: 255,
        };
        let bytes = host.ask(&mut queue, sense, 255);
        let head = mode::Head::decode(&bytes, width).unwrap();
        assert!(!head.write_protected && head.force_unit_access);
        assert_eq!(mode::decode_caching(&bytes[head.pages_at..]), Some(false));
    }
    let sense = Scsi::RequestSense { descriptor: false, allocation: 18 };
    assert_eq!(Sense::decode(&host.ask(&mut queue, sense, 18)), Some(Sense::default()));
    let known = host.known(&mut queue);
    assert!(known.contains(&opcode::UNMAP) && !known.contains(&opcode::VERIFY_10), "{known:x?}");
    // What does not fit: the answer's first bytes, and that there were more.
    let ended = host.run_on(&mut queue, 0, inquiry, (DATA_AT, 8), false);
    assert_eq!((ended.response, ended.residual), (response::OVERRUN, 0));
}

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
        // Across the end of a region, and at no alignment; there is more room than data.
        let across = MEMORY_BYTES / 2 - 1001;
        host.bytes().zero(across as usize, 8192);
        let back = Scsi::Read { range, force_unit_access: false, protect: 0 };
        let ended = host.run_on(&mut queue, 1, back, (across, 9000), false);
        ended.is_good(9000 - 8192);
        assert_eq!(ended.written as usize, RESPONSE_BYTES + 8192);
        assert!(host.get(across, 8192) == data, "{width:?}");
    }
    // The other target has none of it.
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
    // Two ranges, and one of nothing.
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
            // What is unmapped is undefined.
            15 | 18 | 19 => {}
            _ => assert!(found == written, "{block}"),
        }
    }
    let targets = host.controller.targets();
    let counters = &targets[1].1.counters;
    let [writes, reads, discards, flushes] =
        [&counters.writes, &counters.reads, &counters.discards, &counters.flushes]
            .map(|counter| counter.load(Ordering::Relaxed));
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
    // Too little memory, none, or memory of the other direction.
    for (scsi, data, is_out) in [
        (read(0, 2), (DATA_AT, 1023), false),
        (write(0, 2), none(), false),
        (read(0, 2), (DATA_AT, 1024), true),
        (write(0, 2), (DATA_AT, 1024), false),
    ] {
        let ended = host.run_on(&mut queue, 0, scsi, data, is_out);
        assert_eq!((ended.response, ended.residual), (response::OVERRUN, data.1));
    }
    // Memory that is nowhere.
    let ended = host.run_on(&mut queue, 0, read(0, 2), (MEMORY_BYTES - 1, 1024), false);
    assert_eq!(ended.response, response::FAILURE);
    // Targets that are not there, and other units than 0.
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
    // And after all of that it works.
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

    // Stopped, and started again.
    let power = |start| Scsi::StartStop { immediate: false, start, power: 0 };
    host.run_on(&mut queue, 0, power(false), none(), false).is_good(0);
    host.fails(&mut queue, Scsi::TestUnitReady, none(), false, (Key::NotReady, Code::NEEDS_START));
    host.run_on(&mut queue, 0, power(true), none(), false).is_good(0);

    // It grows: an event, a unit attention, and the new size.
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

/// A task ends what it is about, in all queues, and is answered afterwards; nothing else ends by
/// it.
#[test]
fn tasks_end_commands() {
    let (gate, other) = (Gate::new(), Gate::new());
    let mut host = Host::new(&[gate.clone(), other.clone()]);
    let mut queues = [0, 1].map(|which| host.requests[which].open(&host.controller));
    let mut control = host.control.open(&host.controller);
    let turn = |control: &mut Box<dyn Unit>, queues: &mut [Box<dyn Unit>; 2]| {
        for _ in 0..4 {
            control.turn();
            queues.iter_mut().for_each(|queue| {
                queue.turn();
            });
        }
        control.turn();
    };
    let responses = |host: &mut Host| {
        let mut found = Vec::new();
        for which in 0..2 {
            while let Some((head, ended)) = host.ended(which) {
                found.push((which, head, ended.response));
            }
        }
        found.sort_unstable();
        found
    };
    let unit = address(0, 0);
    for (what, id, ends, code, is_ended) in [
        (task::ABORT_TASK, 100, response::ABORTED, None, [true, false, false]),
        (task::ABORT_TASK_SET, 0, response::ABORTED, None, [true, true, true]),
        (task::CLEAR_TASK_SET, 0, response::ABORTED, None, [true, true, true]),
        (task::LUN_RESET, 0, response::RESET, Some(Code::DEVICE_RESET), [true, true, true]),
        (task::NEXUS_RESET, 0, response::RESET, Some(Code::NEXUS_LOSS), [true, true, true]),
    ] {
        gate.shut(true);
        other.shut(true);
        host.offer(0, 0, 0, read(0, 1), (DATA_AT, 512), false);
        host.offer(0, 4, 0, read(1, 1), (DATA_AT + 512, 512), false);
        host.offer(0, 8, 1, read(2, 1), (DATA_AT + 1024, 512), false);
        host.offer(1, 0, 0, write(3, 1), (DATA_AT + 2048, 512), true);
        // No queue has taken a command yet when the task comes.
        host.offer_task(0, Task { what, address: unit, id });
        turn(&mut control, &mut queues);
        assert_eq!((responses(&mut host), host.answer()), (vec![], None), "they are under way");
        gate.shut(false);
        turn(&mut control, &mut queues);
        // The command of queue 1 has the same id as the first of queue 0.
        let is_first = what == task::ABORT_TASK;
        let end = |is_ended: bool| if is_ended { ends } else { response::OK };
        let expected = vec![
            (0, 0, end(is_ended[0])),
            (0, 4, end(is_ended[1])),
            (1, 0, end(is_first || is_ended[2])),
        ];
        assert_eq!(responses(&mut host), expected, "{what}");
        assert_eq!(host.answer(), Some(response::OK));
        other.shut(false);
        turn(&mut control, &mut queues);
        assert_eq!(responses(&mut host), [(0, 8, response::OK)]);
        if let Some(code) = code {
            let ready = host.run_on(&mut queues[0], 0, Scsi::TestUnitReady, none(), false);
            ready.checks(Key::UnitAttention, code);
        }
        host.run_on(&mut queues[0], 1, Scsi::TestUnitReady, none(), false).is_good(0);
    }

    // Questions.
    gate.shut(true);
    host.offer(1, 0, 0, read(0, 1), (DATA_AT, 512), false);
    for (what, id, answer) in [
        (task::QUERY_TASK, 100, response::FUNCTION_SUCCEEDED),
        (task::QUERY_TASK, 101, response::OK),
        (task::QUERY_TASK_SET, 0, response::FUNCTION_SUCCEEDED),
        (2, 0, response::FUNCTION_REJECTED),
        (99, 0, response::FUNCTION_REJECTED),
    ] {
        host.offer_task(2, Task { what, address: unit, id });
        turn(&mut control, &mut queues);
        assert_eq!(host.answer(), Some(answer), "{what} {id}");
    }
    for (address, answer) in [
        (address(5, 0), response::BAD_TARGET),
        (address(0, 3), response::INCORRECT_LUN),
        ([7; 8], response::INCORRECT_LUN),
    ] {
        host.offer_task(2, Task { what: task::LUN_RESET, address, id: 0 });
        turn(&mut control, &mut queues);
        assert_eq!(host.answer(), Some(answer));
    }
    // Those about events: there are none.
    host.put(TASKS_AT, &KIND_QUERY_EVENTS.to_le_bytes());
    host.put(ANSWERS_AT, &[0xEE; 5]);
    host.control.describe(0, TASKS_AT, 16, NEXT, 1);
    host.control.describe(1, ANSWERS_AT, 5, WRITE, 0);
    host.control.offer(0);
    control.turn();
    assert_eq!(host.control.take().unwrap().len, 5);
    assert_eq!(host.get(ANSWERS_AT, 5), [0; 5]);

    // One that waits when its queue stops has failed.
    host.offer_task(2, Task { what: task::ABORT_TASK, address: unit, id: 100 });
    control.turn();
    control.stop();
    assert_eq!(host.answer(), Some(response::FAILURE));
    gate.shut(false);
    for queue in queues {
        assert!(!queue.stop().is_broken);
    }
    assert_eq!(responses(&mut host).len(), 1);
    assert!(host.controller.targets().len() == 2);
}

#[test]
fn targets_come_and_go_while_they_are_used() {
    let gate = Gate::new();
    let device: Arc<dyn BlockDevice> = gate.clone();
    let mut host = Host::new(&[device]);
    let mut queue = host.start();
    let mut events = host.events.open(&host.controller);
    (0..4).for_each(|head| host.expect_event(head));
    let controller = host.controller.clone();
    let disk = Disk::new("late", ram());
    assert_eq!(
        host.run_on(&mut queue, 5, Scsi::TestUnitReady, none(), false).response,
        response::BAD_TARGET
    );
    assert_eq!(controller.add(Some(5), &disk).unwrap(), 5);
    for wrong in [Some(5), Some(8)] {
        assert!(controller.add(wrong, &disk).is_err(), "{wrong:?}");
    }
    events.turn();
    let plugged = |target, reason| {
        Some(Event { kind: event::TRANSPORT_RESET, address: address(target, 0), reason })
    };
    assert_eq!(host.event(), plugged(5, event::RESCAN));
    // The next command finds it.
    let ready = host.run_on(&mut queue, 5, Scsi::TestUnitReady, none(), false);
    ready.checks(Key::UnitAttention, Code::POWER_ON);
    host.run_on(&mut queue, 5, write(0, 1), (DATA_AT, 512), true).is_good(0);

    // It goes when its command has ended; the other one does not wait for that.
    gate.shut(true);
    host.offer(0, 6, 0, read(0, 1), (DATA_AT, 512), false);
    queue.turn();
    let removal = std::thread::spawn(move || controller.remove(0));
    loop {
        events.turn();
        match host.event() {
            None => std::thread::yield_now(),
            told => break assert_eq!(told, plugged(0, event::REMOVED)),
        }
    }
    let ended = host.run_on(&mut queue, 0, Scsi::TestUnitReady, none(), false);
    assert_eq!(ended.response, response::BAD_TARGET);
    host.run_on(&mut queue, 5, read(0, 1), (DATA_AT, 512), false).is_good(0);
    assert!(!removal.is_finished(), "its command is under way");
    gate.shut(false);
    let (6, ended) = host.finish(&mut queue) else { panic!("another one") };
    ended.is_good(0);
    while !removal.is_finished() {
        queue.turn();
    }
    assert_eq!(removal.join().unwrap().unwrap().name, "disk-0");
    assert!(host.controller.remove(0).is_err());
    // The first that is free.
    assert_eq!(host.controller.add(None, &Disk::new("new", ram())).unwrap(), 0);
    let ready = host.run_on(&mut queue, 0, Scsi::TestUnitReady, none(), false);
    ready.checks(Key::UnitAttention, Code::POWER_ON);

    // More happens than there is memory for: the guest is told that it does not know all.
    let controller = &host.controller;
    for _ in 0..10 {
        assert_eq!(controller.add(Some(7), &disk).unwrap(), 7);
        let queue = &mut queue;
        std::thread::scope(|scope| {
            let removal = scope.spawn(|| controller.remove(7));
            while !removal.is_finished() {
                queue.turn();
            }
            removal.join().unwrap().unwrap();
        });
    }
    let mut told = Vec::new();
    for head in 0..16 {
        events.turn();
        told.extend(std::iter::from_fn(|| host.event()));
        host.expect_event(head % 4);
    }
    assert!(told.len() < 21 && told.iter().any(|it| it.kind & event::MISSED != 0), "{told:?}");
}

/// Heads twice, indexes too far ahead, chains without a response: the ring is given up, others go
/// on.
#[test]
fn rings_that_make_no_sense_are_given_up() {
    type Damage = fn(&mut Host);
    let damages: [Damage; 5] = [
        |host| {
            let at = host.requests[0].areas().available.at + 2;
            host.bytes().store_u16(at, 100);
        },
        |host| host.requests[0].offer(SIZE),
        |host| {
            host.requests[0].describe(6, COMMANDS_AT, 51, NEXT, 6);
            host.requests[0].offer(6);
        },
        |host| {
            host.requests[0].describe(6, COMMANDS_AT, 51, NEXT, 7);
            host.requests[0].describe(7, RESPONSES_AT, 107, WRITE, 0);
            host.requests[0].offer(6);
        },
        |host| {
            host.requests[0].describe(6, COMMANDS_AT, 51, NEXT, 7);
            host.requests[0].describe(7, MEMORY_BYTES - 107, 108, WRITE, 0);
            host.requests[0].offer(6);
        },
    ];
    for damage in damages {
        let mut host = Host::new(&[ram()]);
        let mut queues = [0, 1].map(|which| host.requests[which].open(&host.controller));
        let mut control = host.control.open(&host.controller);
        damage(&mut host);
        queues[0].turn();
        host.offer(0, 9, 0, read(0, 1), (DATA_AT, 512), false);
        assert!(!queues[0].turn() && host.ended(0).is_none());
        host.offer(1, 9, 0, read(0, 1), (DATA_AT, 512), false);
        queues[1].turn();
        host.ended(1).unwrap().1.is_good(0);
        // A task does not wait for the ring that is given up.
        host.offer_task(0, Task { what: task::LUN_RESET, address: address(0, 0), id: 0 });
        control.turn();
        for _ in 0..3 {
            queues.iter_mut().for_each(|queue| {
                queue.turn();
            });
        }
        control.turn();
        assert_eq!(host.answer(), Some(response::OK));
        let [broken, whole] = queues.map(|queue| queue.stop().is_broken);
        assert!(broken && !whole);
    }
}

/// Commands that were under way when a target ended are done by the next target, once.
#[test]
fn commands_survive_the_target() {
    let mut host = Host::new(&[ram()]);
    let region = Mapping::new_file(inflight_bytes(SIZE)).unwrap().0;
    let part = || Inflight::new(region.clone(), 0, SIZE);
    host.put(DATA_AT, &[7; 512]);
    host.offer(0, 3, 0, write(5, 1), (DATA_AT, 512), true);
    // A target that ended between taking and answering: the mark is all that is left of it.
    let mut its = part().unwrap();
    assert!(its.recover(0).is_empty());
    its.take(3);
    let options = RingOptions { inflight: part(), ..host.requests[0].options() };
    let mut queue = host.requests[0].open_with(&host.controller, options);
    host.finish(&mut queue).1.is_good(0);
    let found = host.ask(&mut queue, read(5, 1), 512);
    assert_eq!(found, [7; 512]);
    assert_eq!(queue.stop().taken, 2);
}

/// Queues neither panic nor touch memory other than the guest's, and they end, whatever bytes
/// descriptors, commands and tasks have.
#[test]
fn rings_of_random_bytes() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut host = Host::new(&[ram(), ram()]);
        let mut queues = [
            host.control.open(&host.controller),
            host.events.open(&host.controller),
            host.requests[0].open(&host.controller),
            host.requests[1].open(&host.controller),
        ];
        for _ in 0..50 {
            for at in (COMMANDS_AT..DATA_AT).step_by(8) {
                let word = if random.bool() { random.u64(..) } else { random.u64(0..16) };
                host.bytes().store_u64(at as usize, word);
            }
            // Half of them are commands and tasks of targets that are there.
            for slot in (0..32).filter(|slot| slot % 2 == 0) {
                host.put(COMMANDS_AT + 64 * slot, &address(random.u8(0..3), 0));
                let known = [0x00, 0x12, 0x28, 0x2A, 0x42, 0x88, 0x8A, 0x93, 0x9E, 0x55];
                let code = known[random.usize(..known.len())];
                host.put(COMMANDS_AT + 64 * slot + 19, &[code]);
                host.put(TASKS_AT + 32 * slot, &[0, 0, 0, 0, random.u8(0..9), 0, 0, 0]);
                host.put(TASKS_AT + 32 * slot + 8, &address(random.u8(0..3), 0));
            }
            let [first, second] = &mut host.requests;
            let rings = [&mut host.control, &mut host.events, first, second];
            for ring in rings {
                for index in 0..SIZE {
                    let address = match random.u8(0..4) {
                        0 => COMMANDS_AT + 64 * random.u64(0..32),
                        1 => TASKS_AT + 32 * random.u64(0..32),
                        _ => random.u64(0..MEMORY_BYTES + 4096),
                    };
                    let len = random.u32(0..0x3000) >> random.u32(0..14);
                    let flags = random.u16(0..8) & if random.bool() { 3 } else { 7 };
                    ring.describe(index, address, len, flags, random.u16(0..SIZE + 1));
                }
                for _ in 0..random.usize(0..4) {
                    ring.offer(random.u16(0..SIZE));
                }
            }
            queues.iter_mut().for_each(|queue| {
                queue.turn();
            });
        }
        for queue in queues {
            queue.stop();
        }
    }
}
