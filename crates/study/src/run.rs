//! The execution of a study. First every configuration runs once a round, in an order that a seed
//! determines. Then the points that findings compare run until their verdicts are clear.
//!
//! Always holds:
//! - A round has every point once, so a drift of the machine affects all points alike.
//! - Points that a finding compares run close together, in rounds of their own. The number of these
//!   rounds depends on the observed spread, within bounds. Points of a round are compared if they
//!   are seconds apart; see [`StudyReport::pairs`].
//! - Between comparisons a point is compared with itself.
//! - A point that fails does not end the study; its error is in the report.
//! - Only devices that allow writes are written to.

use std::borrow::Borrow;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use qpair_block::{Error, ErrorKind, Result};
use qpair_workload::{Live, Observer};

use crate::config::{Config, Pace};
use crate::experiment::Experiment;
use crate::finding::Comparison;
use crate::jobs::{Length, jobs};
use crate::lab::{BARE_CALL, Device, Effort, Lab};
use crate::lent::Driver;
use crate::measure::{Measure, digits};
use crate::report::{ExperimentReport, Point, Settings, StudyReport, Twins};
use crate::store::StoreRunner;

/// The experiments of a study, and the number and length of their runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// The experiments to run.
    pub experiments: Vec<&'static Experiment>,
    /// The number of rounds of all points, and of comparisons; `None`: determined by the effort and
    /// the observed spread.
    pub repeat: Option<u32>,
    /// The time in seconds after which no further comparison begins; `None`: determined by the
    /// effort.
    pub budget_s: Option<f64>,
    /// The measured time of each run in seconds; `None`: determined by the effort.
    pub seconds_per_point: Option<f64>,
    /// The seed of the order of runs and of the requests.
    pub seed: u64,
}

/// Receives the progress of a study, and can stop it.
pub trait Watcher: Sync {
    /// Called before each run: `done` runs of `total` are finished, and `next` begins.
    fn at(&self, done: u64, total: u64, next: &str);

    /// Called with a note that people should see at once.
    fn note(&self, text: &str) {
        let _ = text;
    }

    /// Whether the study should stop.
    fn stop(&self) -> bool {
        false
    }
}

/// An observer that stops a run when the watcher wants to stop.
struct Stop<'a>(&'a dyn Watcher);

impl Observer for Stop<'_> {
    fn tick(&self, _: &Live) {}

    fn stop(&self) -> bool {
        self.0.stop()
    }
}

impl Options {
    /// Returns the settings, with defaults of the effort for those that the caller leaves open.
    #[must_use]
    pub fn settings(&self, effort: Effort) -> Settings {
        let (rounds, seconds, budget_s) = match effort {
            Effort::Quick => (2, 0.1, 90.0),
            Effort::Usual => (2, 0.2, 300.0),
            Effort::Full => (4, 1.0, 3600.0),
        };
        let (repeat, compared_min, compared_max) = match self.repeat {
            Some(repeat) => (repeat.max(1), repeat.max(1), repeat.max(1)),
            None => (rounds, COMPARED_MIN, COMPARED_MAX),
        };
        let seconds_per_point = self.seconds_per_point.unwrap_or(seconds);
        Settings {
            effort,
            repeat,
            compared_min,
            compared_max,
            budget_s: self.budget_s.unwrap_or(budget_s),
            seconds_per_point,
            ramp_s: (seconds_per_point / 4.0).clamp(0.02, 1.0),
            seed: self.seed,
        }
    }
}

/// The number of rounds after which a comparison may be clear.
const COMPARED_MIN: u32 = 4;

/// The number of rounds after which a comparison is not continued, even if it is not clear.
const COMPARED_MAX: u32 = 24;

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

impl Settings {
    /// Estimates the duration of a plan of `points` points in seconds, without prolonged runs.
    #[must_use]
    pub fn estimate_s(&self, points: usize) -> f64 {
        // Opening devices and starting threads.
        const BEGIN_S: f64 = 0.03;
        points as f64 * f64::from(self.repeat) * (self.seconds_per_point + self.ramp_s + BEGIN_S)
    }
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
    let mut report = run_with(lab, options, settings.clone(), watcher, measured)?;
    report.machine = qpair_machine::Machine::read();
    report.notes.extend(unwritten);
    report.notes.extend(busy);
    Ok(report)
}

