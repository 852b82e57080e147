//! The papers' findings, and what each is worth here.
//!
//! Always holds:
//! - Every finding of the papers has a row, with a test or with what a test would need.
//! - A test is there in words and in code, with its threshold; a verdict has the intervals it rests on.
//! - What cannot be tested says why: the interface that does not open, the devices that were not given, the runs that failed.
//!   It is never taken for granted and never counted as failed.

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

use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::lab::INTERFACES;
use crate::measure::{Metric, digits};
use crate::report::StudyReport;
use crate::statistics::{Confidence, Interval, Outcome, Threshold};

pub use catalogue::{Need, Row, catalogue};
pub(crate) use s4::cliff;

/// A finding of a paper.
#[derive(Clone, Copy, Debug)]
pub struct Finding {
    /// Its name here.
    pub name: &'static str,
    /// Paper and figure.
    pub source: &'static str,
    /// The experiment that shows it.
    pub experiment: &'static str,
    /// What the paper claims.
    pub claim: &'static str,
    /// What is tested here, with the threshold.
    pub test: &'static str,
    judge: fn(&View<'_>) -> Judged,
}

/// What a finding is worth here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The finding's name.
    pub finding: String,
    /// Paper and figure.
    pub source: String,
    /// The experiment that shows it; empty: none does.
    pub experiment: String,
    /// What the paper claims.
    pub claim: String,
    /// What was tested.
    pub test: String,
    /// What came of it.
    pub outcome: Outcome,
    /// Why it could not be tested, or what else is to be known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What it rests on; all parts must hold.
    pub evidence: Vec<Evidence>,
}

/// One number that a verdict rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// What it is.
    pub what: String,
    /// Median; of ratios, the geometric mean.
    pub mid: f64,
    /// Lower end of the 95 % interval; none with one run.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// What the finding wants; `None`: for information.
    pub wanted: Option<Threshold>,
    /// Whether it is so.
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

/// Evidence, or why there can be none.
type Judged = Result<Vec<Evidence>, String>;

/// Verdicts on all findings, in the order of the papers.
#[must_use]
pub fn judge(report: &StudyReport) -> Vec<Verdict> {
    let of = |row: &Row| {
        row.tested().map_or_else(|| untested(row), |one| verdict(one, &View::of(report)))
    };
    catalogue().map(of).collect()
}

/// What a finding compares.
#[derive(Debug)]
pub(crate) struct Comparison {
    /// Its points here, each once.
    pub(crate) configs: Vec<Config>,
    /// Whether more runs would hardly change the verdict.
    pub(crate) clear: bool,
}

/// What the findings that can be tested here compare, as far as the runs up to now tell.
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

/// Of a finding that no study tests.
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

/// A study as findings look at it.
struct View<'a> {
    report: &'a StudyReport,
    /// How sure a verdict must be.
    confidence: Confidence,
    /// The points that the verdict rests on.
    asked: RefCell<Vec<Config>>,
}

impl<'a> View<'a> {
    fn of(report: &'a StudyReport) -> Self {
        Self { report, confidence: Confidence::Shown, asked: RefCell::default() }
    }
}

impl View<'_> {
    /// Two cores, or the one there is.
    fn two_cores(&self) -> Result<u32, String> {
        match self.report.cores {
            0 | 1 => Err("one core only may be used".to_owned()),
            _ => Ok(2),
        }
    }

    fn has(&self, interface: &str) -> bool {
        self.report.has(interface)
    }

    /// Fails unless the interface was there to be used.
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

    /// The interface of experiments that are about something else.
    fn main_interface(&self, experiment: &str) -> Result<&str, String> {
        let ran = self.report.experiment(experiment).ok_or_else(|| not_run(experiment))?;
        match ran.plan.configs().next() {
            Some(config) => Ok(&config.interface),
            None => Err(self.skipped(experiment)),
        }
    }

    /// Why an experiment has no points.
    fn skipped(&self, experiment: &str) -> String {
        match self.report.experiment(experiment) {
            None => not_run(experiment),
            Some(ran) if ran.plan.skipped.is_empty() => "no interface could be used".to_owned(),
            Some(ran) => ran.plan.skipped.join("; "),
        }
    }

    /// More than one device, on disks of their own.
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

    /// Why a point has no runs.
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

    /// A ratio of points that were chosen by what the first rounds found: those rounds don't count.
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

    /// A ratio of speeds; where the device bounds both points, of I/Os for a second of processor time.
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

    /// Of configurations that were measured, the one with the most I/Os a second in the first rounds.
    fn fastest<'c>(&self, configs: impl IntoIterator<Item = &'c Config>) -> Option<&'c Config> {
        configs
            .into_iter()
            .filter_map(|config| Some((config, self.report.first_speed(config)?)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(config, _)| config)
    }

    /// The usable interfaces of the kernel.
    fn kernel_interfaces(&self) -> impl Iterator<Item = &'static str> {
        INTERFACES.iter().map(|candidate| candidate.name).filter(|name| self.has(name))
    }
}

/// Distinct configurations of one interface in an experiment.
fn configs<'a>(view: &View<'a>, experiment: &str, interface: &str) -> Vec<&'a Config> {
    let mut all = all_configs(view, experiment);
    all.retain(|config| config.interface == interface);
    all
}

/// Whether an interface is the kernel's, with whatever switches.
fn is_kernel_s(interface: &str) -> bool {
    let name = interface.split(':').next().unwrap_or_default();
    INTERFACES.iter().any(|candidate| candidate.name == name)
}

/// Those of all interfaces.
fn all_configs<'a>(view: &View<'a>, experiment: &str) -> Vec<&'a Config> {
    view.report.experiment(experiment).map(|ran| ran.plan.configs().collect()).unwrap_or_default()
}

/// How the reason of a point that was not planned begins.
const NOT_MEASURED: &str = "not measured";

fn not_run(experiment: &str) -> String {
    format!("experiment {experiment} was not run")
}
