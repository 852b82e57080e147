//! Losses of power with a volatile write cache: no flush succeeds over a loss, whichever channel
//! got the report, or none.

use std::time::{Duration, Instant};

use qpair_block::{ErrorKind, Op};
use qpair_pci::PciDevice as _;
use qpair_scsi::ScsiOptions;
use qpair_softdev::hba::{Fault, Rule};

use crate::rig::{Rig, scsi_options};
use crate::worker::Worker;

/// Returns options with which no command is ever late.
fn never_late() -> ScsiOptions {
    ScsiOptions { timeout_ms: 60_000, ..scsi_options() }
}

fn fails(worker: &mut Worker) {
    assert_eq!(worker.run(Op::Flush, 0, 0).unwrap_err().kind, ErrorKind::Io);
}

/// Checks that data written and flushed from now on is durable.
fn works_again(rig: &Rig, worker: &mut Worker) {
    assert_eq!(worker.run(Op::Write, 0, 99), Ok(()));
    assert_eq!(worker.run(Op::Flush, 0, 0), Ok(()));
    rig.card.power_cut(8);
    assert_eq!(worker.fill_of(0), Some(99), "flushed");
    fails(worker);
}

/// Completes a command whose channel does not look at the answer.
fn tell_and_do_not_look(rig: &Rig, worker: &mut Worker) {
    let request = worker.request(Op::Read, 5, 0);
    worker.submit(request);
    worker.channel.kick();
    rig.card.step_all();
}

/// Loses the reply to the next command: the command was done, and its time limit has not passed.
fn lose_a_reply(rig: &Rig, worker: &mut Worker) {
    rig.card.set_faults(vec![Rule { first: 0, count: 1, fault: Fault::LoseReply }]);
    let request = worker.request(Op::Read, 5, 0);
    worker.submit(request);
    worker.channel.kick();
    assert_eq!(worker.channel.poll(&mut worker.completions), 0);
}

/// A flush over a loss of power fails once, because acknowledged data may be gone, even if another
/// command got the report.
#[test]
fn a_flush_over_a_loss_of_power_fails() {
    let rig = Rig::new("size=8MiB,cache=on");
    let disk = rig.disk(0, scsi_options());
    let mut worker = Worker::new(&disk, 8);
    let mut other = Worker::new(&disk, 8);
    assert_eq!(worker.run(Op::Write, 0, 1), Ok(()));
    rig.card.power_cut(7);
    // Another channel's command gets the report.
    assert_eq!(other.run(Op::Read, 5, 0), Ok(()));
    assert_eq!(worker.run(Op::Flush, 0, 0).unwrap_err().kind, ErrorKind::Io);
    assert_eq!(other.run(Op::Flush, 0, 0).unwrap_err().kind, ErrorKind::Io);
    assert_eq!(worker.run(Op::Write, 0, 2), Ok(()));
    assert_eq!(worker.run(Op::Flush, 0, 0), Ok(()));
    rig.card.power_cut(8);
    assert_eq!(worker.fill_of(0), Some(2), "flushed");
}

/// The command that gets the report of the loss is another channel's, whose thread does not look:
/// the unit's timestamp reveals the loss.
#[test]
fn a_flush_asks_what_other_channels_do_not_tell() {
    let rig = Rig::new("size=8MiB,cache=on");
    let disk = rig.disk(0, never_late());
    let mut worker = Worker::new(&disk, 8);
    let mut other = Worker::new(&disk, 8);
    // Nothing was lost.
    tell_and_do_not_look(&rig, &mut other);
    assert_eq!(worker.run(Op::Write, 0, 1), Ok(()));
    assert_eq!(worker.run(Op::Flush, 0, 0), Ok(()));
    other.drain();
    assert_eq!(worker.run(Op::Write, 0, 2), Ok(()));
    rig.card.power_cut(7);
    tell_and_do_not_look(&rig, &mut other);
    fails(&mut worker);
    other.drain();
}

/// As above, with a unit without a timestamp: the flush waits for the other thread.
#[test]
fn a_flush_waits_for_what_other_channels_were_told() {
    let rig = Rig::new("size=8MiB,cache=on,timestamp=off");
    let disk = rig.disk(0, never_late());
    assert!(!disk.facts().timestamp);
    let mut worker = Worker::new(&disk, 8);
    let mut other = Worker::new(&disk, 8);
    assert_eq!(worker.run(Op::Write, 0, 1), Ok(()));
    rig.card.power_cut(7);
    tell_and_do_not_look(&rig, &mut other);
    let request = worker.request(Op::Flush, 0, 0);
    worker.submit(request);
    for _ in 0..1000 {
        assert_eq!(worker.channel.poll(&mut worker.completions), 0);
        std::thread::yield_now();
    }
    other.drain();
    let (_, result) = worker.drain().pop().unwrap();
    assert_eq!(result.unwrap_err().kind, ErrorKind::Io);
}

