//! Running a study: every configuration once a round, in an order that a seed decides, round after round.
//!
//! Always holds:
//! - A round has every point once, so a study that drifts drifts for all of them alike.
//! - Within a round the points of an experiment stay together: what is compared is measured within seconds.
//! - A point that fails does not end the study; its error is in the report.
//! - Nothing is written to a device that does not say it may be.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use qpair_block::{Error, ErrorKind, Result};
use qpair_workload::{Live, Observer};

use crate::config::{Config, Pace};
use crate::experiment::Experiment;
use crate::jobs::{Length, jobs};
use crate::lab::{Effort, Lab};
use crate::measure::{Measure, digits};
use crate::report::{ExperimentReport, Point, Settings, StudyReport};

/// What to run, and how often.
#[derive(Clone, Debug)]
pub struct Options {
    /// Experiments.
    pub experiments: Vec<&'static Experiment>,
    /// Runs of each point; `None`: as the effort says.
    pub repeat: Option<u32>,
    /// Seconds measured of each run; `None`: as the effort says.
    pub seconds_per_point: Option<f64>,
    /// Seed of the order of runs, and of requests.
    pub seed: u64,
}

/// Told how a study goes; asked whether it should stop.
pub trait Watcher: Sync {
    /// So many runs of so many are done, and this is next.
    fn at(&self, done: u64, total: u64, next: &str);

    /// Something people should know now.
    fn note(&self, text: &str) {
        let _ = text;
    }

    /// Whether the study should stop.
    fn stop(&self) -> bool {
        false
    }
}

/// Passes the wish to stop on to a run.
struct Stop<'a>(&'a dyn Watcher);

impl Observer for Stop<'_> {
    fn tick(&self, _: &Live) {}

    fn stop(&self) -> bool {
        self.0.stop()
    }
}

impl Options {
    /// What is run, where the caller leaves it open.
    #[must_use]
    pub fn settings(&self, effort: Effort) -> Settings {
        let (repeat, seconds) = match effort {
            Effort::Quick => (3, 0.1),
            Effort::Usual => (5, 0.2),
            Effort::Full => (7, 1.0),
        };
        let seconds_per_point = self.seconds_per_point.unwrap_or(seconds);
        Settings {
            effort,
            repeat: self.repeat.unwrap_or(repeat).max(1),
            seconds_per_point,
            ramp_s: (seconds_per_point / 4.0).clamp(0.02, 1.0),
            seed: self.seed,
        }
    }
}

/// What is to be known if others use the processors as well.
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

/// Load for each core above which a machine is called busy.
const BUSY: f64 = 0.5;

impl Settings {
    /// How long a plan of so many points takes about, seconds, without prolonged runs.
    #[must_use]
    pub fn estimate_s(&self, points: usize) -> f64 {
        // Opening devices and starting threads.
        const BEGIN_S: f64 = 0.03;
        points as f64 * f64::from(self.repeat) * (self.seconds_per_point + self.ramp_s + BEGIN_S)
    }
}

/// Runs a study.
///
/// # Errors
/// `Unsupported` if no interface can be used on the devices, with what is in the way; `Io` if the watcher stopped it.
pub fn run(lab: &Lab, options: &Options, watcher: &dyn Watcher) -> Result<StudyReport> {
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
    let busy = busy(lab.cores());
    let measured = |config: &Config, round: u32| measure(lab, &settings, config, round, watcher);
    let mut report = run_with(lab, options, settings.clone(), watcher, measured)?;
    report.machine = qpair_machine::Machine::read();
    report.notes.extend(busy);
    Ok(report)
}

