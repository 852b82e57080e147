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
    /// Whether the points are of drives made of software, so that the verdict is on a model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_model: bool,
    /// The outcome in the last study, if it was another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Outcome>,
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
    /// The lower end of the 99 % interval; `None` with one block of runs.
    pub low: Option<f64>,
    /// The upper end of the 99 % interval; `None` with one block of runs.
    pub high: Option<f64>,
    /// The threshold of the finding; `None`: the number is for information only.
    pub wanted: Option<Threshold>,
    /// The outcome for this number.
    pub outcome: Outcome,
    /// The reason why this part of the claim could not be tested; it has no number then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untested: Option<String>,
    /// The lowest and the highest value in this study and in earlier ones of the same machine in
    /// the same state, if there are any. The outcome covers them too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<(f64, f64)>,
}

impl Verdict {
    /// Says that the last study had another outcome.
    pub(crate) fn differs_words(&self, before: Outcome) -> String {
        let reversed = if self.outcome.is_reverse_of(before) { ", and is reversed" } else { "" };
        format!("differs from the last study (\"{}\"){reversed}", before.words())
    }
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
            untested: None,
            sessions: None,
        }
    }

    /// Returns a part of a claim that could not be tested, with the reason.
    pub(crate) fn untested(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            outcome: Outcome::NotTestable,
            untested: Some(why.into()),
            ..Self::told(what, Interval { mid: 0.0, bounds: None })
        }
    }

    /// Widens the interval to the values of earlier studies, and judges it again. The spread within
    /// a study says nothing about the difference between two days.
    pub(crate) fn cover(&mut self, (least, most): (f64, f64)) {
        let (Some(wanted), Some(low), Some(high)) = (self.wanted, self.low, self.high) else {
            return;
        };
        self.sessions = Some((least.min(self.mid), most.max(self.mid)));
        let bounds = Some((low.min(least), high.max(most)));
        self.outcome = wanted.judge(&Interval { mid: self.mid, bounds });
    }

    /// Whether the number is a part of the claim, and not for information only.
    pub(crate) fn is_part(&self) -> bool {
        self.wanted.is_some() || self.untested.is_some()
    }
}
