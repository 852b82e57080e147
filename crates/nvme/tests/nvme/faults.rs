//! Faults of drives, and resets and removals at random points: every request completes once, and
//! written data stays.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::rig::{Drive, Worker, options};
use qpair_block::{BlockDevice, ChannelOptions, ErrorKind, IoError, Op};
use qpair_nvme::WaitMode;
use qpair_softdev::SoftNvmeOptions;
use qpair_softdev::faults::Plan;

const SIZE: u64 = 4 << 20;
const BLOCKS: usize = (SIZE / 512) as usize;
/// A short time-out, so that hanging commands are found soon.
const TIMEOUT_MS: u32 = 40;

fn drive(faults: Plan, wait: WaitMode) -> Drive {
    Drive::new(SoftNvmeOptions { faults, ..options(SIZE, 512) }, TIMEOUT_MS, wait)
}

fn seed() -> u64 {
    let seed = fastrand::u64(..1 << 20);
    eprintln_seed(seed);
    seed
}

#[allow(clippy::print_stderr, reason = "a test that fails says its seed")]
fn eprintln_seed(seed: u64) {
    eprintln!("seed {seed}");
}

fn run(drive: &Drive, requests: u32, seed: u64) -> Vec<(Op, IoError)> {
    let mut worker = Worker::new(drive, 32, 0, BLOCKS, seed);
    worker.run(requests);
    worker.drain();
    worker.finish()
}

fn only(errors: &[(Op, IoError)], may: &[IoError]) {
    for (op, error) in errors {
        assert!(may.contains(error), "{op:?}: {error}");
    }
}

#[test]
fn errors_of_the_medium() {
    let seed = seed();
    let plan = Plan { seed, read_error_rate: 0.02, write_error_rate: 0.02, ..Plan::default() };
    let drive = drive(plan, WaitMode::Poll);
    let errors = run(&drive, 10_000, seed);
    assert!(errors.len() > 50);
    only(&errors, &[IoError::IO]);
    assert_eq!(drive.controller.resets(), 0);
}

/// Commands that are never executed are aborted.
#[test]
fn commands_that_hang() {
    for wait in [WaitMode::Poll, WaitMode::Sleep] {
        let seed = seed();
        let drive = drive(Plan { seed, timeout_rate: 0.004, ..Plan::default() }, wait);
        let errors = run(&drive, 4000, seed);
        assert!(!errors.is_empty());
        only(&errors, &[IoError::TIMED_OUT, IoError::CANCELED]);
        assert!(errors.iter().all(|(_, error)| error.can_be_retried()));
        assert_eq!(drive.controller.resets(), 0);
    }
}

/// A command was executed and never completed, so an abort does not find it: the queue is created
/// again.
#[test]
fn completions_that_are_lost() {
    for wait in [WaitMode::Poll, WaitMode::Sleep] {
        let seed = seed();
        let drive = drive(Plan { seed, drop_rate: 0.004, ..Plan::default() }, wait);
        let errors = run(&drive, 4000, seed);
        assert!(!errors.is_empty());
        only(&errors, &[IoError::TIMED_OUT, IoError::CANCELED]);
        assert_eq!(drive.controller.resets(), 0);
    }
}

#[test]
fn late_completions() {
    let seed = seed();
    let plan = Plan { seed, delay_rate: 0.01, delay_ns: 2_000_000, ..Plan::default() };
    for wait in [WaitMode::Poll, WaitMode::Sleep] {
        let drive = drive(plan.clone(), wait);
        assert_eq!(run(&drive, 4000, seed), []);
    }
}

#[test]
fn a_controller_that_reports_a_fatal_error() {
    for round in 0..8 {
        let seed = seed();
        let after = fastrand::Rng::with_seed(seed).u64(1..2000);
        let wait = if round % 2 == 0 { WaitMode::Poll } else { WaitMode::Sleep };
        let drive = drive(Plan { seed, fatal_after: Some(after), ..Plan::default() }, wait);
        let errors = run(&drive, 6000, seed);
        assert!(!errors.is_empty());
        only(&errors, &[IoError::CANCELED]);
        assert_eq!(drive.controller.resets(), 1);
    }
}

#[test]
fn a_drive_that_is_pulled_out() {
    for round in 0..8 {
        let seed = seed();
        let after = fastrand::Rng::with_seed(seed).u64(1..2000);
        let wait = if round % 2 == 0 { WaitMode::Poll } else { WaitMode::Sleep };
        let drive = drive(Plan { seed, remove_after: Some(after), ..Plan::default() }, wait);
        let errors = run(&drive, 6000, seed);
        assert!(!errors.is_empty());
        only(&errors, &[IoError::GONE]);
        let error = drive.device.open_channel(&ChannelOptions::default()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Gone, "{error}");
        assert_eq!(drive.controller.reset().unwrap_err().kind(), ErrorKind::Gone);
    }
}

/// A drive is pulled out while nothing is in flight, and its channels are dropped with requests in
/// flight.
#[test]
fn channels_that_outlive_their_drive() {
    let drive = drive(Plan::default(), WaitMode::Poll);
    let mut worker = Worker::new(&drive, 8, 0, BLOCKS, 1);
    let mut other = Worker::new(&drive, 8, 0, BLOCKS, 2);
    worker.run(100);
    worker.drain();
    drive.soft.remove();
    for _ in 0..100 {
        worker.send();
        other.send();
    }
    assert!(!other.finish().iter().any(|(_, error)| *error != IoError::GONE));
    worker.drain();
    worker.run(100);
    worker.drain();
    only(&worker.finish(), &[IoError::GONE]);
}

#[test]
fn resets_at_random_points() {
    for wait in [WaitMode::Poll, WaitMode::Sleep] {
        let seed = seed();
        let drive = drive(Plan::default(), wait);
        let mut worker = Worker::new(&drive, 32, 0, BLOCKS, seed);
        for _ in 0..40 {
            let count = worker.rng.u32(0..200);
            worker.run(count);
            drive.controller.reset().unwrap();
        }
        worker.drain();
        worker.run(500);
        worker.drain();
        assert_eq!(drive.controller.resets(), 40);
        only(&worker.finish(), &[IoError::CANCELED]);
    }
}

/// Several workers each use their own part of the drive, while a thread resets the controller. In
/// the end the drive is pulled out.
#[test]
fn resets_with_several_workers() {
    let seed = seed();
    let plan = Plan { seed, timeout_rate: 0.0005, drop_rate: 0.0005, ..Plan::default() };
    let drive = drive(plan, WaitMode::Poll);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3u64)
            .map(|number| {
                let (drive, stop) = (&drive, &stop);
                scope.spawn(move || {
                    let part = BLOCKS / 4;
                    let start = number * (part as u64) * 512;
                    let mut worker = Worker::new(drive, 16, start, part, seed + number);
                    while !stop.load(Ordering::Relaxed) {
                        worker.run(50);
                    }
                    worker.drain();
                    worker.finish()
                })
            })
            .collect();
        for _ in 0..30 {
            std::thread::sleep(Duration::from_millis(20));
            drive.controller.reset().unwrap();
            // Channels are also opened and closed.
            let part = BLOCKS / 4;
            let mut worker = Worker::new(&drive, 4, 3 * (part as u64) * 512, 1, seed + 9);
            worker.send();
            drop(worker.finish());
        }
        std::thread::sleep(Duration::from_millis(20));
        drive.soft.remove();
        std::thread::sleep(Duration::from_millis(20));
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            only(&worker.join().unwrap(), &[IoError::CANCELED, IoError::TIMED_OUT, IoError::GONE]);
        }
    });
    assert!(drive.controller.resets() >= 30);
}
