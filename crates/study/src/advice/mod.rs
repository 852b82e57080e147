//! Advice on which interface to use on this machine, derived from a study. The same study and
//! question always give the same answer.
//!
//! Invariants:
//! - An interface is advised only if it was measured at the cores and the depth that the answer
//!   names.
//! - A kernel thread (`+k`) is never advised with fewer than two cores for each drive.
//! - A faster interface is advised only if its lead is 5 % or more and the whole interval of the
//!   ratio lies above one. Otherwise an interface that costs less processor time by the same test
//!   is advised. If neither holds, the answer says that no difference could be measured.

mod advisor;
mod answer;
#[cfg(test)]
mod tests;

use serde::Serialize;

use self::advisor::Advisor;
use crate::config::Mix;
use crate::report::StudyReport;

pub(crate) use answer::COMPARES;
pub use answer::{Answer, answer};

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

/// Answers a question from a study.
#[must_use]
pub fn advise(study: &StudyReport, question: &Question) -> Advice {
    let advisor = Advisor::new(study, question);
    let ranked = advisor.ranked();
    let allowed: Vec<Choice> =
        ranked.iter().filter(|choice| advisor.may_advise(&choice.interface)).cloned().collect();
    let mut advice = Advice {
        choice: advisor.choose(&allowed),
        reasons: vec![],
        warnings: vec![],
        changes: vec![],
        others: vec![],
    };
    let Some(choice) = &advice.choice else {
        advice.reasons.push(advisor.nothing());
        return advice;
    };
    advice.reasons = advisor.reasons(choice, &allowed);
    advice.warnings = advisor.warnings(choice);
    advice.changes = advisor.changes(choice);
    advice.others =
        ranked.into_iter().filter(|other| other.interface != choice.interface).collect();
    advice
}