/// Runs a study with whatever measures a point; `None`: it was stopped.
pub(crate) fn run_with(
    lab: &Lab,
    options: &Options,
    settings: Settings,
    watcher: &dyn Watcher,
    mut measure: impl FnMut(&Config, u32) -> Option<std::result::Result<Measure, String>>,
) -> Result<StudyReport> {
    let (begun, clock) = (SystemTime::now(), Instant::now());
    let mut report = StudyReport::empty(settings.clone());
    report.begun_s = begun.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    report.cores = lab.cores();
    report.devices.clone_from(&lab.devices);
    report.interfaces.clone_from(&lab.interfaces);
    report.experiments = options.experiments.iter().map(|one| planned(one, lab)).collect();
    let blocks = blocks(&report.experiments);
    report.points = blocks.iter().flatten().cloned().map(empty_point).collect();
    let total = blocks.iter().flatten().map(|config| u64::from(runs(config, &settings))).sum();
    let mut order = fastrand::Rng::with_seed(settings.seed);
    let mut done = 0;
    for round in 0..settings.repeat {
        for config in shuffled(&blocks, &mut order) {
            if round >= runs(config, &settings) {
                continue;
            }
            watcher.at(done, total, &config.to_string());
            let outcome = if watcher.stop() { None } else { measure(config, round) };
            let stopped = || Error::new(ErrorKind::Io, "the study was interrupted");
            keep(&mut report, config, outcome.ok_or_else(stopped)?, watcher);
            done += 1;
        }
    }
    watcher.at(total, total, "");
    report.took_s = digits(clock.elapsed().as_secs_f64());
    report.judge();
    Ok(report)
}

fn planned(experiment: &Experiment, lab: &Lab) -> ExperimentReport {
    ExperimentReport {
        name: experiment.name.to_owned(),
        figure: experiment.figure.to_owned(),
        shows: experiment.shows.to_owned(),
        found: experiment.found.to_owned(),
        plan: experiment.plan(lab),
    }
}

/// The configurations, each once, in blocks that stay together: what an experiment has and none before it.
fn blocks(experiments: &[ExperimentReport]) -> Vec<Vec<Config>> {
    let mut known = std::collections::HashSet::new();
    experiments
        .iter()
        .map(|experiment| {
            experiment
                .plan
                .configs()
                .filter(|config| known.insert((*config).clone()))
                .cloned()
                .collect()
        })
        .collect()
}

/// Blocks in any order, and within each its points in any order.
fn shuffled<'a>(blocks: &'a [Vec<Config>], order: &mut fastrand::Rng) -> Vec<&'a Config> {
    let mut blocks: Vec<Vec<&Config>> = blocks.iter().map(|block| block.iter().collect()).collect();
    order.shuffle(&mut blocks);
    for block in &mut blocks {
        order.shuffle(block);
    }
    blocks.into_iter().flatten().collect()
}

/// How often a configuration is run: long ones once.
fn runs(config: &Config, settings: &Settings) -> u32 {
    match config.pace {
        Pace::Prolonged { .. } => 1,
        Pace::Full | Pace::Interval { .. } => settings.repeat,
    }
}

fn empty_point(config: Config) -> Point {
    Point { config, runs: Vec::new(), errors: Vec::new() }
}

fn keep(
    report: &mut StudyReport,
    config: &Config,
    outcome: std::result::Result<Measure, String>,
    watcher: &dyn Watcher,
) {
    let Some(point) = report.points.iter_mut().find(|point| point.config == *config) else {
        return;
    };
    match outcome {
        Ok(measure) => point.runs.push(measure),
        Err(error) => {
            if !point.errors.contains(&error) {
                watcher.note(&format!("{config}: {error}"));
                point.errors.push(error);
            }
        }
    }
}

/// Runs that are too short for a device that slow, or a machine that busy.
const TOO_SHORT: &str = "no request completed in the time there was";