/// Runs a study with any function that measures a point; the function returns `None` if the study
/// was stopped.
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
    report.points = blocks.iter().flatten().flatten().cloned().map(empty_point).collect();
    let mut session = Session {
        report,
        watcher,
        measure: &mut measure,
        clock,
        order: fastrand::Rng::with_seed(settings.seed),
        settings,
        driver: Driver::Kernel,
        rebinds: lab.rebinds(),
        done: 0,
        total: 0,
    };
    let all = || blocks.iter().flatten().flatten();
    session.total = all().map(|config| u64::from(runs(config, &session.settings))).sum();
    for round in 0..session.settings.repeat {
        let mut all = shuffled(&blocks, &mut session.order);
        session.by_driver(&mut all);
        for config in all {
            if round < runs(config, &session.settings) {
                session.run(config, round)?;
            }
        }
    }
    session.compare()?;
    let mut report = session.report;
    watcher.at(session.done, session.done, "");
    report.took_s = digits(clock.elapsed().as_secs_f64());
    report.judge();
    Ok(report)
}

/// The state of a running study.
struct Session<'a, F> {
    report: StudyReport,
    watcher: &'a dyn Watcher,
    measure: &'a mut F,
    clock: Instant,
    order: fastrand::Rng,
    settings: Settings,
    /// The driver that the drives are bound to, if they are rebound.
    driver: Driver,
    rebinds: bool,
    done: u64,
    total: u64,
}

impl<F> Session<'_, F>
where
    F: FnMut(&Config, u32) -> Option<std::result::Result<Measure, String>>,
{
    /// Runs a point once and returns its requests a second, unless it failed.
    fn run(&mut self, config: &Config, round: u32) -> Result<Option<f64>> {
        self.watcher.at(self.done, self.total.max(self.done), &config.to_string());
        let at_s = digits(self.clock.elapsed().as_secs_f64());
        let outcome = if self.watcher.stop() { None } else { (self.measure)(config, round) };
        let outcome =
            outcome.ok_or_else(|| Error::new(ErrorKind::Io, "the study was interrupted"))?;
        self.done += 1;
        self.driver = Driver::of(config).unwrap_or(self.driver);
        let outcome = outcome.map(|found| Measure { at_s, ..found });
        let ios_per_s = outcome.as_ref().ok().map(|found| found.ios_per_s);
        keep(&mut self.report, config, outcome, self.watcher);
        Ok(ios_per_s)
    }

    /// Sorts configurations so that those of the currently bound driver run first: the drives are
    /// rebound at most once. The order alternates from round to round, so a drive that drifts
    /// favours neither driver.
    fn by_driver(&self, configs: &mut [impl Borrow<Config>]) {
        if self.rebinds {
            let waits = |one: &Config| Driver::of(one).is_some_and(|of| of != self.driver);
            configs.sort_by_key(|config| waits(config.borrow()));
        }
    }

    /// Runs the comparisons of findings, each in rounds of its own, until all are clear or the
    /// rounds or the time are used up.
    fn compare(&mut self) -> Result<()> {
        let mut round = self.settings.repeat;
        for pass in 0..self.settings.compared_max {
            let mut open = crate::finding::comparisons(&self.report);
            let twins = twins(&open);
            let unclear = |one: &Comparison| pass < self.settings.compared_min || !one.clear;
            open.retain(unclear);
            // What several findings compare is run once for all of them.
            let mut known = std::collections::HashSet::new();
            open.retain(|one| {
                let mut names: Vec<String> = one.configs.iter().map(Config::to_string).collect();
                names.sort();
                known.insert(names)
            });
            if open.is_empty() {
                break;
            }
            let points: usize = open.iter().map(|one| one.configs.len()).sum();
            self.total = self.done + points as u64;
            self.order.shuffle(&mut open);
            for comparison in &mut open {
                if self.clock.elapsed().as_secs_f64() > self.settings.budget_s {
                    self.report.notes.push(format!(
                        "The time of {} s was over before all comparisons were clear: with more, fewer findings are undecided.",
                        self.settings.budget_s
                    ));
                    return Ok(());
                }
                self.order.shuffle(&mut comparison.configs);
                self.by_driver(&mut comparison.configs);
                for config in &comparison.configs {
                    self.run(config, round)?;
                }
                round += 1;
            }
            if let Some(config) = twins.get(pass as usize % twins.len().max(1)) {
                let first = self.run(config, round)?;
                let then = self.run(config, round)?;
                if let (Some(first), Some(then)) = (first, then) {
                    let config = config.clone();
                    self.report.twins.push(Twins { config, ios_per_s: (first, then) });
                }
                round += 1;
            }
        }
        Ok(())
    }
}

