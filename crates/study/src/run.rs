//! The runs of a study: on devices, of stores, and of a call that does nothing.
//!
//! Invariant: only devices that allow writes are written to.

use std::time::Instant;

use qpair_block::{Error, ErrorKind, Result};
use qpair_workload::{Live, Observer, Watcher};

use crate::config::{Config, Pace};
use crate::jobs::{Length, jobs};
use crate::lab::{BARE_CALL, Device, Lab};
use crate::measure::{Measure, digits};
use crate::options::Options;
use crate::report::{Settings, StudyReport};
use crate::session::run_with;

/// Runs the points of a store.
pub trait StoreRunner {
    /// Runs a point that has a [`Config::store`] for `run_s` seconds, after `ramp_s` seconds that
    /// do not count.
    ///
    /// # Errors
    /// The errors of the store.
    fn run(&mut self, config: &Config, ramp_s: f64, run_s: f64) -> Result<Measure>;
}

/// Runs a study. `stores` runs the points of a store.
///
/// # Errors
/// `Unsupported` if no interface can be used on the devices, with the reasons. `Io` if the watcher
/// stopped the study.
pub fn run(
    lab: &Lab,
    options: &Options,
    watcher: &dyn Watcher,
    stores: Option<&mut dyn StoreRunner>,
) -> Result<StudyReport> {
    run_on(lab, options, watcher, stores, &mut |_, _| Ok(()))
}

/// Prepares the devices for a point.
pub(crate) type Prepare<'a> = &'a mut dyn FnMut(&Config, &mut Lab) -> Result<()>;

/// Runs a study whose devices must be prepared for each point.
pub(crate) fn run_on(
    lab: &Lab,
    options: &Options,
    watcher: &dyn Watcher,
    mut stores: Option<&mut dyn StoreRunner>,
    prepare: Prepare<'_>,
) -> Result<StudyReport> {
    if lab.usable().next().is_none() {
        let reasons: Vec<String> = lab
            .interfaces
            .iter()
            .filter_map(|interface| {
                Some(format!("{}: {}", interface.name, interface.unavailable.as_ref()?))
            })
            .collect();
        let what = format!("no interface can be used on these devices; {}", reasons.join("; "));
        return Err(Error::new(ErrorKind::Unsupported, what)
            .hint("the file system may have no direct I/O: choose another --dir or --device"));
    }
    let settings = options.settings(lab.effort);
    let unwritten: Vec<String> = lab.devices.iter().filter_map(Device::unwritten).collect();
    unwritten.iter().for_each(|text| watcher.note(text));
    let busy = busy(lab.cores());
    let mut lab_now = lab.clone();
    let measured = |config: &Config, round: u32| match (config.store, &mut stores) {
        (Some(_), None) => Some(Err("the study has no runner for stores".to_owned())),
        (Some(_), Some(stores)) => {
            let (ramp_s, run_s) = (settings.ramp_s, settings.seconds_per_point);
            let outcome = stores.run(config, ramp_s, run_s);
            if watcher.stop() {
                return None;
            }
            let of_round = |found| Measure { round, ..found };
            Some(outcome.map(of_round).map_err(|error| error.to_string()))
        }
        (None, _) => match prepare(config, &mut lab_now) {
            Ok(()) => measure(&lab_now, &settings, config, round, watcher),
            Err(error) => Some(Err(error.to_string())),
        },
    };
    let mut report = run_with(lab, options, watcher, measured)?;
    report.machine = qpair_machine::Machine::read();
    report.notes.extend(unwritten);
    report.notes.extend(busy);
    Ok(report)
}

/// An observer that stops a run when the watcher wants to stop.
struct Stop<'a>(&'a dyn Watcher);

impl Observer for Stop<'_> {
    fn tick(&self, _: &Live) {}

    fn stop(&self) -> bool {
        self.0.stop()
    }
}

/// Returns a note if other programs use the processors as well.
fn busy(cores: u32) -> Option<String> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    let load: f64 = text.split(' ').next()?.parse().ok()?;
    (load > BUSY * f64::from(cores)).then(|| {
        format!(
            "The machine was busy with something else when the study began (load {load} on {cores} cores): intervals are wide, \
             and what needs a core of its own did not have it."
        )
    })
}

