//! What a study found, as it is stored: all a report is drawn from, and all a verdict rests on.

use qpair_block::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::experiment::Plan;
use crate::finding::Verdict;
use crate::lab::{Device, Effort, InterfaceReport};
use crate::measure::{Measure, Metric, digits};
use crate::statistics::{Confidence, Interval, median};

/// The format's name, in every file.
const FORMAT: &str = "qpair-study";
/// Its version. Those of version 1 submitted up to 32 requests a call and compared points of a round however far apart.
const VERSION: u32 = 2;

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
    /// Points that were run twice in a row, to be compared with themselves.
    #[serde(default)]
    pub twins: Vec<Twins>,
}

/// Two runs of one point, one after the other: what they differ by is no difference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Twins {
    /// What was run.
    #[serde(flatten)]
    pub config: Config,
    /// Requests a second, first and then.
    pub ios_per_s: (f64, f64),
}

/// What a study can tell apart, from points that were compared with themselves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Resolution {
    /// Pairs of runs.
    pub pairs: usize,
    /// Two runs of one point differ by less, 95 times of 100: 0.04 for 4 %.
    pub of_a_pair: f64,
    /// The same of the mean of all pairs.
    pub of_the_mean: f64,
    /// A point differed from itself beyond chance: something is wrong with the study.
    pub differs: bool,
}

/// How a study was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// How much.
    pub effort: Effort,
    /// Rounds of all points.
    pub repeat: u32,
    /// Rounds of what is compared, at least.
    #[serde(default)]
    pub compared_min: u32,
    /// The same, at most.
    #[serde(default)]
    pub compared_max: u32,
    /// No comparison begins after so many seconds.
    #[serde(default)]
    pub budget_s: f64,
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

impl ExperimentReport {
    /// Whether its axis is a load, so that what more of it costs is a plot of its own.
    pub(crate) fn latency_against_throughput(&self) -> bool {
        let shows = |metric| self.plan.shown.iter().any(|shown| shown.metric == metric);
        self.plan.x_label == "queue depth" && shows(Metric::IosPerS) && shows(Metric::P50Us)
    }
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

impl Resolution {
    /// In a sentence.
    #[must_use]
    pub fn words(&self) -> String {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let alarm = if self.differs {
            "; the second run differed from the first beyond chance, so something disturbs this study"
        } else {
            ""
        };
        format!(
            "resolution: two runs of one point differ by up to {}, the means of {} by {}{alarm}",
            percent(self.of_a_pair),
            self.pairs,
            percent(self.of_the_mean)
        )
    }
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
            twins: Vec::new(),
        }
    }

    /// Reads a stored study, and judges it anew; one of an older version keeps its verdicts, since its runs answer other questions.
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
        if !(1..=u64::from(VERSION)).contains(&version) {
            return Err(invalid(format!("version {version}; this program reads up to {VERSION}")));
        }
        let mut report: Self =
            serde_json::from_value(value).map_err(|error| invalid(error.to_string()))?;
        if report.version == VERSION {
            report.judge();
        }
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

    /// How many times `above` is `below` in a figure, from runs that lie seconds apart.
    #[must_use]
    pub fn ratio(&self, metric: Metric, above: &Config, below: &Config) -> Option<Interval> {
        Interval::of_ratios(&self.pairs(metric, above, below, 0))
    }

    /// Values of two points from runs of the same round that lie seconds apart, from a round on.
    pub(crate) fn pairs(
        &self,
        metric: Metric,
        above: &Config,
        below: &Config,
        from_round: u32,
    ) -> Vec<(f64, f64)> {
        let (Some(above), Some(below)) = (self.point(above), self.point(below)) else {
            return Vec::new();
        };
        let least = metric.least();
        let pair = |run: &Measure| {
            let near = |other: &&Measure| {
                other.round == run.round && (other.at_s - run.at_s).abs() <= NEAR_S
            };
            let other = below.runs.iter().find(near)?;
            Some((run.get(metric)?.max(least), other.get(metric)?.max(least)))
        };
        above.runs.iter().filter(|run| run.round >= from_round).filter_map(pair).collect()
    }

    /// What the study can tell apart; `None` if no point was compared with itself, or once only.
    #[must_use]
    pub fn resolution(&self) -> Option<Resolution> {
        let pairs: Vec<(f64, f64)> = self.twins.iter().map(|twins| twins.ios_per_s).collect();
        let (low, high) = Interval::of_ratios(&pairs)?.bounds?;
        // Half of the interval of the mean, as a factor.
        let half = (high / low).sqrt();
        let (surely_low, surely_high) = Interval::of_ratios_at(&pairs, Confidence::Alarm)?.bounds?;
        Some(Resolution {
            pairs: pairs.len(),
            of_a_pair: digits(half.powf((pairs.len() as f64).sqrt()) - 1.0),
            of_the_mean: digits(half - 1.0),
            differs: surely_low > 1.0 || surely_high < 1.0,
        })
    }

    /// Requests a second in the rounds that all points have: by these points are chosen, by others they are judged.
    pub(crate) fn first_speed(&self, config: &Config) -> Option<f64> {
        let first = self.point(config)?.runs.iter().filter(|run| run.round < self.settings.repeat);
        median(&first.map(|run| run.ios_per_s).collect::<Vec<_>>())
    }

    /// Whether the device bounds a point: throughput is flat from the depth before, no configuration of its shape has more, and the cores
    /// are not full. Such a point says nothing of the interface but what it costs.
    #[must_use]
    pub fn device_bound(&self, config: &Config) -> bool {
        let Some(here) = self.first_speed(config) else { return false };
        let shape = |other: &Config| Config {
            interface: String::new(),
            depth: 0,
            batch: 0,
            ..other.clone()
        };
        let alike = || self.points.iter().filter(|point| shape(&point.config) == shape(config));
        let speeds = alike().filter_map(|point| self.first_speed(&point.config));
        if here < CEILING * speeds.fold(0.0, f64::max) {
            return false;
        }
        if config.interface.contains("+k") {
            // Its threads spin, so how full the cores are says nothing: what binds another interface there binds it, too.
            return alike().any(|point| {
                !point.config.interface.contains("+k") && self.device_bound(&point.config)
            });
        }
        let with = |depth: u32| Config { depth, ..config.clone() };
        let before = self
            .points
            .iter()
            .filter(|point| point.config.depth < config.depth)
            .filter(|point| point.config == with(point.config.depth))
            .max_by_key(|point| point.config.depth);
        let flat = before
            .and_then(|point| self.first_speed(&point.config))
            .is_some_and(|before| here <= before / CEILING);
        flat && !self.cores_full(config)
    }

    /// Whether the cores that a point's threads can use are busy all of the time.
    #[must_use]
    pub fn cores_full(&self, config: &Config) -> bool {
        let mid = |metric| Some(self.point(config)?.interval(metric)?.mid);
        let Some((cpu_us, ios)) = mid(Metric::CpuUsPerIo).zip(mid(Metric::IosPerS)) else {
            return false;
        };
        let cores = f64::from(config.cores.min(config.threads));
        cpu_us * ios >= CORE_FULL * cores * 1e6
    }
}

/// Runs that lie further apart are not compared, seconds.
pub(crate) const NEAR_S: f64 = 10.0;

/// Throughput within that share of the most is the most.
const CEILING: f64 = 0.95;

/// Cores that are busy for that share of the time are full.
const CORE_FULL: f64 = 0.9;
