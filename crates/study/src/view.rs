//! A study, as the tests of findings read it.

use std::cell::RefCell;

use qpair_plots::{Confidence, Interval};

use crate::against::Boot;
use crate::config::Config;
use crate::lab::{INTERFACES, USER_SCSI, USER_SPACE, is_kernel_s};
use crate::measure::Metric;
use crate::need::{Need, no_interface};
use crate::outcome::Threshold;
use crate::report::StudyReport;
use crate::verdict::Evidence;

/// A study, as the tests of findings read it.
pub(crate) struct View<'a> {
    pub(crate) report: &'a StudyReport,
    /// The points that the verdict rests on, collected while it is made.
    pub(crate) asked: RefCell<Vec<Config>>,
}

impl<'a> View<'a> {
    pub(crate) fn of(report: &'a StudyReport) -> Self {
        Self { report, asked: RefCell::default() }
    }
}

impl View<'_> {
    /// Returns 2; fails on a machine with one core.
    pub(crate) fn two_cores(&self) -> Result<u32, String> {
        match self.report.cores {
            0 | 1 => Err("one core only may be used".to_owned()),
            _ => Ok(2),
        }
    }

    pub(crate) fn has(&self, interface: &str) -> bool {
        self.report.has(interface)
    }

    /// Fails unless the interface could be used in the study.
    pub(crate) fn need(&self, interface: &str) -> Result<(), String> {
        no_interface(&self.report.interfaces, interface).map_or(Ok(()), Err)
    }

    /// Returns the evidence, or the part as untested where the interface cannot be used.
    pub(crate) fn where_usable(
        &self,
        interface: &str,
        what: &str,
        part: impl FnOnce() -> Result<Evidence, String>,
    ) -> Result<Evidence, String> {
        match self.need(interface) {
            Ok(()) => part(),
            Err(why) => Ok(Evidence::untested(what, why)),
        }
    }

    /// Returns the evidence, or the part as untested where a need is not met.
    pub(crate) fn where_met(
        &self,
        need: Need,
        what: &str,
        part: impl FnOnce() -> Result<Evidence, String>,
    ) -> Result<Evidence, String> {
        match need.lacking(&self.report.here()) {
            None => part(),
            Some(why) => Ok(Evidence::untested(what, why)),
        }
    }

    /// Returns the interface of experiments that do not compare interfaces.
    pub(crate) fn main_interface(&self, experiment: &str) -> Result<&str, String> {
        let ran = self.report.experiment(experiment).ok_or_else(|| not_run(experiment))?;
        match ran.plan.configs().next() {
            Some(config) => Ok(&config.interface),
            None => Err(self.skipped(experiment)),
        }
    }

    /// Returns the reason why an experiment has no points.
    pub(crate) fn skipped(&self, experiment: &str) -> String {
        match self.report.experiment(experiment) {
            None => not_run(experiment),
            Some(ran) if ran.plan.skipped.is_empty() => "no interface could be used".to_owned(),
            Some(ran) => ran.plan.skipped.join("; "),
        }
    }

    /// Returns the number of devices, or fails unless there are several on different disks.
    pub(crate) fn need_drives(&self, experiment: &str) -> Result<u32, String> {
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
    pub(crate) fn missing(&self, config: &Config) -> String {
        let name = config.interface.split(':').next().unwrap_or_default();
        if (is_kernel_s(name) || [USER_SPACE, USER_SCSI].contains(&name))
            && let Err(why) = self.need(name)
        {
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

    pub(crate) fn ratio(
        &self,
        what: impl Into<String>,
        metric: Metric,
        above: &Config,
        below: &Config,
        wanted: Threshold,
    ) -> Result<Evidence, String> {
        let interval = self.ratio_from(metric, above, below, 0)?;
        Ok(Evidence::new(what, interval, wanted))
    }

    /// Compares points for information only.
    pub(crate) fn ratio_told(
        &self,
        what: impl Into<String>,
        metric: Metric,
        above: &Config,
        below: &Config,
    ) -> Result<Evidence, String> {
        Ok(Evidence::told(what, self.ratio_from(metric, above, below, 0)?))
    }

    /// Compares points that were chosen by the results of the first rounds. Those rounds do not
    /// count, since the choice favours them.
    pub(crate) fn chosen_ratio(
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
    pub(crate) fn speed(
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

    pub(crate) fn both_bound(&self, above: &Config, below: &Config) -> bool {
        self.report.device_bound(above) && self.report.device_bound(below)
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
        // The points were not compared, so no ratio is known, and none is ruled out.
        let unknown = Interval { mid: 1.0, bounds: None };
        Ok(Interval::of_ratios_at(&pairs, CONFIDENCE).unwrap_or(unknown))
    }

    /// Compares the points that are in this study and in the stored one of another boot: those with
    /// the state on over those with the state off. Each point is one ratio.
    pub(crate) fn other_boot(
        &self,
        state: fn(&Boot) -> Option<bool>,
        wanted: impl Fn(&Config) -> bool,
    ) -> Result<Interval, String> {
        let Some((boot, against)) = self.report.here().boots else {
            return Err("there is no stored study to compare with".to_owned());
        };
        let pair = |(config, other): &(Config, f64)| {
            let own = self.report.point(config)?.interval(Metric::IosPerS)?.mid;
            wanted(config).then_some(if state(&boot) == Some(true) {
                (own, *other)
            } else {
                (*other, own)
            })
        };
        let pairs: Vec<(f64, f64)> = against.ios_per_s.iter().filter_map(pair).collect();
        Interval::of_ratios_at(&pairs, CONFIDENCE)
            .ok_or_else(|| "there is no such point in both studies".to_owned())
    }

    /// Returns the fastest point of the stored study of another boot.
    pub(crate) fn fastest_of_other_boot(
        &self,
        wanted: impl Fn(&Config) -> bool,
    ) -> Option<&Config> {
        let all = self.report.against.iter().flat_map(|against| &against.ios_per_s);
        let wanted = all.filter(|(config, _)| wanted(config));
        wanted.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(config, _)| config)
    }

    fn ask(&self, config: &Config) {
        let mut asked = self.asked.borrow_mut();
        if !asked.contains(config) {
            asked.push(config.clone());
        }
    }

    pub(crate) fn interval(&self, metric: Metric, config: &Config) -> Result<Interval, String> {
        let values = self.report.point(config).map(|point| point.by_block(metric));
        let interval = Interval::of_at(&values.unwrap_or_default(), CONFIDENCE)
            .ok_or_else(|| self.missing(config))?;
        self.ask(config);
        Ok(interval)
    }

    pub(crate) fn value(
        &self,
        what: impl Into<String>,
        metric: Metric,
        config: &Config,
        wanted: Threshold,
    ) -> Result<Evidence, String> {
        Ok(Evidence::new(what, self.interval(metric, config)?, wanted))
    }

    pub(crate) fn told(
        &self,
        what: impl Into<String>,
        metric: Metric,
        config: &Config,
    ) -> Result<Evidence, String> {
        Ok(Evidence::told(what, self.interval(metric, config)?))
    }

    /// Returns the measured configuration with the most I/Os a second in the first rounds.
    pub(crate) fn fastest<'c>(
        &self,
        configs: impl IntoIterator<Item = &'c Config>,
    ) -> Option<&'c Config> {
        configs
            .into_iter()
            .filter_map(|config| Some((config, self.report.first_speed(config)?)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(config, _)| config)
    }

    /// Returns the kernel interfaces that can be used.
    pub(crate) fn kernel_interfaces(&self) -> impl Iterator<Item = &'static str> {
        INTERFACES.iter().map(|candidate| candidate.name).filter(|name| self.has(name))
    }
}

/// The confidence of verdicts: a study makes many, and looks at each repeatedly.
const CONFIDENCE: Confidence = Confidence::Clear;

/// Returns the distinct configurations of one interface in an experiment.
pub(crate) fn configs<'a>(view: &View<'a>, experiment: &str, interface: &str) -> Vec<&'a Config> {
    let mut all = all_configs(view, experiment);
    all.retain(|config| config.interface == interface);
    all
}

/// Returns the distinct configurations of all interfaces in an experiment.
pub(crate) fn all_configs<'a>(view: &View<'a>, experiment: &str) -> Vec<&'a Config> {
    view.report.experiment(experiment).map(|ran| ran.plan.configs().collect()).unwrap_or_default()
}

/// The beginning of the reason for a point that was not planned.
pub(crate) const NOT_MEASURED: &str = "not measured";

pub(crate) fn not_run(experiment: &str) -> String {
    format!("experiment {experiment} was not run")
}
