//! Chooses an interface: ranks by speed, and then tests the runs of the same rounds.

use qpair_plots::{Interval, thousands};

use super::{Choice, Question};
use crate::config::{Config, Mix};
use crate::experiment::cores_words;
use crate::lab::{INTERFACES, InterfaceReport, USER_SPACE};
use crate::measure::Metric;
use crate::report::StudyReport;

/// The smallest ratio that counts as a lead.
const LEAD: f64 = 1.05;

pub(super) fn has_kernel_thread(interface: &str) -> bool {
    interface.contains("+k")
}

/// The difference between two interfaces, as far as it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lead {
    Faster,
    Cheaper,
    /// The runs were close enough in time to compare, and neither interface leads.
    Neither,
    /// No runs were close enough in time.
    NotCompared,
}

/// A question, and the study that answers it.
#[derive(Clone, Copy)]
pub(super) struct Advisor<'a> {
    pub(super) study: &'a StudyReport,
    question: &'a Question,
    /// The number of cores of all drives together.
    cores: u32,
    drives: u32,
    /// The number of cores in the runs that answer the question: one or two.
    pub(super) measured_cores: u32,
}

impl<'a> Advisor<'a> {
    pub(super) fn new(study: &'a StudyReport, question: &'a Question) -> Self {
        let drives = study.devices.len().max(1) as u32;
        let cores = question.cores.unwrap_or(study.cores).max(1);
        // The study measured one core and two; a larger number is treated as two.
        let measured_cores = (cores / drives).clamp(1, 2);
        Self { study, question, cores, drives, measured_cores }
    }

    /// Returns the advisor for the other number of cores that was measured.
    pub(super) fn with_other_cores(self) -> Self {
        Self { measured_cores: if self.measured_cores >= 2 { 1 } else { 2 }, ..self }
    }

