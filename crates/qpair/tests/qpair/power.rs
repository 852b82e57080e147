//! A store on a soft NVMe drive, with the user-space driver, loses its power at any command: during
//! work and during recovery. When the power is back, every acknowledged commit is there, no commit
//! is there in part, and every page is sound.
//!
//! The drive has a volatile write cache, of which a power cut keeps or loses each block.
//! `QPAIR_POWER_CUTS=500 cargo test -p qpair --test qpair power` runs for longer;
//! `QPAIR_POWER_SEED=N` begins with that seed. The order of commands depends on the threads, so a
//! seed determines when the power fails and what is lost, but not the commands in flight.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that fails should panic, and say what it did"
)]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::ledger::{WRITERS, Writer, judge, options, work};
use qpair::Store;
use qpair::unstable::block::BlockDevice;
use qpair_nvme::{Controller, ControllerOptions, WaitMode};
use qpair_pci::{InProcess, PciDevice};
use qpair_softdev::faults::Plan;
use qpair_softdev::{SoftNvme, SoftNvmeOptions};

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

struct Drive {
    soft: Arc<SoftNvme>,
    wait: WaitMode,
}

impl Drive {
    fn new(options: &str, wait: WaitMode) -> Self {
        let soft = SoftNvme::new(SoftNvmeOptions::parse(options).unwrap()).unwrap();
        Self { soft, wait }
    }

    /// Restores the power, and returns the drive with a new driver. The drive loses its power again
    /// at command number `cut_after`.
    fn plug_in(&self, seed: u64, cut_after: Option<u64>) -> Arc<dyn BlockDevice> {
        self.soft.insert();
        self.soft.unmap_all();
        self.soft.set_faults(Plan { seed, power_cut_after: cut_after, ..Plan::default() });
        let function = Arc::new(InProcess::new("softnvme", self.soft.clone()));
        let options = ControllerOptions { wait: self.wait, ..ControllerOptions::default() };
        let controller = Controller::open(function, options).unwrap();
        Arc::new(controller.open_default_namespace(None).unwrap())
    }

    fn is_cut(&self) -> bool {
        let faults = self.soft.faults();
        faults.plan().power_cut_after.is_some_and(|after| faults.commands() >= after)
    }
}

/// Checks every page of a store that was closed.
fn check(drive: &Drive) -> Result<(), String> {
    let checked = || {
        let store = Store::open(vec![drive.plug_in(0, None)], &options(false, true))?;
        let report = store.check(&|_, _| ())?;
        store.close()?;
        Ok::<_, qpair::Error>(report)
    };
    let report = checked().map_err(|error| format!("after the last life: {error}"))?;
    let is_well = report.is_sound() && report.leaked_pages == 0;
    if is_well { Ok(()) } else { Err(format!("after the last life: {report:?}")) }
}

/// Cuts the power `cuts` times on one drive. Returns a description of the first fault.
fn lives(drive: &Drive, seed: u64, cuts: u64, log_flushed: bool) -> Result<(), String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let writers: Vec<Writer> = (0..WRITERS).map(|_| Writer::default()).collect();
    let mut is_new = true;
    for life in 0..=cuts {
        let is_last = life == cuts;
        // Often during the opening, but mostly during work.
        let most = 1 << random.u32(4..12);
        let after = 1 + random.u64(0..most);
        let device = drive.plug_in(random.u64(..), (!is_last).then_some(after));
        let opened = Store::open(vec![device], &options(is_new, log_flushed));
        let store = match opened {
            Ok(store) => store,
            Err(_) if drive.is_cut() => continue,
            Err(error) => return Err(format!("life {life}: cannot be opened: {error}")),
        };
        if is_new && store.table("t").is_err() {
            // An unfinished creation is started again.
            continue;
        }
        is_new = false;
        match judge(&store, &writers) {
            Ok(judged) => {
                for (writer, number) in
                    writers.iter().zip(judged.map_err(|e| format!("life {life}: {e}"))?)
                {
                    writer.acknowledged.store(number, Ordering::Relaxed);
                }
            }
            Err(_) if drive.is_cut() => continue,
            Err(error) => return Err(format!("life {life}: cannot be read: {error}")),
        }
        if is_last {
            store.close().map_err(|e| format!("life {life}: {e}"))?;
            return check(drive);
        }
        std::thread::scope(|scope| {
            for (id, writer) in (0..).zip(&writers) {
                let store = &store;
                scope.spawn(move || work(store, id, writer, 100_000));
            }
        });
        if !drive.is_cut() {
            return Err(format!("life {life}: a commit failed though there was power"));
        }
    }
    Ok(())
}

#[test]
fn what_was_acknowledged_survives_every_power_cut() {
    let first = number("QPAIR_POWER_SEED").unwrap_or(1);
    let cuts = number("QPAIR_POWER_CUTS").unwrap_or(48);
    for (seed, (wait, block)) in
        (first..).zip([(WaitMode::Sleep, 512), (WaitMode::Poll, 512), (WaitMode::Sleep, 4096)])
    {
        let cuts = cuts.div_ceil(3);
        eprintln!("seed {seed}: {cuts} cuts, {wait}, blocks of {block} bytes");
        let drive = Drive::new(&format!("size=64MiB,block={block},cache=on"), wait);
        lives(&drive, seed, cuts, true).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

/// With a log that is not flushed, the same test must lose commits. Otherwise it would detect
/// nothing.
#[test]
fn a_store_that_does_not_flush_is_caught() {
    let caught = (1..40).any(|seed| {
        let drive = Drive::new("size=64MiB,cache=on", WaitMode::Sleep);
        let why = lives(&drive, seed, 4, false).err();
        why.is_some_and(|why| why.contains("was acknowledged") || why.contains("as it was"))
    });
    assert!(caught);
}
