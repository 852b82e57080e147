//! Each fault, for each verb, with one request in flight and with many. Every request completes
//! once, as the fault permits, and acknowledged data is there.

use std::time::Duration;

use qpair_block::{ErrorKind, Op};
use qpair_mpi_wire::ioc_status;
use qpair_scsi_wire::sense::{Code, Key, Sense};
use qpair_scsi_wire::{BUSY, RESERVATION_CONFLICT, TASK_ABORTED, TASK_SET_FULL};
use qpair_softdev::hba::{Fault, Rule};

use crate::rig::{Rig, scsi_options};
use crate::worker::Worker;

const VERBS: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes];
const BEFORE: u8 = 0x11;
const AFTER: u8 = 0x22;

/// The permitted outcome of the command that the fault hits.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Permitted {
    Success,
    Failure(ErrorKind),
    /// A flush fails, and other commands succeed: writes before the flush may be lost.
    FlushFails,
    /// All commands may fail with this error: the disk or the controller is gone.
    AllMayFail(ErrorKind),
}
use Permitted::{AllMayFail, Failure, FlushFails, Success};

fn check(key: Key, code: Code) -> Fault {
    Fault::Check(Sense::new(key, code))
}

/// Runs `count` requests of a verb; the fault hits the first one.
fn one(rig: &Rig, op: Op, count: u64, fault: Fault, permitted: Permitted) {
    let what = format!("{fault:?} on {op:?} x {count}");
    let disk = rig.disk(0, scsi_options());
    let mut worker = Worker::new(&disk, count as u32);
    for number in 0..count {
        assert_eq!(worker.run(Op::Write, number, BEFORE), Ok(()), "{what}");
    }
    assert_eq!(worker.run(Op::Flush, 0, 0), Ok(()), "{what}");
    rig.card.set_faults(vec![Rule { first: 0, count: 1, fault }]);
    for number in 0..count {
        let request = worker.request(op, number, AFTER);
        worker.submit(request);
    }
    let all = worker.drain();
    rig.card.set_faults(Vec::new());
    let tags: Vec<u64> = all.iter().map(|(tag, _)| *tag).collect();
    assert_eq!(tags, (0..count).collect::<Vec<_>>(), "{what}: each once");
    let failed: Vec<_> = all.iter().filter_map(|(_, result)| result.err()).collect();
    let kinds: Vec<ErrorKind> = failed.iter().map(|error| error.kind).collect();
    match permitted {
        Success => assert!(failed.is_empty(), "{what}: {failed:?}"),
        FlushFails if op != Op::Flush => assert!(failed.is_empty(), "{what}: {failed:?}"),
        FlushFails => assert!(!failed.is_empty(), "{what}: a flush over a loss of power"),
        Failure(kind) => assert_eq!(kinds, [kind], "{what}"),
        AllMayFail(kind) => {
            assert!(kinds.iter().all(|its| *its == kind), "{what}: {kinds:?}");
            return;
        }
    }
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

fn matrix(text: &str, faults: &[(Fault, Permitted)]) {
    for (fault, permitted) in faults {
        for op in VERBS {
            for count in [1, 64] {
                one(&Rig::new(text), op, count, *fault, *permitted);
            }
        }
    }
}

const CARD: &str = "size=8MiB,cache=on";

#[test]
fn answers_that_are_strange_or_late() {
    matrix(
        CARD,
        &[
            (Fault::Late(Duration::from_millis(5)), Success),
            (Fault::DoubleReply, Success),
            (Fault::WrongId, Success),
            (Fault::IocStatus(ioc_status::BUSY), Success),
            (Fault::IocStatus(ioc_status::INSUFFICIENT_RESOURCES), Success),
            (Fault::IocStatus(ioc_status::SCSI_IOC_TERMINATED), Success),
            (Fault::IocStatus(ioc_status::SCSI_PROTOCOL_ERROR), Failure(ErrorKind::Io)),
        ],
    );
}

#[test]
fn what_a_unit_says() {
    matrix(
        CARD,
        &[
            (Fault::Status(BUSY), Success),
            (Fault::Status(TASK_SET_FULL), Success),
            (Fault::Status(TASK_ABORTED), Success),
            (Fault::Status(RESERVATION_CONFLICT), Failure(ErrorKind::Denied)),
            (check(Key::UnitAttention, Code::DEVICE_RESET), Success),
            (check(Key::UnitAttention, Code::POWER_ON), FlushFails),
            (check(Key::NotReady, Code::BECOMING_READY), Success),
            (check(Key::NotReady, Code::NEEDS_START), Failure(ErrorKind::Io)),
            (check(Key::MediumError, Code::UNRECOVERED_READ_ERROR), Failure(ErrorKind::Io)),
            (check(Key::HardwareError, Code::INTERNAL_FAILURE), Success),
            (check(Key::AbortedCommand, Code(0x4B, 0)), Success),
            (check(Key::AbortedCommand, Code(0x10, 1)), Failure(ErrorKind::Io)),
            (check(Key::DataProtect, Code::SPACE_EXHAUSTED), Failure(ErrorKind::NoSpace)),
            (check(Key::DataProtect, Code::WRITE_PROTECTED), Failure(ErrorKind::ReadOnly)),
            (check(Key::IllegalRequest, Code::INVALID_OPCODE), Failure(ErrorKind::Unsupported)),
            (check(Key::IllegalRequest, Code::NO_SUCH_UNIT), Failure(ErrorKind::Gone)),
        ],
    );
}

#[test]
fn commands_and_answers_that_are_lost_are_aborted() {
    matrix(CARD, &[(Fault::LoseCommand, Success), (Fault::LoseReply, Success)]);
}

#[test]
fn a_controller_that_fails_is_reset() {
    matrix(CARD, &[(Fault::IocFault(0x2665), Success)]);
}

#[test]
fn a_disk_that_is_pulled() {
    matrix(CARD, &[(Fault::Pull, AllMayFail(ErrorKind::Gone))]);
}

/// The whole ladder: tasks are not answered, so the controller is reset.
#[test]
fn tasks_that_are_ignored_end_in_a_reset() {
    for op in VERBS {
        let rig = Rig::new(CARD);
        rig.card.ignore_tasks(true);
        one(&rig, op, 64, Fault::LoseCommand, Success);
        assert_eq!(rig.host.resets(), 1, "{op:?}");
    }
}

#[test]
fn a_reset_that_hangs_is_begun_again() {
    let rig = Rig::new(CARD);
    rig.card.hang_resets(1);
    one(&rig, Op::Write, 64, Fault::IocFault(1), Success);
    assert_eq!(rig.host.resets(), 1);
}

#[test]
fn a_controller_that_does_not_come_back_is_gone() {
    let rig = Rig::new(CARD);
    rig.card.hang_resets(1000);
    one(&rig, Op::Write, 64, Fault::IocFault(1), AllMayFail(ErrorKind::Gone));
    let disk = rig.host.scan();
    assert_eq!(disk.unwrap_err().kind(), ErrorKind::Gone);
    assert_eq!(rig.host.reset().unwrap_err().kind(), ErrorKind::Gone);
}

#[test]
fn a_controller_that_is_removed() {
    let rig = Rig::new(CARD);
    let disk = rig.disk(0, scsi_options());
    let mut worker = Worker::new(&disk, 8);
    assert_eq!(worker.run(Op::Write, 0, 1), Ok(()));
    rig.card.remove();
    for number in 0..8 {
        let request = worker.request(Op::Write, number, 2);
        worker.submit(request);
    }
    let kinds: Vec<_> =
        worker.drain().into_iter().map(|(_, result)| result.unwrap_err().kind).collect();
    assert_eq!(kinds, [ErrorKind::Gone; 8]);
}

/// A busy unit lowers the window of a channel; all requests succeed.
#[test]
fn a_task_set_that_is_full_for_a_while() {
    let rig = Rig::new(CARD);
    let disk = rig.disk(0, scsi_options());
    let mut worker = Worker::new(&disk, 64);
    rig.card.set_faults(vec![Rule { first: 16, count: 200, fault: Fault::Status(TASK_SET_FULL) }]);
    for number in 0..64 {
        let request = worker.request(Op::Write, number, 3);
        worker.submit(request);
    }
    assert!(worker.drain().iter().all(|(_, result)| result.is_ok()));
    for number in 0..64 {
        assert_eq!(worker.fill_of(number), Some(3));
    }
}

#[test]
fn retries_are_bounded() {
    let rig = Rig::new(CARD);
    let disk = rig.disk(0, scsi_options());
    let mut worker = Worker::new(&disk, 1);
    for (fault, kind) in [
        (check(Key::AbortedCommand, Code(0x4B, 0)), ErrorKind::Io),
        (check(Key::HardwareError, Code::INTERNAL_FAILURE), ErrorKind::Io),
    ] {
        rig.card.set_faults(vec![Rule { first: 0, count: u64::MAX, fault }]);
        assert_eq!(worker.run(Op::Read, 0, 0).unwrap_err().kind, kind, "{fault:?}");
        rig.card.set_faults(Vec::new());
        assert_eq!(worker.run(Op::Read, 0, 0), Ok(()));
    }
}
