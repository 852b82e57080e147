//! The runs of a study: on devices, of stores, of other programs, and of single steps.
//!
//! Invariant: only devices that allow writes are written to.

use qpair_block::{Error, ErrorKind, Result};
use qpair_workload::{Live, Observer, Watcher};

use crate::bare::{bare_call, empty_poll, thread_switch};
use crate::config::{Config, Pace};
use crate::durable::FileSystems;
use crate::fio;
use crate::jobs::{Length, jobs};
use crate::lab::{
    BARE_CALL, DURABLE, Device, EMPTY_POLL, FIO, FLOOR, Lab, TASK_SWITCH, THREAD_SWITCH,
};
use crate::measure::{Measure, digits};
use crate::options::Options;
use crate::report::{Settings, StudyReport};
use crate::session::{Clock, Driver, run_with};

/// Runs the points that this crate cannot run: those of a store, the switch of the engine's tasks,
/// and the floor of a drive.
pub trait Outside {
    /// Runs a point for `run_s` seconds, after `ramp_s` seconds that do not count.
    ///
    /// # Errors
    /// The errors of the store or the device.
    fn run(&mut self, config: &Config, lab: &Lab, ramp_s: f64, run_s: f64) -> Result<Measure>;
}

/// Whether a point is one that [`Outside`] runs.
fn is_outside(config: &Config) -> bool {
    config.store.is_some() || config.interface == TASK_SWITCH || config.interface.starts_with(FLOOR)
}

/// Runs a study. `outside` runs the points that this crate cannot run.
///
/// # Errors
/// `Unsupported` if no interface can be used on the devices, with the reasons. `Io` if the watcher
/// stopped the study.
pub fn run(
    lab: &Lab,
    options: &Options,
    watcher: &dyn Watcher,
    outside: Option<&mut dyn Outside>,
) -> Result<StudyReport> {
    run_on(lab, options, watcher, outside, &mut |_, _| Ok(()))
}

/// Prepares the devices for a point.
pub(crate) type Prepare<'a> = &'a mut dyn FnMut(&Config, &mut Lab) -> Result<()>;

/// Runs a study whose devices must be prepared for each point.
pub(crate) fn run_on(
    lab: &Lab,
    options: &Options,
    watcher: &dyn Watcher,
    mut outside: Option<&mut dyn Outside>,
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
    let mut file_systems = FileSystems::default();
    let measured = |config: &Config, round: u32| {
        if let Err(error) = prepare(config, &mut lab_now) {
            return Some(Err(error.to_string()));
        }
        if !is_outside(config) {
            let before = interrupts(config, &lab_now);
            let run = Run { lab: &lab_now, settings: &settings, watcher };
            let found = run.measure(config, round, &mut file_systems)?;
            let taken = before.zip(interrupts(config, &lab_now)).map(|(a, b)| b.saturating_sub(a));
            return Some(found.map(|found| with_interrupts(found, taken, settings.ramp_s)));
        }
        let Some(outside) = &mut outside else {
            return Some(Err("the study has no runner for this point".to_owned()));
        };
        let (ramp_s, run_s) = (settings.ramp_s, settings.seconds_per_point);
        let outcome = outside.run(config, &lab_now, ramp_s, run_s);
        if watcher.stop() {
            return None;
        }
        let of_round = |found| Measure { round, ..found };
        Some(outcome.map(of_round).map_err(|error| error.to_string()))
    };
    let mut report = run_with(lab, options, watcher, Clock::real(), measured)?;
    report.machine = qpair_machine::Machine::read();
    report.notes.extend(unwritten);
    report.notes.extend(busy);
    Ok(report)
}

/// Returns the interrupts so far of the PCI functions of a point's devices; `None` if the point has
/// none, or one is not known.
fn interrupts(config: &Config, lab: &Lab) -> Option<u64> {
    Driver::of(config)?;
    let first = config.first as usize;
    let devices = lab.devices.get(first..)?.iter().take(config.drives as usize);
    let mut functions = devices.map(Device::function).collect::<Option<Vec<&str>>>()?;
    functions.sort_unstable();
    functions.dedup();
    let root = qpair_machine::Root::system();
    functions.into_iter().map(|it| qpair_machine::function_interrupts(&root, it)).sum()
}

/// Adds the interrupts of a run to its results. The ramp's requests have interrupts too.
fn with_interrupts(found: Measure, taken: Option<u64>, ramp_s: f64) -> Measure {
    let requests = found.ios_per_s * (found.seconds + ramp_s);
    let each = |taken: u64| digits(taken as f64 / requests.max(1.0));
    Measure { interrupts_per_io: taken.map(each), ..found }
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

/// The environment of a run.
struct Run<'a> {
    lab: &'a Lab,
    settings: &'a Settings,
    watcher: &'a dyn Watcher,
}

impl Run<'_> {
    /// Measures a point; returns `None` if it was stopped.
    fn measure(
        &self,
        config: &Config,
        round: u32,
        file_systems: &mut FileSystems,
    ) -> Option<std::result::Result<Measure, String>> {
        let (lab, run_s) = (self.lab, self.settings.seconds_per_point);
        let length = Length { ramp_s: self.settings.ramp_s, run_s };
        let found = match config.interface.as_str() {
            BARE_CALL => Ok(bare_call(round, run_s)),
            EMPTY_POLL => empty_poll(&lab.drivers, round, run_s),
            THREAD_SWITCH => thread_switch(lab, round, run_s),
            name if name.starts_with(FIO) => fio::run(config, lab, length, round),
            name if name.starts_with(DURABLE) => file_systems.run(name, &lab.folder, round, run_s),
            _ => return self.requests(config, length, round),
        };
        (!self.watcher.stop()).then(|| found.map_err(|error| error.to_string()))
    }

    /// Measures requests to devices; returns `None` if the run was stopped.
    fn requests(
        &self,
        config: &Config,
        length: Length,
        round: u32,
    ) -> Option<std::result::Result<Measure, String>> {
        let seed = self.settings.seed.wrapping_add(u64::from(round) << 32);
        let prolonged = matches!(config.pace, Pace::Prolonged { .. });
        let outcome = jobs(config, self.lab, length, seed)
            .and_then(|jobs| qpair_workload::run(&self.lab.drivers, &jobs, &Stop(self.watcher)));
        match outcome {
            Err(error) => Some(Err(error.to_string())),
            Ok(report) if report.interrupted => None,
            Ok(report) => {
                let failed = report.jobs.iter().find_map(|job| job.error.as_ref());
                Some(match failed {
                    Some(error) => Err(error.what.clone()),
                    None if report.jobs.iter().all(|job| job.ios() == 0) => {
                        Err(TOO_SHORT.to_owned())
                    }
                    None => {
                        let mut measure = Measure::of(&report, round, prolonged);
                        if round >= self.settings.repeat {
                            measure.quantiles_us.clear();
                        }
                        Ok(measure)
                    }
                })
            }
        }
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
