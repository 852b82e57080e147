//! A store on a disk behind a soft HBA: replies are lost, duplicated and late, the controller fails
//! and is reset during I/O, the disk is reset, and the power of the disk fails. Afterwards every
//! acknowledged commit is there, no commit is there in part, and every page is sound.
//!
//! `QPAIR_HBA_LIVES=500 cargo test -p qpair --test qpair hba` runs for longer; `QPAIR_HBA_SEED=N`
//! begins with that seed. The seed determines the faults and the effect of a loss of power. The
//! order of commands depends on the threads, because resets take real time.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that fails should panic, and say what it did"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::ledger::{WRITERS, Writer, judge, options, work};
use qpair::Store;
use qpair_mpt3sas::{HbaOptions, Mpt3sas};
use qpair_pci::InProcess;
use qpair_scsi::host::{Host as _, Unit};
use qpair_scsi::{ScsiDisk, ScsiOptions};
use qpair_scsi_wire::{BUSY, TASK_SET_FULL};
use qpair_softdev::hba::{Fault, Rule};
use qpair_softdev::{SoftHba, SoftHbaOptions};

/// The maximum number of commits of a writer in one incarnation.
const COMMITS: u64 = 250;
/// The number of commands over which faults are distributed.
const COMMANDS: u64 = 4000;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The events counted over all incarnations. A test without faults would show nothing.
#[derive(Debug, Default)]
struct Counts {
    commits: u64,
    resets: u64,
    power_cuts: u64,
    /// Incarnations in which a commit failed: after a loss of power, when the pages are flushed.
    failed: u64,
}

struct Bed {
    card: Arc<SoftHba>,
}

/// A driver and its disk, for one incarnation.
struct Plugged {
    driver: Arc<Mpt3sas>,
    disk: Arc<ScsiDisk>,
}

impl Bed {
    fn new(text: &str) -> Self {
        let options = SoftHbaOptions { strict: true, ..SoftHbaOptions::parse(text).unwrap() };
        Self { card: SoftHba::new(options).unwrap() }
    }

    fn plug_in(&self) -> Plugged {
        let function = Arc::new(InProcess::new("softhba", self.card.clone()));
        let options = HbaOptions {
            reset_settle_ms: 0,
            reset_timeout_ms: 500,
            watch_ms: 5,
            ..HbaOptions::default()
        };
        let driver = Mpt3sas::open(function, options).unwrap();
        let unit = Unit { target: 0, lun: Default::default() };
        // A request may meet many resets in a row.
        let options = ScsiOptions {
            timeout_ms: 100,
            task_timeout_ms: 50,
            retries_max: u8::MAX,
            ..ScsiOptions::default()
        };
        let disk = ScsiDisk::open(driver.clone(), unit, "scsi:soft", options).unwrap();
        Plugged { driver, disk: Arc::new(disk) }
    }
}

fn any_fault(random: &mut fastrand::Rng) -> Fault {
    match random.u32(0..10) {
        0..=2 => Fault::LoseReply,
        3 => Fault::LoseCommand,
        4 => Fault::Late(Duration::from_millis(random.u64(1..150))),
        5 => Fault::DoubleReply,
        6 => Fault::WrongId,
        7 => Fault::Status(if random.bool() { BUSY } else { TASK_SET_FULL }),
        _ => Fault::IocFault(0x2665),
    }
}

fn faults(random: &mut fastrand::Rng) -> Vec<Rule> {
    let count = random.usize(0..12);
    let rule = |random: &mut fastrand::Rng| Rule {
        first: random.u64(0..COMMANDS),
        count: random.u64(1..3),
        fault: any_fault(random),
    };
    (0..count).map(|_| rule(random)).collect()
}

fn commits(writers: &[Writer]) -> u64 {
    writers.iter().map(|it| it.acknowledged.load(Ordering::Relaxed)).sum()
}

/// Resets the controller and the disk until the writers are done. In half of the incarnations, the
/// power fails after some commits.
fn disturb(bed: &Bed, at: &Plugged, seed: u64, writers: &[Writer], is_over: &AtomicBool) -> bool {
    let mut random = fastrand::Rng::with_seed(seed);
    // Count commits, not time: otherwise a fast machine would finish first.
    let before = commits(writers);
    let cut_after = random.bool().then(|| random.u64(0..COMMITS * WRITERS / 2));
    let mut is_cut = false;
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_micros(random.u64(0..8000)));
        if !is_cut && cut_after.is_some_and(|after| commits(writers) - before >= after) {
            bed.card.power_cut(random.u64(..));
            is_cut = true;
        }
        // A reset may fail if it meets another reset, or a store that is being closed.
        match random.u32(0..4) {
            0 => drop(qpair_scsi::host::Host::reset(&*at.driver)),
            1 => drop(qpair::unstable::block::BlockDevice::reset(&*at.disk)),
            _ => {}
        }
    }
    is_cut
}

