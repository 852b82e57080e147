//! The verdicts of a study on the papers' findings.
//!
//! Invariants:
//! - Every finding of the papers has a row, with its needs and its judge.
//! - A test is stated in words and in code, with its threshold. A verdict has the intervals on
//!   which it rests.
//! - If a finding cannot be tested, the verdict gives the reason: what the machine lacks, an
//!   experiment that was not run, or failed runs. The finding is never assumed to hold, and never
//!   counted as failed. The same is true of a part of a finding.

use qpair_plots::Interval;

use crate::config::Config;
use crate::finding::Finding;
use crate::outcome::Outcome;
use crate::papers::catalogue;
use crate::report::StudyReport;
use crate::verdict::{Evidence, Verdict};
use crate::view::{NOT_MEASURED, View, not_run};

/// Returns the verdicts on all findings, in the order of the papers.
#[must_use]
pub fn judge(report: &StudyReport) -> Vec<Verdict> {
    catalogue().map(|finding| verdict(finding, &View::of(report))).collect()
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
        .filter_map(|finding| {
            let view = View::of(report);
            let outcome = verdict(finding, &view).outcome;
            let (configs, clear) = (view.asked.into_inner(), outcome != Outcome::Undecided);
            (outcome != Outcome::NotTestable && !configs.is_empty())
                .then_some(Comparison { configs, clear })
        })
        .collect()
}

fn verdict(finding: &Finding, view: &View<'_>) -> Verdict {
    let lacks = finding.lacks(&view.report.here());
    let judged = match lacks.is_empty() {
        true => (finding.judge)(view),
        false => Err(lacks.join("; ")),
    };
    let (outcome, why, evidence) = match judged {
        Err(why) => {
            let ran = view.report.experiment(finding.experiment).is_some();
            let why = if why.starts_with(NOT_MEASURED) && !ran {
                not_run(finding.experiment)
            } else {
                why
            };
            (Outcome::NotTestable, Some(why), Vec::new())
        }
        Ok(evidence) if !evidence.iter().any(Evidence::is_part) => {
            let why = "the paper states no result to compare these figures with".to_owned();
            (Outcome::NotTestable, Some(why), evidence)
        }
        Ok(mut evidence) => {
            if let Some(against) = &view.report.against {
                for (at, part) in evidence.iter_mut().enumerate() {
                    let range = against.range(finding.name, at, part.wanted);
                    range.into_iter().for_each(|range| part.cover(range));
                }
            }
            let parts = evidence.iter().filter(|part| part.is_part());
            let outcome = Outcome::all(parts.map(|part| part.outcome));
            (outcome, reason(outcome, &evidence), evidence)
        }
    };
    let before = view.report.against.as_ref().and_then(|against| {
        let (_, before) = against.outcomes.iter().find(|(name, _)| name == finding.name)?;
        (*before != outcome).then_some(*before)
    });
    Verdict {
        finding: finding.name.to_owned(),
        source: finding.source.to_owned(),
        experiment: finding.experiment.to_owned(),
        claim: finding.claim.to_owned(),
        test: finding.test.to_owned(),
        outcome,
        why,
        of_model: finding.is_of_model(&view.report.here()),
        before,
        evidence,
    }
}

/// Returns the reason for an outcome that says less than the claim.
fn reason(outcome: Outcome, evidence: &[Evidence]) -> Option<String> {
    match outcome {
        Outcome::Undecided => {
            let unknown = |part: &Evidence| part.untested.is_none() && part.low.is_none();
            // The threshold is outside of the interval, and inside of it with the earlier studies.
            let is_old = |part: &Evidence| {
                let alone = Interval { mid: part.mid, bounds: part.low.zip(part.high) };
                let judged = part.wanted.map(|wanted| wanted.judge(&alone));
                part.sessions.is_some() && judged.is_some_and(|judged| judged != part.outcome)
            };
            let old = evidence.iter().find(|part| is_old(part)).and_then(|part| part.sessions);
            Some(match (evidence.iter().any(unknown), old) {
                (true, _) => "too few blocks of runs, or too short ones: no interval".to_owned(),
                (false, Some((least, most))) => format!(
                    "studies of this machine in the same state differ: from {least} to {most}"
                ),
                (false, None) => "the interval includes the threshold".to_owned(),
            })
        }
        Outcome::NotTestable => {
            let mut whys: Vec<&str> =
                evidence.iter().filter_map(|part| part.untested.as_deref()).collect();
            whys.dedup();
            Some(whys.join("; "))
        }
        Outcome::Holds | Outcome::HoldsInPart | Outcome::DoesNotHold => None,
    }
}
