//! The points of a study that its own crate cannot run: those of stores and of other engines, the
//! switch of the engine's tasks, and the floor of a drive.

use std::time::{Duration, Instant};

use qpair_block::{DeviceSpec, Error, ErrorKind, Result};
use qpair_drivers::Drivers;
use qpair_floor::{Load, Options as FloorOptions, Way, Which, Workload as FloorWorkload};
use qpair_study::{Config, FLOOR, Lab, Measure, Outside, SOFT_FLOOR, TASK_SWITCH, Watcher};

use super::peers::Peers;
use super::stores::Stores;
use crate::interrupt::Interrupt;

/// The length of the shortest run of a store, and of its warm-up, in seconds: a transaction takes
/// many reads.
const SHORTEST_S: (f64, f64) = (0.2, 0.3);

pub(crate) struct Runner {
    stores: Stores,
    peers: Peers,
    drivers: Drivers,
    interrupt: Interrupt,
}

impl Runner {
    pub(crate) fn new(lab: &Lab, interrupt: Interrupt) -> Self {
        Self {
            stores: Stores::new(lab, interrupt.clone()),
            peers: Peers::new(lab.folder.clone()),
            drivers: lab.drivers.clone(),
            interrupt,
        }
    }

    fn store(
        &mut self,
        config: &Config,
        lab: &Lab,
        ramp_s: f64,
        run_s: f64,
    ) -> qpair::Result<Measure> {
        let (ramp_s, run_s) = (ramp_s.max(SHORTEST_S.0), run_s.max(SHORTEST_S.1));
        match config.store {
            Some(store) if Peers::are_of(config) => {
                self.peers.run(&mut self.stores, config, lab, store, ramp_s, run_s)
            }
            _ => self.stores.run(config, lab, ramp_s, run_s),
        }
    }

    /// Measures the switch between two tasks of one worker, each of which gives way to the other.
    fn task_switch(&self, run_s: f64) -> qpair::Result<Measure> {
        let options = qpair::Options::new("ram:size=64MiB").drivers(&self.drivers).workers(1);
        let store = options.create(true).memory_bytes(16 << 20).open()?;
        let task = || {
            store.spawn(move || async move {
                let (clock, mut switches) = (Instant::now(), 0_u64);
                while clock.elapsed().as_secs_f64() < run_s {
                    // Hundred switches hide the cost of reading the clock.
                    for _ in 0..100 {
                        qpair::task::yield_now().await;
                    }
                    switches += 100;
                }
                (switches, clock.elapsed().as_secs_f64())
            })
        };
        let tasks = [task(), task()];
        let mut all = (0, 0.0_f64);
        for found in tasks {
            let (switches, seconds) = found.join()?;
            all = (all.0 + switches, all.1.max(seconds));
        }
        store.close()?;
        let each_us = all.1 * 1e6 / (all.0 as f64).max(1.0);
        Ok(Measure {
            seconds: all.1,
            ios_per_s: all.0 as f64 / all.1.max(1e-9),
            p50_us: each_us,
            p99_us: each_us,
            cpu_us_per_io: each_us,
            ..Measure::default()
        })
    }

    /// Runs prebuilt commands on a soft drive, or on the first device, by this program's driver.
    fn floor(&self, config: &Config, lab: &Lab, ramp_s: f64, run_s: f64) -> Result<Measure> {
        let invalid = |what: &str| Error::new(ErrorKind::Invalid, format!("{config}: {what}"));
        let spec = match config.interface.as_str() {
            SOFT_FLOOR => "softnvme:size=256MiB".to_owned(),
            _ => {
                let own = lab.devices.first().and_then(|device| device.own_driver_spec.clone());
                own.ok_or_else(|| invalid("the first device has no user-space driver"))?
            }
        };
        let workload = FloorWorkload {
            block_bytes: config.block_bytes,
            write: config.writes(),
            random: !config.sequential,
        };
        let options = FloorOptions {
            drive: Which::User(DeviceSpec::parse(&spec)?),
            drivers: self.drivers.clone(),
            loads: vec![Load { workload, depth: config.depth, jobs: config.threads }],
            time: Duration::from_secs_f64(ramp_s.max(run_s)),
            repeat: 1,
            seed: 1,
            allow_writes: lab.devices.first().is_some_and(|device| device.may_write),
        };
        let report = qpair_floor::run(&options, &Quiet(&self.interrupt))?;
        let point =
            report.points.first().ok_or_else(|| invalid("the drive does not take this load"))?;
        let turns = point.ways.iter().find(|turns| turns.way == Way::Floor);
        let turn = turns.and_then(|turns| turns.turns.first());
        let turn = turn.ok_or_else(|| invalid("the floor was not measured"))?;
        let [p50_us, _, p99_us, _] = turn.percentiles_us;
        Ok(Measure {
            seconds: turn.seconds,
            ios_per_s: turn.ios_per_s,
            bytes_per_s: turn.bytes_per_s,
            p50_us,
            p99_us,
            // The threads poll all the time.
            cpu_us_per_io: f64::from(config.threads) * 1e6 / turn.ios_per_s.max(1e-9),
            ..Measure::default()
        })
    }
}

/// A watcher that shows nothing, because the study shows its own progress.
struct Quiet<'a>(&'a Interrupt);

impl Watcher for Quiet<'_> {
    fn at(&self, _: u64, _: u64, _: &str) {}

    fn stop(&self) -> bool {
        self.0.is_requested()
    }
}

impl Outside for Runner {
    fn run(&mut self, config: &Config, lab: &Lab, ramp_s: f64, run_s: f64) -> Result<Measure> {
        if config.interface.starts_with(FLOOR) {
            if config.writes() && config.interface == FLOOR {
                self.stores.spoil();
            }
            return self.floor(config, lab, ramp_s, run_s);
        }
        let found = match config.interface.as_str() {
            TASK_SWITCH => self.task_switch(run_s),
            _ => self.store(config, lab, ramp_s, run_s),
        };
        found.map_err(|error| Error::new(ErrorKind::Io, format!("running a store: {error}")))
    }
}