/// Checks every page of a store that was closed.
fn check(disk: &Arc<ScsiDisk>) -> qpair::Result<qpair::report::CheckReport> {
    let store = Store::open(vec![disk.clone()], &options(false, true))?;
    let report = store.check(&|_, _| ())?;
    store.close()?;
    Ok(report)
}

fn lives(
    bed: &Bed,
    seed: u64,
    lives: u64,
    flushed: bool,
    counts: &mut Counts,
) -> Result<(), String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let writers: Vec<Writer> = (0..WRITERS).map(|_| Writer::default()).collect();
    for life in 0..=lives {
        let at = bed.plug_in();
        let tell = |what: String| format!("life {life}: {what}");
        // Recovery meets faults too, but only faults that a request survives.
        bed.card.set_faults(if life == lives { Vec::new() } else { faults(&mut random) });
        let store = Store::open(vec![at.disk.clone()], &options(life == 0, flushed))
            .map_err(|error| tell(format!("cannot be opened: {error}")))?;
        let judged =
            judge(&store, &writers).map_err(|error| tell(format!("cannot be read: {error}")))?;
        for (writer, number) in writers.iter().zip(judged.map_err(tell)?) {
            writer.acknowledged.store(number, Ordering::Relaxed);
        }
        if life == lives {
            store.close().map_err(|error| tell(error.to_string()))?;
            let report = check(&at.disk).map_err(|error| tell(error.to_string()))?;
            let is_well = report.is_sound() && report.leaked_pages == 0;
            return if is_well { Ok(()) } else { Err(tell(format!("{report:?}"))) };
        }
        let is_over = AtomicBool::new(false);
        let before = at.driver.resets();
        std::thread::scope(|scope| {
            let disturbing = scope
                .spawn(|| disturb(bed, &at, seed.wrapping_mul(1000) + life, &writers, &is_over));
            std::thread::scope(|scope| {
                for (id, writer) in (0..).zip(&writers) {
                    let store = &store;
                    scope.spawn(move || work(store, id, writer, COMMITS));
                }
            });
            is_over.store(true, Ordering::Relaxed);
            let is_cut = disturbing.join().unwrap();
            counts.power_cuts += u64::from(is_cut);
        });
        let is_stopped = |it: &Writer| {
            it.begun.load(Ordering::Relaxed) > it.acknowledged.load(Ordering::Relaxed)
        };
        counts.failed += u64::from(writers.iter().any(is_stopped));
        counts.resets += at.driver.resets() - before;
        counts.commits = commits(&writers);
        // The program ends without closing the store, so that no close flushes anything.
        bed.card.power_cut(random.u64(..));
        drop(store);
    }
    Ok(())
}

#[test]
fn what_was_acknowledged_survives_a_controller_that_fails() {
    let first = number("QPAIR_HBA_SEED").unwrap_or(1);
    let count = number("QPAIR_HBA_LIVES").unwrap_or(15);
    let mut counts = Counts::default();
    for seed in first..first + 3 {
        let bed = Bed::new("size=64MiB,cache=on,queues=8");
        let mut its = Counts::default();
        lives(&bed, seed, count.div_ceil(3), true, &mut its)
            .unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        counts.commits += its.commits;
        counts.resets += its.resets;
        counts.power_cuts += its.power_cuts;
        counts.failed += its.failed;
        let violations = bed.card.violations();
        assert_eq!(violations.count, 0, "seed {seed}: {:#?}", violations.told);
    }
    eprintln!("{counts:?}");
    assert!(counts.commits > count && counts.resets > 0 && counts.failed > 0, "{counts:?}");
}

/// With a log that is not flushed, the same test must lose commits. Otherwise it would detect
/// nothing.
#[test]
fn a_store_that_does_not_flush_is_caught() {
    let caught = (1..40).any(|seed| {
        let bed = Bed::new("size=64MiB,cache=on,queues=8");
        let why = lives(&bed, seed, 4, false, &mut Counts::default()).err();
        why.is_some_and(|why| why.contains("was acknowledged") || why.contains("as it was"))
    });
    assert!(caught);
}
