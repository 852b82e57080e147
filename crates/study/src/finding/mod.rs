//! The papers' findings, each with a verdict for this machine.
//!
//! Always holds:
//! - Every finding of the papers has a row, with a test or with the requirements of a test.
//! - A test is stated in words and in code, with its threshold. A verdict has the intervals it
//!   rests on.
//! - A finding that cannot be tested says why: the interface that does not open, the devices that
//!   were not given, the runs that failed. It is never assumed to hold and never counted as failed.

mod catalogue;
#[cfg(test)]
mod defects;
mod engine;
mod s1;
mod s2;
mod s3;
mod s4;
mod s5;
#[cfg(test)]
mod tests;

use std::cell::RefCell;

use qpair_plots::{Confidence, Interval};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::lab::INTERFACES;
use crate::measure::{Metric, digits};
use crate::outcome::{Outcome, Threshold};
use crate::report::StudyReport;

pub use catalogue::{Need, Row, catalogue};
pub(crate) use s4::cliff;

/// A finding of a paper.
#[derive(Clone, Copy, Debug)]
pub struct Finding {
    /// The name of the finding in this project.
    pub name: &'static str,
    /// The paper and figure.
    pub source: &'static str,
    /// The experiment that shows it.
    pub experiment: &'static str,
    /// The claim of the paper.
    pub claim: &'static str,
    /// The test made here, with the threshold.
    pub test: &'static str,
    judge: fn(&View<'_>) -> Judged,
}

/// The verdict of a study on a finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The name of the finding.
    pub finding: String,
    /// The paper and figure.
    pub source: String,
    /// The experiment that shows the finding; empty if there is none.
    pub experiment: String,
    /// The claim of the paper.
    pub claim: String,
    /// The test that was made.
    pub test: String,
    /// The outcome of the test.
    pub outcome: Outcome,
    /// The reason why the finding could not be tested, or another note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The numbers that the verdict rests on. All of them must meet their thresholds.
    pub evidence: Vec<Evidence>,
}

/// One number that a verdict rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// A description of the number.
    pub what: String,
    /// The median; for ratios, the geometric mean.
    pub mid: f64,
    /// The lower end of the 95 % interval; `None` with one run.
    pub low: Option<f64>,
    /// The upper end of the 95 % interval; `None` with one run.
    pub high: Option<f64>,
    /// The threshold of the finding; `None`: the number is for information only.
    pub wanted: Option<Threshold>,
    /// The outcome for this number.
    pub outcome: Outcome,
}

impl Evidence {
    fn new(what: impl Into<String>, interval: Interval, wanted: Threshold) -> Self {
        Self {
            what: what.into(),
            wanted: Some(wanted),
            outcome: wanted.judge(&interval),
            ..Self::told("", interval)
        }
    }

    fn told(what: impl Into<String>, interval: Interval) -> Self {
        Self {
            what: what.into(),
            mid: digits(interval.mid),
            low: interval.bounds.map(|bounds| digits(bounds.0)),
            high: interval.bounds.map(|bounds| digits(bounds.1)),
            wanted: None,
            outcome: Outcome::Holds,
        }
    }
}

/// The evidence for or against a finding, or the reason why the study could not test it.
type Judged = Result<Vec<Evidence>, String>;

/// Returns the verdicts on all findings, in the order of the papers.
#[must_use]
pub fn judge(report: &StudyReport) -> Vec<Verdict> {
    let of = |row: &Row| {
        row.tested().map_or_else(|| untested(row), |one| verdict(one, &View::of(report)))
    };
    catalogue().map(of).collect()
}

/// The points that a finding compares.
#[derive(Debug)]
pub(crate) struct Comparison {
    /// The points of the finding that can be run here, each once.
    pub(crate) configs: Vec<Config>,
    /// Whether more runs are unlikely to change the verdict.
    pub(crate) clear: bool,
}

/// Returns the comparisons of all findings that can be tested here, judged by the runs so far.
pub(crate) fn comparisons(report: &StudyReport) -> Vec<Comparison> {
    catalogue()
        .filter_map(Row::tested)
        .filter_map(|finding| {
            let view = View { confidence: Confidence::Clear, ..View::of(report) };
            let outcome = verdict(finding, &view).outcome;
            let (configs, clear) = (view.asked.into_inner(), outcome != Outcome::Undecided);
            (outcome != Outcome::NotTestable && !configs.is_empty())
                .then_some(Comparison { configs, clear })
        })
        .collect()
}