/// Measures a point; `None`: it was stopped.
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
    let outcome =
        jobs(config, lab, length, seed).and_then(|jobs| qpair_workload::run(&jobs, &Stop(watcher)));
    match outcome {
        Err(error) => Some(Err(error.to_string())),
        Ok(report) if report.interrupted => None,
        Ok(report) => {
            let failed = report.jobs.iter().find_map(|job| job.error.as_ref());
            Some(match failed {
                Some(error) => Err(error.what.clone()),
                None if report.jobs.iter().all(|job| job.ios() == 0) => Err(TOO_SHORT.to_owned()),
                None => Ok(Measure::of(&report, round, prolonged)),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::EXPERIMENTS;
    use crate::synthetic;

    struct Silent;

    impl Watcher for Silent {
        fn at(&self, _: u64, _: u64, _: &str) {}
    }

    #[test]
    fn every_point_once_a_round_in_an_order_of_its_own() {
        let lab = synthetic::lab(2, 1, &["libaio", "io_uring"]);
        let options = Options {
            experiments: EXPERIMENTS.iter().collect(),
            repeat: Some(3),
            seconds_per_point: Some(0.1),
            seed: 7,
        };
        let mut seen: Vec<Vec<Config>> = vec![Vec::new(); 3];
        let settings = options.settings(lab.effort);
        let report = run_with(&lab, &options, settings, &Silent, |config, round| {
            seen[round as usize].push(config.clone());
            Some(Ok(Measure { round, ios_per_s: 1.0, ..Measure::default() }))
        })
        .unwrap();
        let prolonged = |config: &&Config| matches!(config.pace, Pace::Prolonged { .. });
        assert_eq!(seen[0].len(), report.points.len());
        assert_eq!(seen[1].len(), report.points.iter().filter(|p| !prolonged(&&p.config)).count());
        assert_ne!(seen[1], seen[2]);
        for point in &report.points {
            let runs = if prolonged(&&point.config) { 1 } else { 3 };
            assert_eq!(point.runs.len(), runs, "{}", point.config);
        }
        // What several experiments show is there once.
        for (at, point) in report.points.iter().enumerate() {
            assert!(report.points[..at].iter().all(|other| other.config != point.config));
        }
    }

    #[test]
    fn failures_are_told_and_the_rest_goes_on() {
        let lab = synthetic::lab(2, 1, &["libaio", "io_uring"]);
        let options = Options {
            experiments: vec![&EXPERIMENTS[0]],
            repeat: Some(2),
            seconds_per_point: None,
            seed: 7,
        };
        let settings = options.settings(lab.effort);
        let report = run_with(&lab, &options, settings.clone(), &Silent, |config, round| {
            Some(match config.interface.as_str() {
                "libaio" => Err("out of order".to_owned()),
                _ => Ok(Measure { round, ios_per_s: 1.0, ..Measure::default() }),
            })
        })
        .unwrap();
        for point in &report.points {
            match point.config.interface.as_str() {
                "libaio" => assert_eq!((point.runs.len(), point.errors.len()), (0, 1)),
                _ => assert_eq!((point.runs.len(), point.errors.len()), (2, 0)),
            }
        }
        assert!(run_with(&lab, &options, settings, &Silent, |_, _| None).is_err());
    }

    #[test]
    fn a_study_of_memory_runs() {
        let lab = Lab {
            cpus: crate::lab::cpus().unwrap(),
            devices: vec![crate::lab::Device::of("ram:size=16MiB", true, false).unwrap()],
            interfaces: Vec::new(),
            effort: Effort::Quick,
        };
        let lab = Lab { interfaces: crate::lab::interfaces(&lab.devices), ..lab };
        let options = Options {
            experiments: vec![crate::find("s1-fig2").unwrap(), crate::find("s3-fig2b").unwrap()],
            repeat: Some(2),
            seconds_per_point: Some(0.01),
            seed: 1,
        };
        let report = run(&lab, &options, &Silent).unwrap();
        for point in &report.points {
            // On a machine that is busy a thread may not get its turn in time.
            let failed = point.errors.iter().find(|error| *error != TOO_SHORT);
            assert!(failed.is_none(), "{point:?}");
            assert!(point.runs.iter().all(|run| run.ios_per_s > 0.0), "{point:?}");
        }
        assert!(report.points.iter().any(|point| !point.runs.is_empty()));
    }

    #[test]
    fn no_interface_is_an_error() {
        let mut lab = synthetic::lab(2, 1, &["libaio"]);
        lab.interfaces[0].unavailable = Some("forbidden".to_owned());
        let options = Options {
            experiments: vec![&EXPERIMENTS[0]],
            repeat: None,
            seconds_per_point: None,
            seed: 1,
        };
        let error = run(&lab, &options, &Silent).unwrap_err();
        assert!(error.to_string().contains("libaio: forbidden"), "{error}");
    }
}
