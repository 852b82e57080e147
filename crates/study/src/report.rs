//! The stored results of a study. Reports are drawn and verdicts are made from these results alone.

use qpair_plots::{Confidence, Interval, median};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::experiment::Plan;
use crate::lab::{Device, Effort, InterfaceReport};
use crate::measure::{Measure, Metric, digits};
use crate::verdict::Verdict;

/// The name of the format, which every file states.
pub(crate) const FORMAT: &str = "qpair-study";
/// The version of the format. Studies of version 1 submitted up to 32 requests a call, and compared
/// all points of a round, however far apart in time.
pub(crate) const VERSION: u32 = 2;

/// The results of a study.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StudyReport {
    /// The name of the format: `qpair-study`.
    pub format: String,
    /// The version of the format.
    pub version: u32,
    /// The version of the program that measured.
    pub program: String,
    /// The start of the study, in seconds since 1970.
    pub begun_s: u64,
    /// The duration of the study in seconds.
    pub took_s: f64,
    /// The settings of the study.
    pub settings: Settings,
    pub machine: qpair_machine::Machine,
    /// The number of cores that could be used.
    pub cores: u32,
    /// The devices of the study.
    pub devices: Vec<Device>,
    /// All interfaces, including those that cannot be used.
    pub interfaces: Vec<InterfaceReport>,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// The verdicts on the papers' findings. They are derived from the other fields;
    /// [`StudyReport::judge`] derives them again.
    pub verdicts: Vec<Verdict>,
    /// The experiments of the study.
    pub experiments: Vec<ExperimentReport>,
    /// The points of the study, each once.
    pub points: Vec<Point>,
    /// Points that were run twice in a row and compared with themselves.
    #[serde(default)]
    pub twins: Vec<Twins>,
}

/// Two successive runs of one point. They show how much runs differ by chance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Twins {
    /// The configuration that was run.
    #[serde(flatten)]
    pub config: Config,
    /// Requests a second of the first and the second run.
    pub ios_per_s: (f64, f64),
}

/// The smallest difference that a study can detect, from points that were compared with themselves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Resolution {
    /// The number of pairs of runs.
    pub pairs: usize,
    /// The bound below which two runs of one point differ 95 times of 100; 0.04 means 4 %.
    pub of_a_pair: f64,
    /// The same bound for the mean of all pairs.
    pub of_the_mean: f64,
    /// Whether a point differed from itself by more than chance, which means that something is
    /// wrong with the study.
    pub differs: bool,
}

/// The settings of a study.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The effort of the study.
    pub effort: Effort,
    /// The number of rounds of all points.
    pub repeat: u32,
    /// The least number of rounds of a comparison.
    #[serde(default)]
    pub compared_min: u32,
    /// The greatest number of rounds of a comparison.
    #[serde(default)]
    pub compared_max: u32,
    /// The time in seconds after which no further comparison begins.
    #[serde(default)]
    pub budget_s: f64,
    /// The measured time of each run in seconds.
    pub seconds_per_point: f64,
    /// The time before the measurement of each run in seconds.
    pub ramp_s: f64,
    /// The seed of the order of runs and of the requests.
    pub seed: u64,
}

/// An experiment as it was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExperimentReport {
    /// The name of the experiment.
    pub name: String,
    /// The figure that the experiment repeats.
    pub figure: String,
    /// A description of the figure.
    pub shows: String,
    /// The result in the paper.
    pub found: String,
    /// The points of the experiment, and the parts that could not be measured.
    #[serde(flatten)]
    pub plan: Plan,
}

impl ExperimentReport {
    /// Whether the axis of the experiment is a load, so that latency is also plotted against
    /// throughput.
    pub(crate) fn latency_against_throughput(&self) -> bool {
        let shows = |metric| self.plan.shown.iter().any(|shown| shown.metric == metric);
        self.plan.x_label == "queue depth" && shows(Metric::IosPerS) && shows(Metric::P50Us)
    }
}

/// A point: a configuration and its runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The configuration that was run.
    #[serde(flatten)]
    pub config: Config,
    /// The results of the runs.
    pub runs: Vec<Measure>,
    /// The reasons why runs failed, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
}

impl Resolution {
    /// Describes the point in a sentence.
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
    /// Returns the values of a figure in all runs.
    #[must_use]
    pub fn values(&self, metric: Metric) -> Vec<f64> {
        self.runs.iter().filter_map(|run| run.get(metric)).collect()
    }

    /// Returns the median of a figure over the runs, and its interval.
    #[must_use]
    pub fn interval(&self, metric: Metric) -> Option<Interval> {
        Interval::of(&self.values(metric))
    }
}

impl StudyReport {
    /// Returns a report without results.
    #[must_use]
    pub fn empty(settings: Settings) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            settings,
            ..Self::default()
        }
    }

    /// Returns the point of a configuration.
    #[must_use]
    pub fn point(&self, config: &Config) -> Option<&Point> {
        self.points.iter().find(|point| point.config == *config)
    }

    /// Returns the experiment with this name.
    #[must_use]
    pub fn experiment(&self, name: &str) -> Option<&ExperimentReport> {
        self.experiments.iter().find(|experiment| experiment.name == name)
    }

    /// Whether an interface could be used in the study.
    #[must_use]
    pub fn has(&self, interface: &str) -> bool {
        self.interfaces.iter().any(|known| known.name == interface && known.unavailable.is_none())
    }

    /// Returns the ratio of `above` to `below` in a figure, from runs that are seconds apart.
    #[must_use]
    pub fn ratio(&self, metric: Metric, above: &Config, below: &Config) -> Option<Interval> {
        Interval::of_ratios(&self.pairs(metric, above, below, 0))
    }

    /// Returns the values of two points in runs of the same round that are seconds apart. Rounds
    /// before `from` are left out.
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

    /// Returns the smallest difference that the study can detect; `None` unless points were
    /// compared with themselves more than once.
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

    /// Returns the requests a second in the rounds that all points have. Points are chosen by these
    /// rounds and judged by later ones.
    pub(crate) fn first_speed(&self, config: &Config) -> Option<f64> {
        let first = self.point(config)?.runs.iter().filter(|run| run.round < self.settings.repeat);
        median(&first.map(|run| run.ios_per_s).collect::<Vec<_>>())
    }

    /// Whether the device limits a point: throughput does not rise from the depth before, no
    /// configuration of the same shape has more, and the cores are not fully busy. For an
    /// interface, such a point shows only its processor time.
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
            // Threads of `+k` spin, so the load of the cores says nothing. If the device limits
            // another interface at this point, it limits this one too.
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

    /// Whether the cores that a point's threads can use are always busy.
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

/// The greatest distance in time, in seconds, of two runs that are compared.
pub(crate) const NEAR_S: f64 = 10.0;

/// The share of the highest throughput above which throughput counts as the highest.
const CEILING: f64 = 0.95;

/// The share of time above which a core counts as fully busy.
const CORE_FULL: f64 = 0.9;
