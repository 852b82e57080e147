//! The execution of a study. First every configuration runs once a round, in an order that a seed
//! determines. Then the points that findings compare run in blocks, which are spread over the time
//! of the study.
//!
//! Invariants:
//! - A round has every point once, so a drift of the machine affects all points alike.
//! - Points that a finding compares run close together, in rounds of their own. Points of a round
//!   are compared if they are seconds apart; see [`StudyReport::pairs`].
//! - Every comparison runs in several blocks, which begin at equal distances in time. What is not
//!   clear is repeated within a block while there is time.
//! - Between comparisons a point is compared with itself.
//! - A point that fails does not end the study; its error is in the report.

use std::borrow::Borrow;
use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use qpair_block::{Error, ErrorKind, Result};
use qpair_workload::Watcher;

use crate::config::{Config, Pace};
use crate::experiment::Experiment;
use crate::judge::{Comparison, comparisons};
use crate::lab::{
    BARE_CALL, DURABLE, EMPTY_POLL, FLOOR, Lab, SOFT_FLOOR, TASK_SWITCH, THREAD_SWITCH, USER_SCSI,
    USER_SPACE, is_kernel_s, is_soft,
};
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
            USER_SPACE | USER_SCSI | FLOOR => Some(Self::Own),
            BARE_CALL | EMPTY_POLL | THREAD_SWITCH | TASK_SWITCH | SOFT_FLOOR => None,
            name if is_soft(name) || name.starts_with(DURABLE) => None,
            // Stores of other engines are in a folder.
            name if config.store.is_some() && !is_kernel_s(name) => None,
            _ => Some(Self::Kernel),
        }
    }
}

/// The time of a study.
pub(crate) struct Clock {
    begun: Instant,
    /// The time in seconds that tests make up.
    made_up_s: Option<Cell<f64>>,
}

impl Clock {
    pub(crate) fn real() -> Self {
        Self { begun: Instant::now(), made_up_s: None }
    }

    /// Returns a clock for tests: each run takes a millisecond, and waiting takes no time.
    #[cfg(test)]
    pub(crate) fn made_up() -> Self {
        Self { made_up_s: Some(Cell::new(0.0)), ..Self::real() }
    }

    fn now_s(&self) -> f64 {
        self.made_up_s.as_ref().map_or_else(|| self.begun.elapsed().as_secs_f64(), Cell::get)
    }

    fn ran(&self) {
        self.made_up_s.iter().for_each(|now| now.set(now.get() + 1e-3));
    }

    fn sleep(&self, seconds: f64) {
        match &self.made_up_s {
            Some(now) => now.set(now.get() + seconds),
            None => std::thread::sleep(Duration::from_secs_f64(seconds)),
        }
    }
}

/// Runs a study with any function that measures a point; the function returns `None` if the study
/// was stopped.
pub(crate) fn run_with(
    lab: &Lab,
    options: &Options,
    watcher: &dyn Watcher,
    clock: Clock,
    mut measure: impl FnMut(&Config, u32) -> Option<std::result::Result<Measure, String>>,
) -> Result<StudyReport> {
    let begun = SystemTime::now();
    let settings = options.settings(lab.effort);
    let mut report = StudyReport::empty(settings.clone());
    report.begun_s = begun.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    report.cores = lab.cores();
    report.devices.clone_from(&lab.devices);
    report.interfaces.clone_from(&lab.interfaces);
    report.means.clone_from(&lab.means);
    report.experiments = options.experiments.iter().map(|one| planned(one, lab)).collect();
    let blocks = blocks(&report.experiments);
    if blocks.iter().flatten().next().is_none() {
        return Err(nothing_to_measure(&report.experiments));
    }
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
                session.run(config, round, None)?;
            }
        }
    }
    session.compare()?;
    let mut report = session.report;
    watcher.at(session.done, session.done, "");
    report.took_s = digits(session.clock.now_s());
    report.judge();
    Ok(report)
}