/// Returns the verdict on a finding that no study tests.
fn untested(row: &Row) -> Verdict {
    Verdict {
        finding: row.name().to_owned(),
        source: row.source().to_owned(),
        experiment: String::new(),
        claim: row.claim().to_owned(),
        test: String::new(),
        outcome: Outcome::NotTestable,
        why: row.because(),
        evidence: Vec::new(),
    }
}

fn verdict(finding: &Finding, view: &View<'_>) -> Verdict {
    let (outcome, why, evidence) = match (finding.judge)(view) {
        Err(why) => {
            let ran = view.report.experiment(finding.experiment).is_some();
            let why = if why.starts_with(NOT_MEASURED) && !ran {
                not_run(finding.experiment)
            } else {
                why
            };
            (Outcome::NotTestable, Some(why), Vec::new())
        }
        Ok(evidence) => {
            let outcome = Outcome::all(
                evidence.iter().filter(|part| part.wanted.is_some()).map(|part| part.outcome),
            );
            let why = (outcome == Outcome::Undecided).then(|| undecided(&evidence));
            (outcome, why, evidence)
        }
    };
    Verdict {
        finding: finding.name.to_owned(),
        source: finding.source.to_owned(),
        experiment: finding.experiment.to_owned(),
        claim: finding.claim.to_owned(),
        test: finding.test.to_owned(),
        outcome,
        why,
        evidence,
    }
}

fn undecided(evidence: &[Evidence]) -> String {
    if evidence.iter().any(|part| part.low.is_none()) {
        return "too few runs, or too short ones: no interval".to_owned();
    }
    "the interval includes the threshold".to_owned()
}

/// A study, as the tests of findings read it.
struct View<'a> {
    report: &'a StudyReport,
    /// The confidence that a verdict needs.
    confidence: Confidence,
    /// The points that the verdict rests on, collected while it is made.
    asked: RefCell<Vec<Config>>,
}

impl<'a> View<'a> {
    fn of(report: &'a StudyReport) -> Self {
        Self { report, confidence: Confidence::Shown, asked: RefCell::default() }
    }
}