/// The load per core above which a machine counts as busy.
const BUSY: f64 = 0.5;

/// The error of runs that are too short for a slow device or a busy machine.
const TOO_SHORT: &str = "no request completed in the time of the run";

/// Measures a point; returns `None` if it was stopped.
fn measure(
    lab: &Lab,
    settings: &Settings,
    config: &Config,
    round: u32,
    watcher: &dyn Watcher,
) -> Option<std::result::Result<Measure, String>> {
    let length = Length { ramp_s: settings.ramp_s, run_s: settings.seconds_per_point };
    let seed = settings.seed.wrapping_add(u64::from(round) << 32);
    let prolonged = matches!(config.pace, Pace::Prolonged { .. });
    if config.interface == BARE_CALL {
        return Some(Ok(bare_call(round, settings.seconds_per_point)));
    }
    let outcome = jobs(config, lab, length, seed)
        .and_then(|jobs| qpair_workload::run(&lab.drivers, &jobs, &Stop(watcher)));
    match outcome {
        Err(error) => Some(Err(error.to_string())),
        Ok(report) if report.interrupted => None,
        Ok(report) => {
            let failed = report.jobs.iter().find_map(|job| job.error.as_ref());
            Some(match failed {
                Some(error) => Err(error.what.clone()),
                None if report.jobs.iter().all(|job| job.ios() == 0) => Err(TOO_SHORT.to_owned()),
                None => {
                    let mut measure = Measure::of(&report, round, prolonged);
                    if round >= settings.repeat {
                        measure.quantiles_us.clear();
                    }
                    Ok(measure)
                }
            })
        }
    }
}

/// Measures the cost of a system call that does nothing.
fn bare_call(round: u32, run_s: f64) -> Measure {
    let (clock, mut calls) = (Instant::now(), 0_u32);
    while clock.elapsed().as_secs_f64() < run_s {
        // The clock is read without a system call; a hundred calls hide the cost of reading it.
        for _ in 0..100 {
            std::hint::black_box(rustix::process::getppid());
        }
        calls += 100;
    }
    let seconds = clock.elapsed().as_secs_f64();
    let each_us = digits(seconds * 1e6 / f64::from(calls.max(1)));
    Measure {
        round,
        seconds: digits(seconds),
        ios_per_s: digits(f64::from(calls) / seconds),
        p50_us: each_us,
        p99_us: each_us,
        cpu_us_per_io: each_us,
        system_calls_per_io: 1.0,
        ..Measure::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::experiments;
    use crate::synthetic::{self, Silent};

    #[test]
    fn a_study_of_memory_runs() {
        let lab = Lab {
            cpus: crate::lab::cpus().unwrap(),
            effort: crate::Effort::Quick,
            stores: false,
            ..synthetic::lab(1, 1, &[])
        };
        let lab = Lab { interfaces: crate::lab::interfaces(&lab.devices), ..lab };
        let options = Options {
            experiments: vec![crate::find("s1-fig2").unwrap(), crate::find("s3-fig2b").unwrap()],
            repeat: Some(2),
            seconds_per_point: Some(0.01),
            ..Options::default()
        };
        let report = run(&lab, &options, &Silent, None).unwrap();
        for point in &report.points {
            // On a busy machine, a thread may not get the processor in time.
            let failed = point.errors.iter().find(|error| *error != TOO_SHORT);
            assert!(failed.is_none(), "{point:?}");
            assert!(point.runs.iter().all(|run| run.ios_per_s > 0.0), "{point:?}");
        }
        assert!(report.points.iter().any(|point| !point.runs.is_empty()), "{:?}", report.points[0]);
    }

    #[test]
    fn no_interface_is_an_error() {
        let mut lab = synthetic::lab(2, 1, &["libaio"]);
        lab.interfaces[0].unavailable = Some("forbidden".to_owned());
        let experiments = experiments().take(1).collect();
        let options = Options { experiments, ..Options::default() };
        let error = run(&lab, &options, &Silent, None).unwrap_err();
        assert!(error.to_string().contains("libaio: forbidden"), "{error}");
    }
}
