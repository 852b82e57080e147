//! What a study found, as it is stored: all a report is drawn from, and all a verdict rests on.

use qpair_block::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::experiment::Plan;
use crate::finding::Verdict;
use crate::lab::{Device, Effort, InterfaceReport};
use crate::measure::{Measure, Metric};
use crate::statistics::Interval;

/// The format's name, in every file.
const FORMAT: &str = "qpair-study";
/// Its version.
const VERSION: u32 = 1;

/// A study.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StudyReport {
    /// `qpair-study`.
    pub format: String,
    /// Of the format.
    pub version: u32,
    /// Version of the program that measured.
    pub program: String,
    /// When it began, seconds since 1970.
    pub begun_s: u64,
    /// How long it took, seconds.
    pub took_s: f64,
    /// How it was run.
    pub settings: Settings,
    /// The machine.
    pub machine: qpair_machine::Machine,
    /// Cores that could be used.
    pub cores: u32,
    /// Devices.
    pub devices: Vec<Device>,
    /// Interfaces.
    pub interfaces: Vec<InterfaceReport>,
    /// What people should know.
    pub notes: Vec<String>,
    /// The papers' findings here. Made from the rest; [`StudyReport::judge`] makes them anew.
    pub verdicts: Vec<Verdict>,
    /// Experiments.
    pub experiments: Vec<ExperimentReport>,
    /// Points, each once.
    pub points: Vec<Point>,
}

/// How a study was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// How much.
    pub effort: Effort,
    /// Runs of each point.
    pub repeat: u32,
    /// Seconds measured of each run.
    pub seconds_per_point: f64,
    /// Seconds of each run before.
    pub ramp_s: f64,
    /// Seed of the order of runs, and of the requests.
    pub seed: u64,
}

/// An experiment as it was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExperimentReport {
    /// Its name.
    pub name: String,
    /// The figure it repeats.
    pub figure: String,
    /// What it shows.
    pub shows: String,
    /// What the paper found.
    pub found: String,
    /// Its points, and what could not be done.
    #[serde(flatten)]
    pub plan: Plan,
}

/// A point: a configuration and its runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// What was run.
    #[serde(flatten)]
    pub config: Config,
    /// What the runs found.
    pub runs: Vec<Measure>,
    /// Why runs failed; each reason once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
}

impl Point {
    /// The runs' values of a figure.
    #[must_use]
    pub fn values(&self, metric: Metric) -> Vec<f64> {
        self.runs.iter().filter_map(|run| run.get(metric)).collect()
    }

    /// A figure: the runs' median, and where the truth may be.
    #[must_use]
    pub fn interval(&self, metric: Metric) -> Option<Interval> {
        Interval::of(&self.values(metric))
    }
}

impl StudyReport {
    /// Without results.
    #[must_use]
    pub fn empty(settings: Settings) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            begun_s: 0,
            took_s: 0.0,
            settings,
            machine: qpair_machine::Machine::default(),
            cores: 0,
            devices: Vec::new(),
            interfaces: Vec::new(),
            notes: Vec::new(),
            verdicts: Vec::new(),
            experiments: Vec::new(),
            points: Vec::new(),
        }
    }

    /// Reads a stored study, and judges it anew.
    ///
    /// # Errors
    /// `Invalid` if it is none, or of a version that this program does not know.
    pub fn from_json(text: &str) -> Result<Self> {
        let invalid = |why: String| {
            Error::new(ErrorKind::Invalid, format!("not a stored study: {why}"))
                .hint("qpair study writes one beside its report")
        };
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|error| invalid(error.to_string()))?;
        if value.get("format").and_then(|format| format.as_str()) != Some(FORMAT) {
            return Err(invalid(format!("no \"format\": \"{FORMAT}\" in it")));
        }
        let version = value.get("version").and_then(serde_json::Value::as_u64).unwrap_or(0);
        if version != u64::from(VERSION) {
            return Err(invalid(format!("version {version}; this program reads {VERSION}")));
        }
        let mut report: Self =
            serde_json::from_value(value).map_err(|error| invalid(error.to_string()))?;
        report.judge();
        Ok(report)
    }

    /// As JSON.
    ///
    /// # Errors
    /// `Invalid` if a number in it is none; that would be a bug.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|error| Error::new(ErrorKind::Invalid, "writing JSON").caused_by(error))
    }

    /// Makes the verdicts from the points.
    pub fn judge(&mut self) {
        self.verdicts = crate::finding::judge(self);
    }

    /// The point of a configuration.
    #[must_use]
    pub fn point(&self, config: &Config) -> Option<&Point> {
        self.points.iter().find(|point| point.config == *config)
    }

    /// An experiment.
    #[must_use]
    pub fn experiment(&self, name: &str) -> Option<&ExperimentReport> {
        self.experiments.iter().find(|experiment| experiment.name == name)
    }

    /// Whether an interface was there to be used.
    #[must_use]
    pub fn has(&self, interface: &str) -> bool {
        self.interfaces.iter().any(|known| known.name == interface && known.unavailable.is_none())
    }

    /// How many times `above` is `below` in a figure, from the runs of the same rounds.
    #[must_use]
    pub fn ratio(&self, metric: Metric, above: &Config, below: &Config) -> Option<Interval> {
        let (above, below) = (self.point(above)?, self.point(below)?);
        let pairs: Vec<(f64, f64)> = above
            .runs
            .iter()
            .filter_map(|run| {
                let other = below.runs.iter().find(|other| other.round == run.round)?;
                let least = metric.least();
                Some((run.get(metric)?.max(least), other.get(metric)?.max(least)))
            })
            .collect();
        Interval::of_ratios(&pairs)
    }
}
