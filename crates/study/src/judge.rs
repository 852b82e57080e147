//! The verdicts of a study on the papers' findings.
//!
//! Invariants:
//! - Every finding of the papers has a row, with a test or with the requirements of a test.
//! - A test is stated in words and in code, with its threshold. A verdict has the intervals on
//!   which it rests.
//! - If a finding cannot be tested, the verdict gives the reason: an interface that does not open,
//!   missing devices, or failed runs. The finding is never assumed to hold, and never counted as
//!   failed.

use qpair_plots::Confidence;

use crate::config::Config;
use crate::finding::{Finding, Row};
use crate::outcome::Outcome;
use crate::papers::catalogue;
use crate::report::StudyReport;
use crate::verdict::{Evidence, Verdict};
use crate::view::{NOT_MEASURED, View, not_run};

/// Returns the verdicts on all findings, in the order of the papers.
#[must_use]
pub fn judge(report: &StudyReport) -> Vec<Verdict> {
    let of = |row: &Row| {
        row.tested().map_or_else(|| untested(row), |one| verdict(one, &View::of(report)))
    };
    catalogue().map(of).collect()
}

/// The points that a finding compares.
#[derive(Debug)]
pub(crate) struct Comparison {
    /// The points of the finding that can be run here, each once.
    pub(crate) configs: Vec<Config>,
    /// Whether more runs are unlikely to change the verdict.
    pub(crate) clear: bool,
}

/// Returns the comparisons of all findings that can be tested here, judged by the runs so far.
pub(crate) fn comparisons(report: &StudyReport) -> Vec<Comparison> {
    catalogue()
        .filter_map(Row::tested)
        .filter_map(|finding| {
            let view = View { confidence: Confidence::Clear, ..View::of(report) };
            let outcome = verdict(finding, &view).outcome;
            let (configs, clear) = (view.asked.into_inner(), outcome != Outcome::Undecided);
            (outcome != Outcome::NotTestable && !configs.is_empty())
                .then_some(Comparison { configs, clear })
        })
        .collect()
}

/// Returns the verdict on a finding that no study tests.
fn untested(row: &Row) -> Verdict {
    Verdict {
        finding: row.name().to_owned(),
        source: row.source().to_owned(),
        experiment: String::new(),
        claim: row.claim().to_owned(),
        test: String::new(),
        outcome: Outcome::NotTestable,
        why: row.because(),
        evidence: Vec::new(),
    }
}

fn verdict(finding: &Finding, view: &View<'_>) -> Verdict {
    let (outcome, why, evidence) = match (finding.judge)(view) {
        Err(why) => {
            let ran = view.report.experiment(finding.experiment).is_some();
            let why = if why.starts_with(NOT_MEASURED) && !ran {
                not_run(finding.experiment)
            } else {
                why
            };
            (Outcome::NotTestable, Some(why), Vec::new())
        }
        Ok(evidence) => {
            let outcome = Outcome::all(
                evidence.iter().filter(|part| part.wanted.is_some()).map(|part| part.outcome),
            );
            let why = (outcome == Outcome::Undecided).then(|| undecided(&evidence));
            (outcome, why, evidence)
        }
    };
    Verdict {
        finding: finding.name.to_owned(),
        source: finding.source.to_owned(),
        experiment: finding.experiment.to_owned(),
        claim: finding.claim.to_owned(),
        test: finding.test.to_owned(),
        outcome,
        why,
        evidence,
    }
}

fn undecided(evidence: &[Evidence]) -> String {
    if evidence.iter().any(|part| part.low.is_none()) {
        return "too few runs, or too short ones: no interval".to_owned();
    }
    "the interval includes the threshold".to_owned()
}
