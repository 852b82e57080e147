//! The execution of a study. First every configuration runs once a round, in an order that a seed
//! determines. Then the points that findings compare run until their verdicts are clear.
//!
//! Invariants:
//! - A round has every point once, so a drift of the machine affects all points alike.
//! - Points that a finding compares run close together, in rounds of their own. The number of these
//!   rounds depends on the observed spread, within bounds. Points of a round are compared if they
//!   are seconds apart; see [`StudyReport::pairs`].
//! - Between comparisons a point is compared with itself.
//! - A point that fails does not end the study; its error is in the report.

use std::borrow::Borrow;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use qpair_block::{Error, ErrorKind, Result};
use qpair_workload::Watcher;

use crate::config::{Config, Pace};
use crate::experiment::Experiment;
use crate::judge::{Comparison, comparisons};
use crate::lab::{BARE_CALL, Lab, SOFT_DRIVE, USER_SPACE};
use crate::measure::{Measure, digits};
use crate::options::Options;
use crate::report::{ExperimentReport, Point, Settings, StudyReport, Twins};

#[cfg(test)]
mod tests;

/// The driver that the devices are bound to while a point runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    Kernel,
    Own,
}

impl Driver {
    /// Returns the driver that a point needs; `None` if it uses none of the devices.
    pub(crate) fn of(config: &Config) -> Option<Self> {
        match config.interface.as_str() {
            BARE_CALL => None,
            _ if config.store.is_some() => None,
            soft if soft.starts_with(SOFT_DRIVE) => None,
            USER_SPACE => Some(Self::Own),
            _ => Some(Self::Kernel),
        }
    }
}

/// Runs a study with any function that measures a point; the function returns `None` if the study
/// was stopped.
pub(crate) fn run_with(
    lab: &Lab,
    options: &Options,
    watcher: &dyn Watcher,
    mut measure: impl FnMut(&Config, u32) -> Option<std::result::Result<Measure, String>>,
) -> Result<StudyReport> {
    let (begun, clock) = (SystemTime::now(), Instant::now());
    let settings = options.settings(lab.effort);
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
            let mut open = comparisons(&self.report);
            let twins = twins(&open);
            let unclear = |one: &Comparison| pass < self.settings.compared_min || !one.clear;
            open.retain(unclear);
            // Points that several findings compare are run once for all of them.
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
    // The sort is stable: points with equal counts stay in the order of the findings.
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

/// Returns how often a configuration is run. Prolonged configurations run once.
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