/// The state of a running study.
struct Session<'a, F> {
    report: StudyReport,
    watcher: &'a dyn Watcher,
    measure: &'a mut F,
    clock: Clock,
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
    /// Runs a point once and returns its requests a second, unless it failed. `block` is that of a
    /// comparison.
    fn run(&mut self, config: &Config, round: u32, block: Option<u32>) -> Result<Option<f64>> {
        self.watcher.at(self.done, self.total.max(self.done), &config.to_string());
        let at_s = digits(self.clock.now_s());
        let outcome = if self.watcher.stop() { None } else { (self.measure)(config, round) };
        let outcome = outcome.ok_or_else(interrupted)?;
        self.done += 1;
        self.clock.ran();
        self.driver = Driver::of(config).unwrap_or(self.driver);
        let outcome = outcome.map(|found| Measure { at_s, block, ..found });
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

    /// Runs the comparisons of findings, each in rounds of its own, in blocks, until all are clear
    /// or the blocks or the time are used up.
    fn compare(&mut self) -> Result<()> {
        let (begun_s, count) = (self.clock.now_s(), self.settings.blocks);
        let rounds_of_block = self.settings.compared_max.div_ceil(count.max(1));
        let left_s = (self.settings.budget_s - begun_s).max(0.0);
        let block_s = match rounds_of_block {
            // A given number of rounds waits for nothing.
            0 | 1 => 0.0,
            _ => (left_s / f64::from(count)).min(BLOCK_S_MAX),
        };
        let mut round = self.settings.repeat;
        for block in 0..count {
            let is_wanted = block < self.settings.compared_min;
            let open = comparisons(&self.report);
            if open.is_empty() || !is_wanted && open.iter().all(|one| one.clear) {
                return Ok(());
            }
            self.wait_until(begun_s + f64::from(block) * block_s)?;
            let end_s = begun_s + f64::from(block + 1) * block_s;
            for pass in 0..rounds_of_block {
                if pass > 0 && self.clock.now_s() >= end_s {
                    break;
                }
                let mut open = comparisons(&self.report);
                let twins = twins(&open);
                open.retain(|one| !one.clear || (is_wanted && pass == 0));
                if open.is_empty() {
                    break;
                }
                let block = self.settings.repeat + block;
                if !self.pass(open, &mut round, block)? {
                    return Ok(());
                }
                if let Some(config) = twins.get(round as usize % twins.len().max(1)) {
                    let first = self.run(config, round, Some(block))?;
                    let then = self.run(config, round, Some(block))?;
                    if let (Some(first), Some(then)) = (first, then) {
                        let config = config.clone();
                        self.report.twins.push(Twins { config, ios_per_s: (first, then) });
                    }
                    round += 1;
                }
            }
        }
        Ok(())
    }

    /// Runs comparisons once, each in a round of its own. Returns whether there was time for all.
    fn pass(&mut self, open: Vec<Comparison>, round: &mut u32, block: u32) -> Result<bool> {
        let mut open = joined(open);
        let points: usize = open.iter().map(|one| one.configs.len()).sum();
        self.total = self.done + points as u64;
        self.order.shuffle(&mut open);
        for comparison in &mut open {
            if self.clock.now_s() > self.settings.budget_s {
                self.report.notes.push(format!(
                    "The time of {} s was over before all comparisons were clear: with more, fewer findings are undecided.",
                    self.settings.budget_s
                ));
                return Ok(false);
            }
            self.order.shuffle(&mut comparison.configs);
            self.by_driver(&mut comparison.configs);
            for config in &comparison.configs {
                self.run(config, *round, Some(block))?;
            }
            *round += 1;
        }
        Ok(true)
    }

    /// Waits for the beginning of a block.
    fn wait_until(&self, at_s: f64) -> Result<()> {
        while self.clock.now_s() < at_s {
            if self.watcher.stop() {
                return Err(interrupted());
            }
            let left_s = at_s - self.clock.now_s();
            let words = format!("the next block of runs begins in {left_s:.0} s");
            self.watcher.at(self.done, self.total.max(self.done), &words);
            self.clock.sleep(left_s.clamp(0.0, LOOK_S));
        }
        Ok(())
    }
}

/// The greatest distance of the beginnings of two blocks, in seconds.
const BLOCK_S_MAX: f64 = 60.0;

/// The interval at which a study that waits looks for a request to stop, in seconds.
const LOOK_S: f64 = 0.2;

fn interrupted() -> Error {
    Error::new(ErrorKind::Io, "the study was interrupted")
}

/// Returns the error of a study whose experiments have no point here, with the reasons.
fn nothing_to_measure(experiments: &[ExperimentReport]) -> Error {
    let reason = |one: &ExperimentReport| format!("{}: {}", one.name, one.plan.skipped.join("; "));
    let reasons: Vec<String> = experiments.iter().map(reason).collect();
    let what = format!("nothing can be measured here; {}", reasons.join("; "));
    Error::new(ErrorKind::Unsupported, what)
        .hint("qpair study --list shows the needs of each experiment")
}

/// Joins comparisons that share points: these are run once for all of them. The points of a round
/// stay within seconds of each other.
fn joined(open: Vec<Comparison>) -> Vec<Comparison> {
    let weight = |configs: &[Config]| -> u32 {
        configs.iter().map(|config| if config.store.is_some() { STORE_WEIGHT } else { 1 }).sum()
    };
    let mut all: Vec<Comparison> = Vec::new();
    for one in open {
        let others = |known: &Comparison| -> Vec<Config> {
            one.configs.iter().filter(|config| !known.configs.contains(config)).cloned().collect()
        };
        let fits = |known: &&mut Comparison| {
            let more = others(known);
            more.len() < one.configs.len()
                && weight(&known.configs) + weight(&more) <= ROUND_WEIGHT_MAX
        };
        match all.iter_mut().find(fits) {
            Some(known) => known.configs.extend(others(known)),
            None => all.push(one),
        }
    }
    all
}

/// The greatest number of points of a round of a comparison.
const ROUND_WEIGHT_MAX: u32 = 12;

/// The number of other points in whose time a point of a store runs.
const STORE_WEIGHT: u32 = 4;

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
