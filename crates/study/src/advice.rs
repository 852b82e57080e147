//! Advice on which interface to use on this machine, derived from a study. The same study and
//! question always give the same answer.
//!
//! Always holds:
//! - An interface is advised only if it was measured at the cores and the depth that the answer
//!   names.
//! - A kernel thread (`+k`) is never advised with fewer than two cores for each drive.
//! - A faster interface is advised only if its lead is 5 % or more and the whole interval of the
//!   ratio lies above one. Otherwise one that costs less processor time by the same test is
//!   advised. If neither holds, the answer says that no difference could be measured.

use qpair_plots::thousands;
use serde::Serialize;

use crate::config::{Config, Mix};
use crate::lab::{INTERFACES, InterfaceReport};
use crate::measure::Metric;
use crate::report::StudyReport;

/// The conditions under which the advised interface will run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Question {
    /// The number of cores that all drives together will have; `None`: as many as in the study.
    pub cores: Option<u32>,
    /// The number of requests that will be in flight on a drive; `None`: the best depth that was
    /// measured.
    pub depth: Option<u32>,
    /// The upper limit for the 99th percentile of latency, in microseconds.
    pub latency_us_max: Option<f64>,
    /// Whether the drive has a file system on it. If so, interfaces that need the whole drive are
    /// excluded.
    pub filesystem: bool,
    /// The direction and size of the requests.
    pub mix: Mix,
}

/// An interface with its measured figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// The interface, as it is written after `--interface`.
    pub interface: String,
    /// The number of requests in flight.
    pub depth: u32,
    /// The number of cores of the measurement.
    pub cores: u32,
    /// Requests a second.
    pub ios_per_s: f64,
    /// The ends of the 95 % interval of [`Choice::ios_per_s`], if there was more than one run.
    pub ios_per_s_interval: Option<(f64, f64)>,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// 99th percentile of latency in microseconds.
    pub p99_us: f64,
    /// Processor time of a request in microseconds.
    pub cpu_us_per_io: f64,
}

/// The answer to a [`Question`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The interface to use; `None` if nothing that was measured meets the question.
    pub choice: Option<Choice>,
    /// The reasons for the choice.
    pub reasons: Vec<String>,
    /// Risks of the choice.
    pub warnings: Vec<String>,
    /// Circumstances in which the answer would be different.
    pub changes: Vec<String>,
    /// The other interfaces, best first.
    pub others: Vec<Choice>,
}

/// The smallest ratio that counts as a lead.
const LEAD: f64 = 1.05;

/// Answers a question from a study.
#[must_use]
pub fn advise(study: &StudyReport, question: &Question) -> Advice {
    let drives = study.devices.len().max(1) as u32;
    let cores = question.cores.unwrap_or(study.cores).max(1);
    // Measured were one core and two; more are taken as two.
    let measured_cores = (cores / drives).clamp(1, 2);
    let advisor = Advisor { study, question, cores: measured_cores };
    let mut ranked: Vec<Choice> =
        advisor.names().filter_map(|name| advisor.best(name, measured_cores)).collect();
    ranked.sort_by(|a, b| b.ios_per_s.total_cmp(&a.ios_per_s));
    let mut advice = Advice {
        choice: None,
        reasons: Vec::new(),
        warnings: Vec::new(),
        changes: Vec::new(),
        others: Vec::new(),
    };
    let allowed: Vec<Choice> = ranked
        .iter()
        .filter(|choice| measured_cores >= 2 || !has_kernel_thread(&choice.interface))
        .cloned()
        .collect();
    let Some(choice) = advisor.choose(&allowed) else {
        advice.reasons.push(advisor.nothing());
        return advice;
    };
    advice.reasons = advisor.reasons(&choice, &allowed);
    advisor.warn(&choice, &mut advice.warnings);
    advisor.changes(&choice, cores, drives, &mut advice.changes);
    advice.others =
        ranked.into_iter().filter(|other| other.interface != choice.interface).collect();
    advice.choice = Some(choice);
    advice
}

fn has_kernel_thread(interface: &str) -> bool {
    interface.contains("+k")
}

struct Advisor<'a> {
    study: &'a StudyReport,
    question: &'a Question,
    cores: u32,
}