    /// Returns the interfaces that may be chosen if they are fast enough.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.study
            .interfaces
            .iter()
            .filter(|known| known.unavailable.is_none() && !self.needs_whole_drive(&known.name))
            .map(|known| known.name.as_str())
    }

    fn needs_whole_drive(&self, name: &str) -> bool {
        self.question.filesystem && (name.starts_with("io_uring_cmd") || name == USER_SPACE)
    }

    /// Whether there are cores for the kernel thread of an interface, if it has one.
    pub(super) fn may_advise(&self, name: &str) -> bool {
        self.measured_cores >= 2 || !has_kernel_thread(name)
    }

    /// Returns the depths at which both this interface and the others were measured, with one
    /// thread and one drive. A depth at which only one interface was measured allows no comparison.
    fn depths(&self, name: &str) -> Vec<u32> {
        let mut depths: Vec<u32> = self
            .study
            .points
            .iter()
            .filter(|point| point.config == self.config(name, point.config.depth))
            .filter(|point| !point.runs.is_empty())
            .map(|point| point.config.depth)
            .filter(|depth| {
                let planned = |other: &str| self.config(other, *depth);
                self.names().all(|other| self.study.point(&planned(other)).is_some())
            })
            .collect();
        depths.sort_unstable();
        depths
    }

    /// Returns a configuration of one thread that issues the question's requests.
    fn config(&self, name: &str, depth: u32) -> Config {
        self.question.mix.of(Config::new(name, self.measured_cores).depth(depth))
    }

    fn at(&self, name: &str, depth: u32) -> Option<Choice> {
        let point = self.study.point(&self.config(name, depth))?;
        let mid = |metric| Some(point.interval(metric)?.mid);
        Some(Choice {
            interface: name.to_owned(),
            depth,
            cores: self.measured_cores,
            ios_per_s: mid(Metric::IosPerS)?,
            ios_per_s_interval: point.interval(Metric::IosPerS)?.bounds,
            p50_us: mid(Metric::P50Us)?,
            p99_us: mid(Metric::P99Us)?,
            cpu_us_per_io: mid(Metric::CpuUsPerIo)?,
        })
    }

    /// Returns the interface at the depth of the question, or at the best depth that the question
    /// allows.
    fn best(&self, name: &str) -> Option<Choice> {
        let mut depths = self.depths(name);
        if let Some(wanted) = self.question.depth {
            // Choose the nearest measured depth, by ratio.
            let far = |depth: &u32| (f64::from(*depth) / f64::from(wanted.max(1))).ln().abs();
            depths.sort_by(|a, b| far(a).total_cmp(&far(b)));
            depths.truncate(1);
        }
        let choices = depths.into_iter().filter_map(|depth| self.at(name, depth));
        let fits = |choice: &Choice| {
            self.question.latency_us_max.is_none_or(|latency_us| choice.p99_us <= latency_us)
        };
        choices.filter(fits).max_by(|a, b| a.ios_per_s.total_cmp(&b.ios_per_s))
    }

    /// Returns each interface at its best, the fastest first.
    pub(super) fn ranked(&self) -> Vec<Choice> {
        let mut ranked: Vec<Choice> = self.names().filter_map(|name| self.best(name)).collect();
        ranked.sort_by(|a, b| b.ios_per_s.total_cmp(&a.ios_per_s));
        ranked
    }

    /// Chooses from a ranking by speed: the fastest interface, or a cheaper one that the fastest
    /// does not lead.
    pub(super) fn choose(&self, ranked: &[Choice]) -> Option<Choice> {
        let first = ranked.first()?;
        let as_fast = ranked.iter().skip(1).filter(|other| self.lead(first, other) != Lead::Faster);
        let cheaper = |kept, other| if self.saves(other, kept) { other } else { kept };
        Some(as_fast.fold(first, cheaper).clone())
    }

    /// Chooses from all interfaces that may be advised.
    pub(super) fn choose_any(&self) -> Option<Choice> {
        let mut ranked = self.ranked();
        ranked.retain(|choice| self.may_advise(&choice.interface));
        self.choose(&ranked)
    }

    /// Returns the advantage of `choice` over `other` that was certainly measured.
    pub(super) fn lead(&self, choice: &Choice, other: &Choice) -> Lead {
        if self.surely(Metric::IosPerS, choice, other) {
            Lead::Faster
        } else if self.saves(choice, other) {
            Lead::Cheaper
        } else if self.ratio(Metric::IosPerS, choice, other).is_some() {
            Lead::Neither
        } else {
            Lead::NotCompared
        }
    }

    fn saves(&self, choice: &Choice, other: &Choice) -> bool {
        self.surely(Metric::CpuUsPerIo, other, choice)
    }

    /// Whether a figure of `above` is certainly higher than that of `below`, by [`LEAD`] or more.
    fn surely(&self, metric: Metric, above: &Choice, below: &Choice) -> bool {
        let lead = self.ratio(metric, above, below);
        lead.is_some_and(|lead| lead.mid >= LEAD && lead.bounds.is_none_or(|(low, _)| low > 1.0))
    }

    fn ratio(&self, metric: Metric, above: &Choice, below: &Choice) -> Option<Interval> {
        let of = |choice: &Choice| self.config(&choice.interface, choice.depth);
        self.study.ratio(metric, &of(above), &of(below))
    }

    /// Returns the reason why there is nothing to choose from.
    pub(super) fn nothing(&self) -> String {
        let all = self.names().flat_map(|name| {
            self.depths(name).into_iter().filter_map(|depth| self.at(name, depth))
        });
        let least = all.min_by(|a, b| a.p99_us.total_cmp(&b.p99_us));
        match (self.question.latency_us_max, least) {
            (Some(latency_us), Some(least)) => format!(
                "nothing measured has a 99th percentile of {latency_us} us or less; the least is {:.0} us, {} at queue depth {}",
                least.p99_us, least.interface, least.depth
            ),
            _ if self.question.mix == Mix::default() => {
                "the study has no runs of one thread by queue depth at these cores: it needs experiment s1-fig2".to_owned()
            }
            _ => "the study has no runs of such requests: without --study they are measured".to_owned(),
        }
    }

    pub(super) fn reasons(&self, choice: &Choice, ranked: &[Choice]) -> Vec<String> {
        let mut reasons = Vec::new();
        for other in ranked.iter().filter(|other| other.interface != choice.interface) {
            let times = choice.ios_per_s / other.ios_per_s.max(1e-9);
            let (name, iops, depth) = (&other.interface, thousands(other.ios_per_s), other.depth);
            reasons.push(match self.lead(choice, other) {
                Lead::Faster => {
                    format!("{times:.2} times the IOPS of {name} ({iops} at queue depth {depth})")
                }
                Lead::Cheaper => format!(
                    "{:.1} us of processor time per I/O against {:.1} of {name}, which is {} ({iops} IOPS at queue depth {depth})",
                    choice.cpu_us_per_io,
                    other.cpu_us_per_io,
                    if times >= 1.0 { "not faster" } else { "hardly or not surely faster" },
                ),
                Lead::Neither | Lead::NotCompared => format!(
                    "no difference that could be measured from {name} ({iops} IOPS at queue depth {depth})"
                ),
            });
        }
        if reasons.is_empty() {
            reasons.push("it is the only interface that meets the question here".to_owned());
        }
        if let Some(wanted) = self.question.depth.filter(|wanted| *wanted != choice.depth) {
            reasons.push(format!(
                "measured at queue depth {}, the nearest to {wanted} in this study",
                choice.depth
            ));
        }
        reasons
    }

    /// Warns of a kernel thread that has no core of its own, the trap that S1 describes.
    pub(super) fn warnings(&self, choice: &Choice) -> Vec<String> {
        let one = Self { measured_cores: 1, ..*self };
        let warning = |name: &str| {
            let plain = name.replace("+k", "");
            let (tight, other) = (one.at(name, choice.depth)?, one.at(&plain, choice.depth)?);
            (tight.ios_per_s / other.ios_per_s.max(1e-9) <= 0.9).then(|| {
                format!(
                    "without a spare core for the kernel's thread {name} collapses: {} IOPS and a median of {:.0} us on one core, where \
                     {plain} has {} and {:.0} us (queue depth {})",
                    thousands(tight.ios_per_s),
                    tight.p50_us,
                    thousands(other.ios_per_s),
                    other.p50_us,
                    choice.depth
                )
            })
        };
        self.names().filter(|name| has_kernel_thread(name)).filter_map(warning).collect()
    }

    /// Returns the circumstances in which the answer would be different.
    pub(super) fn changes(&self, choice: &Choice) -> Vec<String> {
        let mut changes = Vec::new();
        let there = self.with_other_cores();
        if let Some(then) = there.choose_any().filter(|then| then.interface != choice.interface) {
            let words = cores_words(there.measured_cores);
            changes.push(format!(
                "with {words} for each drive ({} for {} now): {}, {} IOPS measured",
                self.cores,
                self.drives,
                then.interface,
                thousands(then.ios_per_s)
            ));
        }
        if self.question.latency_us_max.is_none() {
            let free = Question { depth: None, ..*self.question };
            let deeper = Advisor { question: &free, ..*self };
            if let Some(then) = deeper.choose_any()
                && then.depth > choice.depth
                && then.ios_per_s > 1.1 * choice.ios_per_s
            {
                changes.push(format!(
                    "a deeper queue: {} at queue depth {} has {} IOPS",
                    then.interface,
                    then.depth,
                    thousands(then.ios_per_s)
                ));
            }
        }
        changes.extend(self.study.interfaces.iter().filter_map(|known| {
            match (&known.unavailable, self.needs_whole_drive(&known.name)) {
                (None, true) => Some(format!("without a file system on the drive: {}", known.name)),
                (Some(reason), false) => Some(missing(known, reason)),
                _ => None,
            }
        }));
        changes
    }
}

fn missing(known: &InterfaceReport, reason: &str) -> String {
    let about = INTERFACES
        .iter()
        .find(|candidate| candidate.name == known.name)
        .map_or(known.about.as_str(), |candidate| candidate.about);
    let way_out = known.way_out.as_ref().map(|way| format!("; {way}")).unwrap_or_default();
    format!("{} ({about}) was not there to be measured: {reason}{way_out}", known.name)
}