/// The only status that reports the loss of power never arrives.
#[test]
fn a_flush_over_a_loss_that_nobody_was_told_of_fails() {
    for (told, timestamp) in [(0, "on"), (1, "on"), (0, "off")] {
        let rig = Rig::new(&format!("size=8MiB,cache=on,timestamp={timestamp}"));
        let disk = rig.disk(0, if timestamp == "on" { never_late() } else { scsi_options() });
        // One worker flushes, and the other one does not.
        let mut workers = [Worker::new(&disk, 8), Worker::new(&disk, 8)];
        assert_eq!(workers[0].run(Op::Write, 0, 1), Ok(()));
        rig.card.power_cut(7);
        lose_a_reply(&rig, &mut workers[told]);
        let worker = &mut workers[0];
        let request = worker.request(Op::Flush, 0, 0);
        worker.submit(request);
        let start = Instant::now();
        let result = loop {
            worker.channel.poll(&mut worker.completions);
            if let Some(at) = worker.completions.iter().position(|it| it.op == Op::Flush) {
                break worker.completions.remove(at).result;
            }
            assert!(start.elapsed() < Duration::from_secs(30), "the flush hangs");
        };
        assert_eq!(result.unwrap_err().kind, ErrorKind::Io, "{told} {timestamp}");
        // The reset ends the command that got the report, and waits for that.
        rig.host.reset().unwrap();
        workers.iter_mut().for_each(|worker| drop(worker.drain()));
        if timestamp == "on" {
            fails(&mut workers[1]);
            works_again(&rig, &mut workers[0]);
        }
    }
}

/// A reset of the controller ends the command that got the report.
#[test]
fn a_flush_over_a_loss_that_a_reset_covers_up_fails() {
    for timestamp in ["on", "off"] {
        let rig = Rig::new(&format!("size=8MiB,cache=on,timestamp={timestamp}"));
        let disk = rig.disk(0, never_late());
        let mut worker = Worker::new(&disk, 8);
        let mut other = Worker::new(&disk, 8);
        assert_eq!(worker.run(Op::Write, 0, 1), Ok(()));
        rig.card.power_cut(7);
        lose_a_reply(&rig, &mut other);
        rig.host.reset().unwrap();
        assert_eq!(other.drain(), [(5, Ok(()))], "sent again");
        fails(&mut worker);
        fails(&mut other);
        works_again(&rig, &mut worker);
    }
}

/// A reset that ends commands loses no data, as a unit with a timestamp can prove. For a unit
/// without one the reset counts as a loss.
#[test]
fn a_flush_over_a_reset_alone() {
    for timestamp in ["on", "off"] {
        let rig = Rig::new(&format!("size=8MiB,cache=on,timestamp={timestamp}"));
        let disk = rig.disk(0, never_late());
        let mut worker = Worker::new(&disk, 8);
        for round in 1..4 {
            assert_eq!(worker.run(Op::Write, 0, round), Ok(()));
            lose_a_reply(&rig, &mut worker);
            rig.host.reset().unwrap();
            worker.drain();
            match timestamp {
                "on" => assert_eq!(worker.run(Op::Flush, 0, 0), Ok(())),
                _ => fails(&mut worker),
            }
        }
        works_again(&rig, &mut worker);
    }
}

/// Another initiator sets the clock, which destroys the witness: that counts as a loss, once.
#[test]
fn a_flush_over_a_clock_that_somebody_else_set() {
    let rig = Rig::new("size=8MiB,cache=on");
    let disk = rig.disk(0, never_late());
    let mut worker = Worker::new(&disk, 8);
    // A second one of the same unit sets its own token.
    let second = rig.disk(0, never_late());
    let _other = Worker::new(&second, 8);
    assert_eq!(worker.run(Op::Write, 0, 1), Ok(()));
    assert_eq!(worker.run(Op::Flush, 0, 0), Ok(()), "nothing had it ask");
    lose_a_reply(&rig, &mut worker);
    rig.host.reset().unwrap();
    worker.drain();
    fails(&mut worker);
    assert_eq!(worker.run(Op::Flush, 0, 0), Ok(()));
}
