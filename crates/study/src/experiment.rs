//! Experiments. Each one repeats a figure of a paper: it states the configurations and how they are
//! plotted.
//!
//! An experiment only plans. Points that several experiments share are run once; see [`Config`].

pub use qpair_plots::Scale;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::lab::Lab;
use crate::measure::Metric;

/// An experiment, which repeats one figure of a paper.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// The name of the experiment.
    pub name: &'static str,
    /// The figure that the experiment repeats.
    pub figure: &'static str,
    /// A description of the figure.
    pub shows: &'static str,
    /// The result in the paper.
    pub found: &'static str,
    /// The requirements other than a device.
    pub needs: &'static str,
    /// Returns the points for a lab.
    pub(crate) plan: fn(&Lab) -> Plan,
}

impl Experiment {
    /// Returns the points for `lab`, with notes on the parts that cannot be measured.
    #[must_use]
    pub fn plan(&self, lab: &Lab) -> Plan {
        let mut plan = (self.plan)(lab);
        for group in &mut plan.groups {
            group.series.retain(|series| !series.points.is_empty());
        }
        plan.groups.retain(|group| !group.series.is_empty());
        plan
    }
}

/// One line of a plot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The label in the legend.
    pub label: String,
    /// Positions along the horizontal axis, each with its configuration.
    pub points: Vec<(f64, Config)>,
}

/// Series that share a plot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The property that the series share, such as "one core"; empty if there is none to state.
    pub title: String,
    pub series: Vec<Series>,
}

/// The vertical axis of a plot.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// The figure that is plotted.
    pub metric: Metric,
    /// The scale of the axis.
    pub scale: Scale,
}

/// The points of an experiment, and how to show them: one plot for each combination of `shown` and
/// `groups`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The label of the horizontal axis.
    pub x_label: String,
    /// The scale of the horizontal axis.
    pub x_scale: Scale,
    /// The vertical axes.
    pub shown: Vec<Shown>,
    /// The series.
    pub groups: Vec<Group>,
    /// Whether throughput is plotted over time, in seconds, and not over `x_label`.
    pub over_time: bool,
    /// Parts that cannot be measured here, each with the reason.
    pub skipped: Vec<String>,
    /// Remarks that a reader needs to interpret the plots.
    pub remarks: Vec<String>,
}

impl Plan {
    pub(crate) fn new(x_label: &str, x_scale: Scale, shown: &[(Metric, Scale)]) -> Self {
        Self {
            x_label: x_label.to_owned(),
            x_scale,
            shown: shown.iter().map(|&(metric, scale)| Shown { metric, scale }).collect(),
            groups: Vec::new(),
            over_time: false,
            skipped: Vec::new(),
            remarks: Vec::new(),
        }
    }

    pub(crate) fn group(mut self, title: &str, series: Vec<Series>) -> Self {
        self.groups.push(Group { title: title.to_owned(), series });
        self
    }

    pub(crate) fn remark(mut self, text: impl Into<String>) -> Self {
        self.remarks.push(text.into());
        self
    }

    pub(crate) fn skip(mut self, why: impl Into<String>) -> Self {
        self.skipped.push(why.into());
        self
    }

    /// Returns all configurations of the plan.
    pub fn configs(&self) -> impl Iterator<Item = &Config> {
        self.groups
            .iter()
            .flat_map(|group| &group.series)
            .flat_map(|series| &series.points)
            .map(|(_, config)| config)
    }
}

/// Returns the series of an interface. `of` gives the configuration for each x, if there is one.
pub(crate) fn series(
    label: &str,
    xs: impl IntoIterator<Item = u32>,
    of: impl Fn(u32) -> Option<Config>,
) -> Series {
    let points = xs.into_iter().filter_map(|x| Some((f64::from(x), of(x)?))).collect();
    Series { label: label.to_owned(), points }
}

/// Returns a series for each interface that can be used.
pub(crate) fn by_interface(
    lab: &Lab,
    xs: &[u32],
    of: impl Fn(&str, u32) -> Option<Config>,
) -> Vec<Series> {
    lab.usable().map(|name| series(name, xs.iter().copied(), |x| of(name, x))).collect()
}

/// Formats a number of cores.
pub(crate) fn cores_words(cores: u32) -> String {
    match cores {
        1 => "one core".to_owned(),
        2 => "two cores".to_owned(),
        n => format!("{n} cores"),
    }
}

/// Whether there is more than one device. If not, the plan notes why the experiment cannot be run.
pub(crate) fn several_devices(lab: &Lab, plan: &mut Plan) -> bool {
    let (devices, disks) = (lab.devices.len(), lab.disks());
    if devices < 2 {
        plan.skipped.push(
            "one device only, and several files on it would share its limits: name more with --device"
                .to_owned(),
        );
    } else if disks < devices {
        let plural = if disks == 1 { "" } else { "s" };
        plan.remarks.push(format!(
            "Files on one disk, not drives: the {devices} devices are on {disks} disk{plural}."
        ));
    }
    devices >= 2
}

/// Returns 1, 2, ... up to `most`, or only the powers of two and `most` if there are many.
pub(crate) fn counts(most: u32) -> Vec<u32> {
    (1..=most).filter(|n| most <= 8 || n.is_power_of_two() || *n == most).collect()
}