impl Advisor<'_> {
    /// Returns the interfaces that may be chosen if they are fast enough.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.study
            .interfaces
            .iter()
            .filter(|known| known.unavailable.is_none() && !self.needs_whole_drive(&known.name))
            .map(|known| known.name.as_str())
    }

    fn needs_whole_drive(&self, name: &str) -> bool {
        self.question.filesystem && (name.starts_with("io_uring_cmd") || name == crate::USER_SPACE)
    }

    /// Returns the depths at which both this interface and the others were measured on `cores`
    /// cores, with one thread and one drive. A depth at which only one interface was measured
    /// allows no comparison.
    fn depths(&self, name: &str, cores: u32) -> Vec<u32> {
        let mut depths: Vec<u32> = self
            .study
            .points
            .iter()
            .filter(|point| point.config == self.config(name, cores, point.config.depth))
            .filter(|point| !point.runs.is_empty())
            .map(|point| point.config.depth)
            .filter(|depth| {
                let planned = |other: &str| self.config(other, cores, *depth);
                self.names().all(|other| self.study.point(&planned(other)).is_some())
            })
            .collect();
        depths.sort_unstable();
        depths
    }

    /// Returns a configuration of one thread that issues the question's requests.
    fn config(&self, name: &str, cores: u32, depth: u32) -> Config {
        self.question.mix.of(Config::new(name, cores).depth(depth))
    }

    fn at(&self, name: &str, cores: u32, depth: u32) -> Option<Choice> {
        let point = self.study.point(&self.config(name, cores, depth))?;
        let mid = |metric| Some(point.interval(metric)?.mid);
        Some(Choice {
            interface: name.to_owned(),
            depth,
            cores,
            ios_per_s: mid(Metric::IosPerS)?,
            ios_per_s_interval: point.interval(Metric::IosPerS)?.bounds,
            p50_us: mid(Metric::P50Us)?,
            p99_us: mid(Metric::P99Us)?,
            cpu_us_per_io: mid(Metric::CpuUsPerIo)?,
        })
    }

    /// Returns the interface at the depth of the question, or at the best depth that the question
    /// allows.
    fn best(&self, name: &str, cores: u32) -> Option<Choice> {
        let mut depths = self.depths(name, cores);
        if let Some(wanted) = self.question.depth {
            // The nearest that was measured, by ratio.
            let far = |depth: &u32| (f64::from(*depth) / f64::from(wanted.max(1))).ln().abs();
            depths.sort_by(|a, b| far(a).total_cmp(&far(b)));
            depths.truncate(1);
        }
        let choices = depths.into_iter().filter_map(|depth| self.at(name, cores, depth));
        let fits = |choice: &Choice| {
            self.question.latency_us_max.is_none_or(|latency_us| choice.p99_us <= latency_us)
        };
        choices.filter(fits).max_by(|a, b| a.ios_per_s.total_cmp(&b.ios_per_s))
    }

    /// Chooses from a ranking by speed: the fastest interface, or a cheaper one that the fastest
    /// does not lead.
    fn choose(&self, ranked: &[Choice]) -> Option<Choice> {
        let first = ranked.first()?;
        let as_fast = ranked.iter().skip(1).filter(|other| !self.leads(first, other));
        Some(
            as_fast
                .fold(first, |kept, other| if self.saves(other, kept) { other } else { kept })
                .clone(),
        )
    }

    /// Whether `choice` certainly costs less processor time than `other`, by [`LEAD`] or more.
    fn saves(&self, choice: &Choice, other: &Choice) -> bool {
        let of = |choice: &Choice| self.config(&choice.interface, choice.cores, choice.depth);
        self.study
            .ratio(Metric::CpuUsPerIo, &of(other), &of(choice))
            .is_some_and(|lead| lead.mid >= LEAD && lead.bounds.is_none_or(|(low, _)| low > 1.0))
    }

    /// Whether `first` is certainly faster than `other`, by [`LEAD`] or more.
    fn leads(&self, first: &Choice, other: &Choice) -> bool {
        let of = |choice: &Choice| self.config(&choice.interface, choice.cores, choice.depth);
        self.study
            .ratio(Metric::IosPerS, &of(first), &of(other))
            .is_some_and(|lead| lead.mid >= LEAD && lead.bounds.is_none_or(|(low, _)| low > 1.0))
    }

    fn nothing(&self) -> String {
        match self.question.latency_us_max {
            Some(latency_us) => {
                let least = self
                    .names()
                    .flat_map(|name| {
                        self.depths(name, self.cores)
                            .into_iter()
                            .filter_map(|depth| self.at(name, self.cores, depth))
                    })
                    .min_by(|a, b| a.p99_us.total_cmp(&b.p99_us));
                match least {
                    Some(least) => format!(
                        "nothing measured has a 99th percentile of {latency_us} us or less; the least is {:.0} us, {} at queue \
                         depth {}",
                        least.p99_us, least.interface, least.depth
                    ),
                    None => self.nothing_measured(),
                }
            }
            None => self.nothing_measured(),
        }
    }

    fn nothing_measured(&self) -> String {
        match self.question.mix == Mix::default() {
            true => "the study has no runs of one thread by queue depth at these cores: it needs experiment s1-fig2".to_owned(),
            false => "the study has no runs of such requests: without --study they are measured".to_owned(),
        }
    }

    fn reasons(&self, choice: &Choice, ranked: &[Choice]) -> Vec<String> {
        let mut reasons = Vec::new();
        for other in ranked.iter().filter(|other| other.interface != choice.interface) {
            let times = choice.ios_per_s / other.ios_per_s.max(1e-9);
            reasons.push(if self.leads(choice, other) {
                format!(
                    "{times:.2} times the IOPS of {} ({} at queue depth {})",
                    other.interface,
                    thousands(other.ios_per_s),
                    other.depth
                )
            } else if self.saves(choice, other) {
                format!(
                    "{:.1} us of processor time per I/O against {:.1} of {}, which is {} ({} IOPS at queue depth {})",
                    choice.cpu_us_per_io,
                    other.cpu_us_per_io,
                    other.interface,
                    if times >= 1.0 { "not faster" } else { "hardly or not surely faster" },
                    thousands(other.ios_per_s),
                    other.depth
                )
            } else {
                format!(
                    "no difference that could be measured from {} ({} IOPS at queue depth {})",
                    other.interface,
                    thousands(other.ios_per_s),
                    other.depth
                )
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
    fn warn(&self, choice: &Choice, warnings: &mut Vec<String>) {
        for name in self.names().filter(|name| has_kernel_thread(name)) {
            let plain = name.replace("+k", "");
            let Some(tight) = self.at(name, 1, choice.depth) else { continue };
            let Some(other) = self.at(&plain, 1, choice.depth) else { continue };
            let share = tight.ios_per_s / other.ios_per_s.max(1e-9);
            if share > 0.9 {
                continue;
            }
            warnings.push(format!(
                "without a spare core for the kernel's thread {name} collapses: {} IOPS and a median of {:.0} us on one core, where \
                 {plain} has {} and {:.0} us (queue depth {})",
                thousands(tight.ios_per_s),
                tight.p50_us,
                thousands(other.ios_per_s),
                other.p50_us,
                choice.depth
            ));
        }
    }

    fn changes(&self, choice: &Choice, cores: u32, drives: u32, changes: &mut Vec<String>) {
        // More cores, or fewer.
        let other_cores = if self.cores >= 2 { 1 } else { 2 };
        let there = Advisor { study: self.study, question: self.question, cores: other_cores };
        let mut ranked: Vec<Choice> = there
            .names()
            .filter(|name| other_cores >= 2 || !has_kernel_thread(name))
            .filter_map(|name| there.best(name, other_cores))
            .collect();
        ranked.sort_by(|a, b| b.ios_per_s.total_cmp(&a.ios_per_s));
        if let Some(then) = there.choose(&ranked).filter(|then| then.interface != choice.interface)
        {
            let words = if other_cores == 1 { "one core" } else { "two cores" };
            changes.push(format!(
                "with {words} for each drive ({cores} for {drives} now): {}, {} IOPS measured",
                then.interface,
                thousands(then.ios_per_s)
            ));
        }
        // A deeper queue.
        if self.question.latency_us_max.is_none() {
            let free = Question { depth: None, ..*self.question };
            let deeper = Advisor { study: self.study, question: &free, cores: self.cores };
            let mut ranked: Vec<Choice> = deeper
                .names()
                .filter(|name| self.cores >= 2 || !has_kernel_thread(name))
                .filter_map(|name| deeper.best(name, self.cores))
                .collect();
            ranked.sort_by(|a, b| b.ios_per_s.total_cmp(&a.ios_per_s));
            if let Some(then) = deeper.choose(&ranked)
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
        // What is not there.
        for known in &self.study.interfaces {
            let Some(reason) = &known.unavailable else {
                if self.needs_whole_drive(&known.name) {
                    changes.push(format!("without a file system on the drive: {}", known.name));
                }
                continue;
            };
            if self.needs_whole_drive(&known.name) {
                continue;
            }
            changes.push(missing(known, reason));
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Measure;
    use crate::synthetic::{speed, study};

    /// S1's figures, at every depth alike but for 1.
    fn s1(config: &Config, round: u32) -> Option<Measure> {
        let at_load = match (config.interface.as_str(), config.cores) {
            ("io_uring+k", 1) => 13e3,
            ("io_uring+k", _) => 260e3,
            ("io_uring", 1) => 171e3,
            ("io_uring", _) => 182e3,
            ("libaio", 1) => 145e3,
            ("libaio", _) => 150e3,
            ("io_uring_cmd", _) => 300e3,
            _ => 100e3,
        };
        let share = f64::from(config.depth.min(64)) / 64.0;
        Some(speed(config, round, at_load * share))
    }

    const ALL: [&str; 3] = ["libaio", "io_uring", "io_uring+k"];

    #[test]
    fn two_cores_take_the_kernel_thread_and_are_warned() {
        let study = study(2, 1, &ALL, s1);
        let advice = advise(&study, &Question::default());
        let choice = advice.choice.unwrap();
        assert_eq!((choice.interface.as_str(), choice.cores), ("io_uring+k", 2));
        assert!(advice.warnings[0].contains("collapses"), "{:?}", advice.warnings);
        assert!(
            advice
                .changes
                .iter()
                .any(|text| text.contains("one core") && text.contains("io_uring,")),
            "{:?}",
            advice.changes
        );
        assert!(advice.reasons[0].contains("1.4"), "{:?}", advice.reasons);
    }

    #[test]
    fn one_core_never_takes_the_kernel_thread() {
        let question = Question { cores: Some(1), ..Question::default() };
        let advice = advise(&study(2, 1, &ALL, s1), &question);
        assert_eq!(advice.choice.unwrap().interface, "io_uring");
        assert!(advice.warnings[0].contains("io_uring+k collapses"), "{:?}", advice.warnings);
        assert!(
            advice.changes[0].contains("two cores") && advice.changes[0].contains("io_uring+k"),
            "{:?}",
            advice.changes
        );
        // Not even where it measured fastest.
        let fast = study(2, 1, &ALL, |config, round| {
            let k = config.interface == "io_uring+k";
            Some(speed(config, round, if k { 900e3 } else { 100e3 }))
        });
        let choice = advise(&fast, &question).choice.unwrap();
        assert!(!choice.interface.contains("+k"));
        // Nor with two drives on two cores.
        let two = study(2, 2, &ALL, s1);
        assert_eq!(advise(&two, &Question::default()).choice.unwrap().interface, "io_uring");
    }

    #[test]
    fn a_lead_that_is_none_goes_to_the_cheaper() {
        let alike = study(2, 1, &["libaio", "io_uring"], |config, round| {
            let uring = config.interface == "io_uring";
            let measure = speed(config, round, if uring { 100e3 } else { 102e3 });
            Some(Measure { cpu_us_per_io: if uring { 4.0 } else { 9.0 }, ..measure })
        });
        let advice = advise(&alike, &Question::default());
        assert_eq!(advice.choice.unwrap().interface, "io_uring");
        assert!(advice.reasons[0].contains("4.0 us of processor time"), "{:?}", advice.reasons);
    }

    #[test]
    fn chance_is_no_reason() {
        // Alike in everything but noise: in half of the rounds one is ahead, in half the other.
        let alike = study(2, 1, &["libaio", "io_uring"], |config, round| {
            let uring = config.interface == "io_uring";
            let ahead = (round % 2 == 0) == uring;
            let measure = speed(config, round, if ahead { 104e3 } else { 100e3 });
            Some(Measure { cpu_us_per_io: if ahead { 4.8 } else { 5.1 }, ..measure })
        });
        let reasons = advise(&alike, &Question::default()).reasons;
        assert!(reasons[0].contains("no difference that could be measured"), "{reasons:?}");
    }

    #[test]
    fn depth_and_latency_bound_the_answer() {
        let study = study(2, 1, &ALL, s1);
        let question = Question { depth: Some(5), ..Question::default() };
        let advice = advise(&study, &question);
        assert_eq!(advice.choice.unwrap().depth, 4);
        assert!(advice.reasons.iter().any(|text| text.contains("nearest to 5")));
        assert!(advice.changes.iter().any(|text| text.contains("deeper queue")));
        // Latency is depth over speed: of io_uring+k, 3 * 64 / 260e3 s at depth 64 and half of the
        // rate at 128.
        let question = Question { latency_us_max: Some(1000.0), ..Question::default() };
        let choice = advise(&study, &question).choice.unwrap();
        assert!(choice.p99_us <= 1000.0 && choice.interface == "io_uring+k", "{choice:?}");
        let question = Question { latency_us_max: Some(1.0), ..Question::default() };
        let advice = advise(&study, &question);
        assert!(advice.choice.is_none() && advice.reasons[0].contains("the least is"));
    }

    #[test]
    fn depths_of_one_alone_do_not_count() {
        // Deep queues are measured with one interface only, and are fastest.
        let study = study(2, 1, &ALL, |config, round| {
            Some(speed(config, round, 1e3 * f64::from(config.depth)))
        });
        assert!(study.point(&Config::new("io_uring", 2).depth(512)).is_some());
        assert_eq!(advise(&study, &Question::default()).choice.unwrap().depth, 128);
    }

    #[test]
    fn a_file_system_rules_out_passthrough() {
        let study = study(2, 1, &["libaio", "io_uring", "io_uring_cmd"], s1);
        let free = advise(&study, &Question::default());
        assert_eq!(free.choice.unwrap().interface, "io_uring_cmd");
        let bound = advise(&study, &Question { filesystem: true, ..Question::default() });
        assert_eq!(bound.choice.unwrap().interface, "io_uring");
        assert!(bound.changes.iter().any(|text| text.contains("without a file system")));
    }

    #[test]
    fn what_is_missing_would_change_the_answer() {
        let mut study = study(2, 1, &ALL, s1);
        study.interfaces.push(InterfaceReport {
            name: "io_uring+p".to_owned(),
            about: String::new(),
            ran_as: None,
            unavailable: Some("no poll queues".to_owned()),
            way_out: Some("nvme.poll_queues=2".to_owned()),
        });
        let changes = advise(&study, &Question::default()).changes;
        assert!(changes.iter().any(|text| text.contains("no poll queues; nvme.poll_queues=2")));
    }

    #[test]
    fn another_mix_is_another_question() {
        let mix = Mix { read_percent: 30, block_bytes: 16384 };
        let question = Question { mix, ..Question::default() };
        // Reads say io_uring+k; of such requests the study knows nothing.
        let reads = study(2, 1, &ALL, s1);
        let advice = advise(&reads, &question);
        assert!(advice.choice.is_none() && advice.reasons[0].contains("such requests"));
        let of_mix = crate::synthetic::study_of_mix(mix, &ALL, |config, round| {
            assert_eq!((config.read_percent, config.block_bytes), (30, 16384));
            let fast = config.interface == "libaio";
            Some(speed(config, round, if fast { 200e3 } else { 100e3 }))
        });
        assert_eq!(advise(&of_mix, &question).choice.unwrap().interface, "libaio");
    }

    #[test]
    fn without_measurements_nothing_is_advised() {
        let advice = advise(&study(2, 1, &ALL, |_, _| None), &Question::default());
        assert!(advice.choice.is_none() && advice.reasons[0].contains("s1-fig2"));
    }
}