/// Returns the points that are compared with themselves, in turns: those that most findings
/// compare.
fn twins(comparisons: &[Comparison]) -> Vec<Config> {
    let mut counts: Vec<(usize, &Config)> = Vec::new();
    for config in comparisons.iter().flat_map(|one| &one.configs) {
        match counts.iter_mut().find(|(_, known)| *known == config) {
            Some((count, _)) => *count += 1,
            None => counts.push((1, config)),
        }
    }
    // Stable: equal ones stay in the order of the findings.
    counts.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    counts.into_iter().take(3).map(|(_, config)| config.clone()).collect()
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

/// Returns all configurations, each once, in blocks that stay together. A block has the
/// configurations of an experiment that no earlier experiment has, grouped by their position on its
/// axis.
fn blocks(experiments: &[ExperimentReport]) -> Vec<Vec<Vec<Config>>> {
    let mut known = std::collections::HashSet::new();
    let mut all = Vec::new();
    for experiment in experiments {
        let mut places: Vec<(f64, Vec<Config>)> = Vec::new();
        let series = experiment.plan.groups.iter().flat_map(|group| &group.series);
        for (x, config) in series.flat_map(|series| &series.points) {
            if !known.insert(config.clone()) {
                continue;
            }
            match places.iter_mut().find(|place| place.0 == *x) {
                Some(place) => place.1.push(config.clone()),
                None => places.push((*x, vec![config.clone()])),
            }
        }
        all.push(places.into_iter().map(|place| place.1).collect());
    }
    all
}

/// Shuffles the blocks, the positions within each block, and the points of each position.
fn shuffled<'a>(blocks: &'a [Vec<Vec<Config>>], order: &mut fastrand::Rng) -> Vec<&'a Config> {
    let mut blocks: Vec<Vec<&Vec<Config>>> =
        blocks.iter().map(|block| block.iter().collect()).collect();
    order.shuffle(&mut blocks);
    let mut all = Vec::new();
    for block in &mut blocks {
        order.shuffle(block);
        for place in block {
            let mut place: Vec<&Config> = place.iter().collect();
            order.shuffle(&mut place);
            all.extend(place);
        }
    }
    all
}

