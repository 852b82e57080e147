//! Verdicts on findings, and the numbers that they rest on.

use qpair_plots::Interval;
use serde::{Deserialize, Serialize};

use crate::measure::digits;
use crate::outcome::{Outcome, Threshold};

/// The verdict of a study on a finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The name of the finding.
    pub finding: String,
    /// The paper and figure.
    pub source: String,
    /// The experiment that shows the finding; empty if there is none.
    pub experiment: String,
    /// The claim of the paper.
    pub claim: String,
    /// The test that was made.
    pub test: String,
    /// The outcome of the test.
    pub outcome: Outcome,
    /// The reason why the finding could not be tested, or another note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The numbers that the verdict rests on. All of them must meet their thresholds.
    pub evidence: Vec<Evidence>,
}

/// One number that a verdict rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// A description of the number.
    pub what: String,
    /// The median; for ratios, the geometric mean.
    pub mid: f64,
    /// The lower end of the 95 % interval; `None` with one run.
    pub low: Option<f64>,
    /// The upper end of the 95 % interval; `None` with one run.
    pub high: Option<f64>,
    /// The threshold of the finding; `None`: the number is for information only.
    pub wanted: Option<Threshold>,
    /// The outcome for this number.
    pub outcome: Outcome,
}

impl Evidence {
    pub(crate) fn new(what: impl Into<String>, interval: Interval, wanted: Threshold) -> Self {
        Self {
            what: what.into(),
            wanted: Some(wanted),
            outcome: wanted.judge(&interval),
            ..Self::told("", interval)
        }
    }

    pub(crate) fn told(what: impl Into<String>, interval: Interval) -> Self {
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