impl View<'_> {
    /// Returns 2; fails on a machine with one core.
    fn two_cores(&self) -> Result<u32, String> {
        match self.report.cores {
            0 | 1 => Err("one core only may be used".to_owned()),
            _ => Ok(2),
        }
    }

    fn has(&self, interface: &str) -> bool {
        self.report.has(interface)
    }

    /// Fails unless the interface could be used in the study.
    fn need(&self, interface: &str) -> Result<(), String> {
        let known = self.report.interfaces.iter().find(|known| known.name == interface);
        match known {
            Some(known) => match &known.unavailable {
                None => Ok(()),
                Some(reason) => Err(format!("{interface}: {reason}")),
            },
            None => Err(format!("{interface} was not part of this study")),
        }
    }

    /// Returns the interface of experiments that do not compare interfaces.
    fn main_interface(&self, experiment: &str) -> Result<&str, String> {
        let ran = self.report.experiment(experiment).ok_or_else(|| not_run(experiment))?;
        match ran.plan.configs().next() {
            Some(config) => Ok(&config.interface),
            None => Err(self.skipped(experiment)),
        }
    }

    /// Returns the reason why an experiment has no points.
    fn skipped(&self, experiment: &str) -> String {
        match self.report.experiment(experiment) {
            None => not_run(experiment),
            Some(ran) if ran.plan.skipped.is_empty() => "no interface could be used".to_owned(),
            Some(ran) => ran.plan.skipped.join("; "),
        }
    }

    /// Returns the number of devices, or fails unless there are several on different disks.
    fn need_drives(&self, experiment: &str) -> Result<u32, String> {
        let devices = &self.report.devices;
        if devices.len() < 2 {
            return Err("one device only was given".to_owned());
        }
        if crate::lab::disks(devices) < devices.len() {
            return Err("the devices are files or partitions on one disk, not drives".to_owned());
        }
        self.report.experiment(experiment).ok_or_else(|| not_run(experiment))?;
        Ok(devices.len() as u32)
    }

    /// Returns the reason why a point has no runs.
    fn missing(&self, config: &Config) -> String {
        if let Err(why) = self.need(config.interface.split(':').next().unwrap_or_default()) {
            return why;
        }
        match self.report.point(config) {
            Some(point) if !point.errors.is_empty() => {
                format!("{config}: {}", point.errors.join("; "))
            }
            Some(_) => format!("{config}: no runs"),
            None => format!("{NOT_MEASURED}: {config}"),
        }
    }

    fn ratio(
        &self,
        what: impl Into<String>,
        metric: Metric,
        above: &Config,
        below: &Config,
        wanted: Threshold,
    ) -> Result<Evidence, String> {
        let interval = self.ratio_of(metric, above, below)?;
        Ok(Evidence::new(what, interval, wanted))
    }

    /// Compares points that were chosen by the results of the first rounds. Those rounds do not
    /// count, since the choice favours them.
    fn chosen_ratio(
        &self,
        what: impl Into<String>,
        metric: Metric,
        above: &Config,
        below: &Config,
        wanted: Threshold,
    ) -> Result<Evidence, String> {
        let interval = self.ratio_from(metric, above, below, self.report.settings.repeat)?;
        Ok(Evidence::new(what, interval, wanted))
    }

    /// Compares speeds. If the device limits both points, I/Os per second of processor time are
    /// compared.
    fn speed(
        &self,
        what: &str,
        above: &Config,
        below: &Config,
        wanted: Threshold,
    ) -> Result<Evidence, String> {
        if self.both_bound(above, below) {
            let what =
                format!("I/Os for a second of processor time, {what} (the device bounds both)");
            return self.ratio(what, Metric::IosPerCpuS, above, below, wanted);
        }
        self.ratio(format!("IOPS, {what}"), Metric::IosPerS, above, below, wanted)
    }

    fn both_bound(&self, above: &Config, below: &Config) -> bool {
        self.report.device_bound(above) && self.report.device_bound(below)
    }

    fn ratio_of(&self, metric: Metric, above: &Config, below: &Config) -> Result<Interval, String> {
        self.ratio_from(metric, above, below, 0)
    }

    fn ratio_from(
        &self,
        metric: Metric,
        above: &Config,
        below: &Config,
        from_round: u32,
    ) -> Result<Interval, String> {
        for config in [above, below] {
            if self.report.point(config).is_none_or(|point| point.values(metric).is_empty()) {
                return Err(self.missing(config));
            }
            self.ask(config);
        }
        let pairs = self.report.pairs(metric, above, below, from_round);
        // Not yet compared, or never: no ratio is known, and none is ruled out.
        let unknown = Interval { mid: 1.0, bounds: None };
        Ok(Interval::of_ratios_at(&pairs, self.confidence).unwrap_or(unknown))
    }

    fn ask(&self, config: &Config) {
        let mut asked = self.asked.borrow_mut();
        if !asked.contains(config) {
            asked.push(config.clone());
        }
    }

    fn interval(&self, metric: Metric, config: &Config) -> Result<Interval, String> {
        let values = self.report.point(config).map(|point| point.values(metric));
        let interval = Interval::of_at(&values.unwrap_or_default(), self.confidence)
            .ok_or_else(|| self.missing(config))?;
        self.ask(config);
        Ok(interval)
    }

    fn value(
        &self,
        what: impl Into<String>,
        metric: Metric,
        config: &Config,
        wanted: Threshold,
    ) -> Result<Evidence, String> {
        Ok(Evidence::new(what, self.interval(metric, config)?, wanted))
    }

    fn told(
        &self,
        what: impl Into<String>,
        metric: Metric,
        config: &Config,
    ) -> Result<Evidence, String> {
        Ok(Evidence::told(what, self.interval(metric, config)?))
    }

    /// Returns the measured configuration with the most I/Os a second in the first rounds.
    fn fastest<'c>(&self, configs: impl IntoIterator<Item = &'c Config>) -> Option<&'c Config> {
        configs
            .into_iter()
            .filter_map(|config| Some((config, self.report.first_speed(config)?)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(config, _)| config)
    }

    /// Returns the kernel interfaces that can be used.
    fn kernel_interfaces(&self) -> impl Iterator<Item = &'static str> {
        INTERFACES.iter().map(|candidate| candidate.name).filter(|name| self.has(name))
    }
}

/// Returns the distinct configurations of one interface in an experiment.
fn configs<'a>(view: &View<'a>, experiment: &str, interface: &str) -> Vec<&'a Config> {
    let mut all = all_configs(view, experiment);
    all.retain(|config| config.interface == interface);
    all
}

/// Whether an interface is a kernel interface, with any options.
fn is_kernel_s(interface: &str) -> bool {
    let name = interface.split(':').next().unwrap_or_default();
    INTERFACES.iter().any(|candidate| candidate.name == name)
}

/// Returns the distinct configurations of all interfaces in an experiment.
fn all_configs<'a>(view: &View<'a>, experiment: &str) -> Vec<&'a Config> {
    view.report.experiment(experiment).map(|ran| ran.plan.configs().collect()).unwrap_or_default()
}

/// The beginning of the reason for a point that was not planned.
const NOT_MEASURED: &str = "not measured";

fn not_run(experiment: &str) -> String {
    format!("experiment {experiment} was not run")
}