/// Returns how often a configuration is run; long ones run once.
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
        // Clocks are read without a call; a hundred calls hide their cost.
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
    use crate::experiment::EXPERIMENTS;
    use crate::synthetic;

    #[test]
    fn a_drive_changes_its_driver_once_a_round_and_once_a_comparison() {
        let mut lab = synthetic::lab(2, 1, &["libaio", "io_uring", "nvme"]);
        lab.devices[0].own_driver_spec = Some("nvme:0000:01:00.0/ns1".to_owned());
        let experiments = ["s1-fig2", "user-space"].map(|name| crate::find(name).unwrap()).into();
        let options = Options { experiments, ..planned_options() };
        let settings = options.settings(lab.effort);
        let mut seen = Vec::new();
        let report = run_with(&lab, &options, settings, &Silent, |config, round| {
            seen.push((round, Driver::of(config)));
            Some(Ok(synthetic::speed(config, round, 100e3)))
        })
        .unwrap();
        let rounds = seen.iter().map(|one| one.0).max().unwrap();
        let mut both = 0;
        for round in 0..=rounds {
            let mut drivers: Vec<Driver> =
                seen.iter().filter(|one| one.0 == round).filter_map(|one| one.1).collect();
            drivers.dedup();
            assert!(drivers.len() <= 2, "{round}: {drivers:?}");
            both += usize::from(drivers.len() == 2);
        }
        assert!(both > 4, "{both}");
        // And both drivers' points are pairs.
        let (own, kernel) =
            (Config::new("nvme", 1).depth(128), Config::new("io_uring", 1).depth(128));
        assert!(report.ratio(crate::Metric::IosPerS, &own, &kernel).unwrap().bounds.is_some());
    }

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
            budget_s: None,
            seconds_per_point: Some(0.1),
            seed: 7,
        };
        let mut seen: Vec<Vec<Config>> = vec![Vec::new(); 3];
        let settings = options.settings(lab.effort);
        let report = run_with(&lab, &options, settings, &Silent, |config, round| {
            if let Some(seen) = seen.get_mut(round as usize) {
                seen.push(config.clone());
            }
            Some(Ok(Measure { round, ios_per_s: 1.0, ..Measure::default() }))
        })
        .unwrap();
        let prolonged = |config: &&Config| matches!(config.pace, Pace::Prolonged { .. });
        assert_eq!(seen[0].len(), report.points.len());
        assert_eq!(seen[1].len(), report.points.iter().filter(|p| !prolonged(&&p.config)).count());
        assert_ne!(seen[1], seen[2]);
        for point in &report.points {
            let first = point.runs.iter().filter(|run| run.round < 3).count();
            let runs = if prolonged(&&point.config) { 1 } else { 3 };
            assert_eq!(first, runs, "{}", point.config);
        }
        // What several experiments show is there once.
        for (at, point) in report.points.iter().enumerate() {
            assert!(report.points[..at].iter().all(|other| other.config != point.config));
        }
    }

    fn planned_options() -> Options {
        Options {
            experiments: EXPERIMENTS.iter().collect(),
            repeat: None,
            budget_s: None,
            seconds_per_point: Some(0.1),
            seed: 7,
        }
    }

    fn planned_study(noise: f64) -> (StudyReport, Vec<(u32, Config)>) {
        let lab = synthetic::lab(2, 1, &["posix", "libaio", "io_uring"]);
        let options = planned_options();
        let mut seen = Vec::new();
        let mut random = fastrand::Rng::with_seed(3);
        let settings = options.settings(lab.effort);
        let report = run_with(&lab, &options, settings, &Silent, |config, round| {
            seen.push((round, config.clone()));
            let wobble = (noise * (random.f64() - 0.5)).exp();
            Some(Ok(synthetic::speed(config, round, 100e3 * wobble)))
        })
        .unwrap();
        (report, seen)
    }

    #[test]
    fn compared_points_run_next_to_each_other() {
        let (report, seen) = planned_study(0.02);
        let comparisons = crate::finding::comparisons(&report);
        assert!(comparisons.len() > 15, "{}", comparisons.len());
        for comparison in comparisons {
            // Some round has all of its points, without any other between them.
            let last =
                report.points.iter().flat_map(|point| &point.runs).map(|run| run.round).max();
            let whole = (report.settings.repeat..=last.unwrap()).any(|round| {
                let at = |config: &Config| {
                    seen.iter().position(|one| one.0 == round && one.1 == *config)
                };
                let places: Option<Vec<usize>> = comparison.configs.iter().map(at).collect();
                places.is_some_and(|places| {
                    let (first, last) = (places.iter().min(), places.iter().max());
                    last.zip(first).is_some_and(|(last, first)| last - first < places.len())
                })
            });
            assert!(whole, "{:?}", comparison.configs);
        }
        // Runs that lie minutes apart are no pair, though of one round.
        let mut report = report;
        let (above, below) = (Config::new("libaio", 1), Config::new("io_uring", 1));
        assert!(report.ratio(crate::Metric::IosPerS, &above, &below).is_some());
        for point in report.points.iter_mut().filter(|point| point.config == above) {
            point.runs.iter_mut().for_each(|run| run.at_s += 37.0);
        }
        assert!(report.ratio(crate::Metric::IosPerS, &above, &below).is_none());
    }

    #[test]
    fn what_is_clear_stops_and_what_is_not_goes_on() {
        let runs = |noise| {
            let (report, _) = planned_study(noise);
            let runs: usize = report.points.iter().map(|point| point.runs.len()).sum();
            let open = report.verdicts.iter();
            (runs, open.filter(|one| one.outcome == crate::Outcome::Undecided).count())
        };
        let (quiet, loud) = (runs(0.01), runs(0.6));
        assert!(loud.0 > quiet.0, "{quiet:?} {loud:?}");
        assert!(quiet.1 < loud.1, "{quiet:?} {loud:?}");
        // Bounded by time, too: without any, nothing is compared.
        let lab = synthetic::lab(2, 1, &["libaio", "io_uring"]);
        let options = Options { budget_s: Some(0.0), ..planned_options() };
        let settings = options.settings(lab.effort);
        let report = run_with(&lab, &options, settings.clone(), &Silent, |config, round| {
            Some(Ok(synthetic::speed(config, round, 100e3)))
        })
        .unwrap();
        let rounds = report.points.iter().flat_map(|point| &point.runs).map(|run| run.round);
        assert!(rounds.max().unwrap() < settings.repeat);
        assert!(report.notes.iter().any(|note| note.contains("was over")), "{:?}", report.notes);
    }

    #[test]
    fn no_point_differs_from_itself_in_twenty_studies() {
        let lab = synthetic::lab(2, 1, &["posix", "libaio", "io_uring"]);
        let mut random = fastrand::Rng::with_seed(11);
        for seed in 0..20 {
            let experiments = vec![crate::find("s1-fig2").unwrap()];
            let options = Options { experiments, seed, ..planned_options() };
            let settings = options.settings(lab.effort);
            let report = run_with(&lab, &options, settings, &Silent, |config, round| {
                let wobble = (0.2 * (random.f64() - 0.5)).exp();
                Some(Ok(synthetic::speed(config, round, 100e3 * wobble)))
            })
            .unwrap();
            let resolution = report.resolution().unwrap();
            assert!(resolution.pairs >= 4 && !resolution.differs, "{seed}: {resolution:?}");
            assert!(resolution.of_the_mean < resolution.of_a_pair, "{resolution:?}");
        }
        // A study in which the second run is always slower is told.
        let mut report = planned_study(0.02).0;
        report.twins.iter_mut().for_each(|twins| twins.ios_per_s.1 *= 0.5);
        assert!(report.resolution().unwrap().differs);
    }

    #[test]
    fn failures_are_told_and_the_rest_goes_on() {
        let lab = synthetic::lab(2, 1, &["libaio", "io_uring"]);
        let options = Options {
            experiments: vec![&EXPERIMENTS[0]],
            repeat: Some(2),
            budget_s: None,
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
                _ => assert!(point.runs.len() >= 2 && point.errors.is_empty()),
            }
        }
        assert!(run_with(&lab, &options, settings, &Silent, |_, _| None).is_err());
    }

    #[test]
    fn a_study_of_memory_runs() {
        let lab = Lab {
            cpus: crate::lab::cpus().unwrap(),
            drivers: qpair_drivers::Drivers::new(),
            devices: vec![crate::lab::Device::of("ram:size=16MiB", true, false).unwrap()],
            interfaces: Vec::new(),
            effort: Effort::Quick,
            stores: false,
            mix: crate::config::Mix::default(),
        };
        let lab = Lab { interfaces: crate::lab::interfaces(&lab.devices), ..lab };
        let options = Options {
            experiments: vec![crate::find("s1-fig2").unwrap(), crate::find("s3-fig2b").unwrap()],
            repeat: Some(2),
            budget_s: None,
            seconds_per_point: Some(0.01),
            seed: 1,
        };
        let report = run(&lab, &options, &Silent, None).unwrap();
        for point in &report.points {
            // On a machine that is busy a thread may not get its turn in time.
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
        let options = Options {
            experiments: vec![&EXPERIMENTS[0]],
            repeat: None,
            budget_s: None,
            seconds_per_point: None,
            seed: 1,
        };
        let error = run(&lab, &options, &Silent, None).unwrap_err();
        assert!(error.to_string().contains("libaio: forbidden"), "{error}");
    }
}
