//! Each fault, for each verb, with one request in flight and with many, including used rings that
//! lie. Every request completes once, as the fault permits, and acknowledged data is there.

use qpair_block::{ErrorKind, Op};
use qpair_scsi_wire::sense::{Code, Key, Sense};
use qpair_scsi_wire::{BUSY, TASK_SET_FULL};
use qpair_softdev::SoftVirtioScsiOptions;
use qpair_softdev::virtio::{VirtioFault as Fault, VirtioRule as Rule};
use qpair_virtio::scsi::response;

use crate::rig::{Rig, device_options, scsi_options};
use crate::worker::Worker;

const VERBS: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes];
const BEFORE: u8 = 0x11;
const AFTER: u8 = 0x22;

/// Runs `count` requests of a verb; the fault hits the first one. `kind` is the error with which it
/// may fail. `None`: it must succeed.
fn one(rig: &Rig, op: Op, count: u64, fault: Fault, kind: Option<ErrorKind>) {
    let what = format!("{fault:x?} on {op:?} x {count}");
    let disk = rig.disk(0, scsi_options());
    let mut worker = Worker::new(&disk, count as u32);
    for number in 0..count {
        assert_eq!(worker.run(Op::Write, number, BEFORE), Ok(()), "{what}");
    }
    assert_eq!(worker.run(Op::Flush, 0, 0), Ok(()), "{what}");
    rig.device.set_faults(vec![Rule { first: 0, count: 1, fault }]);
    for number in 0..count {
        let request = worker.request(op, number, AFTER);
        worker.submit(request);
    }
    let all = worker.drain();
    rig.device.set_faults(Vec::new());
    let tags: Vec<u64> = all.iter().map(|(tag, _)| *tag).collect();
    assert_eq!(tags, (0..count).collect::<Vec<_>>(), "{what}: each once");
    let failed = all.iter().filter_map(|(_, result)| Some(result.err()?.kind));
    assert_eq!(failed.collect::<Vec<_>>(), kind.into_iter().collect::<Vec<_>>(), "{what}");
    for (number, result) in all {
        let fill = worker.fill_of(number);
        let wanted: &[u8] = match (op, result) {
            (Op::Read | Op::Flush, _) => &[BEFORE],
            (Op::Write, Ok(())) => &[AFTER],
            (Op::WriteZeroes | Op::Discard, Ok(())) => &[0],
            (_, Err(_)) => &[BEFORE, AFTER, 0],
        };
        assert!(fill.is_some_and(|fill| wanted.contains(&fill)), "{what}: block {number} {fill:?}");
    }
}

/// Runs all faults. Each must cause `resets` resets of the device, if a number is given.
fn matrix(faults: &[(Fault, Option<ErrorKind>)], resets: Option<u64>) {
    for has_indirect in [true, false] {
        for (fault, kind) in faults {
            for op in VERBS {
                for count in [1, 40] {
                    let options = device_options();
                    let rig = Rig::new(SoftVirtioScsiOptions {
                        volatile_write_cache: true,
                        has_indirect,
                        ..options
                    });
                    one(&rig, op, count, *fault, *kind);
                    if let Some(resets) = resets {
                        assert_eq!(rig.host.resets(), resets, "{fault:x?} on {op:?} x {count}");
                    }
                }
            }
        }
    }
}

#[test]
fn what_a_host_and_a_unit_say() {
    let check = |key, code| Fault::Check(Sense::new(key, code));
    matrix(
        &[
            (Fault::Response(response::BUSY), None),
            (Fault::Response(response::ABORTED), None),
            (Fault::Response(response::RESET), None),
            (Fault::Response(response::OVERRUN), Some(ErrorKind::Io)),
            (Fault::Response(response::TRANSPORT_FAILURE), Some(ErrorKind::Io)),
            (Fault::Response(0x77), Some(ErrorKind::Io)),
            (Fault::Response(response::BAD_TARGET), Some(ErrorKind::Gone)),
            (Fault::Status(BUSY), None),
            (Fault::Status(TASK_SET_FULL), None),
            (check(Key::UnitAttention, Code::DEVICE_RESET), None),
            (check(Key::MediumError, Code::UNRECOVERED_READ_ERROR), Some(ErrorKind::Io)),
            (check(Key::DataProtect, Code::SPACE_EXHAUSTED), Some(ErrorKind::NoSpace)),
        ],
        Some(0),
    );
}

#[test]
fn a_length_that_lies_is_not_believed() {
    matrix(&[(Fault::Len(0), None), (Fault::Len(u32::MAX), None)], Some(0));
}

/// Checks that rings with invalid content are no longer trusted: the device is reset, and all
/// requests are repeated.
#[test]
fn rings_that_lie_end_in_a_reset() {
    matrix(
        &[
            (Fault::Id(u32::MAX), None),
            (Fault::Id(0x1_0000), None),
            (Fault::Id(119), None),
            (Fault::Twice, None),
            (Fault::Index(1), None),
            (Fault::Index(0x7FFF), None),
            (Fault::Index(0xFFFE), None),
            (Fault::NoResponse, None),
            (Fault::NeedsReset, None),
        ],
        Some(1),
    );
}

/// Completes a command with the id of another one, which is still in flight.
#[test]
fn an_id_of_another_request_ends_neither() {
    for has_indirect in [true, false] {
        for op in VERBS {
            let rig = Rig::new(SoftVirtioScsiOptions { has_indirect, ..device_options() });
            let other = if has_indirect { 1 } else { 3 };
            one(&rig, op, 40, Fault::Id(other), None);
        }
    }
}

#[test]
fn commands_that_are_lost_are_aborted() {
    matrix(&[(Fault::LoseCommand, None)], Some(0));
}

/// Runs through all stages of recovery: tasks are not answered, so the device is reset.
#[test]
fn tasks_that_are_ignored_end_in_a_reset() {
    for op in VERBS {
        let rig = Rig::new(device_options());
        rig.device.ignore_tasks(true);
        // Flushes need a cache.
        if op != Op::Flush {
            one(&rig, op, 40, Fault::LoseCommand, None);
            assert_eq!(rig.host.resets(), 1, "{op:?}");
        }
    }
}
