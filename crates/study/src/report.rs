//! The stored results of a study. Reports are drawn and verdicts are made from these results alone.

use std::collections::BTreeMap;

use qpair_plots::{Confidence, Interval, median};
use serde::{Deserialize, Serialize};

use crate::against::{Against, Boot};
use crate::config::{Channels, Config};
use crate::experiment::Plan;
use crate::lab::{Device, Effort, InterfaceReport, is_soft};
use crate::means::Means;
use crate::measure::{Measure, Metric, digits};
use crate::need::Here;
use crate::verdict::Verdict;

/// The name of the format, which every file states.
pub(crate) const FORMAT: &str = "qpair-study";
/// The version of the format. Studies of version 1 submitted up to 32 requests a call, and compared
/// all points of a round, however far apart in time. Those of version 2 repeated a comparison until
/// it was clear, at any time.
pub(crate) const VERSION: u32 = 3;

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
    #[serde(default)]
    pub means: Means,
    /// The last study of this machine, if this one is compared with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<Against>,
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
    /// The number of blocks of time in which comparisons run.
    #[serde(default)]
    pub blocks: u32,
    /// The number of blocks in which every comparison runs.
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

    /// Returns the mean of a figure in each block of runs.
    #[must_use]
    pub fn by_block(&self, metric: Metric) -> Vec<f64> {
        let values = self.runs.iter().filter_map(|run| Some((run.block(), run.get(metric)?)));
        by_block(values).into_values().map(|values| mean(&values)).collect()
    }

    /// Returns the median of a figure over the blocks of runs, and its interval.
    #[must_use]
    pub fn interval(&self, metric: Metric) -> Option<Interval> {
        Interval::of(&self.by_block(metric))
    }
}

/// Groups values by the block of their runs, in the order of time.
fn by_block<T>(values: impl Iterator<Item = (u32, T)>) -> BTreeMap<u32, Vec<T>> {
    let mut blocks: BTreeMap<u32, Vec<T>> = BTreeMap::new();
    values.for_each(|(block, value)| blocks.entry(block).or_default().push(value));
    blocks
}

/// Returns the geometric mean; the arithmetic one if a value has no logarithm.
fn mean(values: &[f64]) -> f64 {
    let count = values.len().max(1) as f64;
    match values.iter().all(|value| *value > 0.0) {
        true => (values.iter().map(|value| value.ln()).sum::<f64>() / count).exp(),
        false => values.iter().sum::<f64>() / count,
    }
}

impl StudyReport {
    /// Returns the machine and its devices, as the needs of findings see them.
    pub(crate) fn here(&self) -> Here<'_> {
        Here {
            cores: self.cores,
            devices: &self.devices,
            interfaces: &self.interfaces,
            means: &self.means,
            boots: self.against.as_ref().map(|against| (Boot::of(&self.machine), against)),
        }
    }

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

    /// Returns the values of two points in runs of the same round that are seconds apart, averaged
    /// over each block of runs. Rounds before `from` are left out.
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
        let pair = |run: &Measure| -> Option<(u32, (f64, f64))> {
            let near = |other: &&Measure| {
                other.round == run.round && (other.at_s - run.at_s).abs() <= NEAR_S
            };
            let other = below.runs.iter().find(near)?;
            let pair = (run.get(metric)?.max(least), other.get(metric)?.max(least));
            // A zero has no ratio.
            (pair.0 > 0.0 && pair.1 > 0.0).then_some((run.block(), pair))
        };
        let pairs = above.runs.iter().filter(|run| run.round >= from_round).filter_map(pair);
        let means = |pairs: Vec<(f64, f64)>| {
            let (above, below): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            (mean(&above), mean(&below))
        };
        by_block(pairs).into_values().map(means).collect()
    }

    /// Returns the smallest difference that the study can detect; `None` unless points were
    /// compared with themselves three times or more.
    #[must_use]
    pub fn resolution(&self) -> Option<Resolution> {
        let pairs: Vec<(f64, f64)> = self.twins.iter().map(|twins| twins.ios_per_s).collect();
        if pairs.len() < PAIRS_MIN {
            return None;
        }
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

    /// Whether the device limits a point. Its throughput is near the best of all points with the
    /// same requests to the same devices, another such point has twice or half as many requests in
    /// flight, and the cores are not fully busy. For an interface, such a point shows only its
    /// processor time.
    #[must_use]
    pub fn device_bound(&self, config: &Config) -> bool {
        let requests = |other: &Config| Config {
            interface: if is_soft(&other.interface) {
                other.interface.clone()
            } else {
                String::new()
            },
            cores: 0,
            threads: 0,
            depth: 0,
            batch: 0,
            channels: Channels::Own,
            ..other.clone()
        };
        let alike: Vec<(&Config, f64)> = self
            .points
            .iter()
            .filter(|point| requests(&point.config) == requests(config))
            .filter_map(|point| Some((&point.config, self.first_speed(&point.config)?)))
            .collect();
        let best = alike.iter().map(|(_, speed)| *speed).fold(0.0, f64::max);
        let at_ceiling: Vec<&Config> = alike
            .into_iter()
            .filter(|(_, speed)| *speed > 0.0 && *speed >= CEILING * best)
            .map(|(config, _)| config)
            .collect();
        let in_flight = |of: &Config| of.threads * of.depth;
        let own = in_flight(config);
        let is_flat = at_ceiling
            .iter()
            .any(|other| in_flight(other) >= 2 * own || 2 * in_flight(other) <= own);
        if !at_ceiling.contains(&config) || !is_flat {
            return false;
        }
        if config.interface.contains("+k") {
            // Threads of `+k` spin, so the load of the cores says nothing. If the device limits
            // another interface, it limits this one too.
            return at_ceiling
                .iter()
                .any(|other| !other.interface.contains("+k") && !self.cores_full(other));
        }
        !self.cores_full(config)
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

/// The number of pairs of runs below which their spread says nothing.
const PAIRS_MIN: usize = 3;

/// The share of the highest throughput above which throughput counts as the highest.
const CEILING: f64 = 0.95;

/// The share of time above which a core counts as fully busy.
const CORE_FULL: f64 = 0.9;
