//! Comparison of two studies: of their common points and of their verdicts.

use qpair_plots::Interval;
use serde::Serialize;

use crate::measure::{Metric, digits};
use crate::outcome::Outcome;
use crate::report::StudyReport;
use crate::verdict::Verdict;

/// The differences between two studies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    /// Points of both studies whose throughput intervals do not overlap, the largest difference
    /// first.
    pub points: Vec<PointDiff>,
    /// The number of points of both studies whose intervals overlap.
    pub alike: usize,
    /// The number of points that only one of the studies has.
    pub alone: usize,
    /// Findings with different outcomes.
    pub verdicts: Vec<VerdictDiff>,
    /// Reasons why the studies may not be comparable.
    pub notes: Vec<String>,
}

/// A point that differs between two studies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PointDiff {
    /// The point, in words.
    pub point: String,
    /// The ratio of I/Os a second: second study over first.
    pub times: f64,
    /// I/Os a second in the first study.
    pub before: f64,
    /// I/Os a second in the second study.
    pub after: f64,
}

/// A finding whose outcome differs between two studies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerdictDiff {
    /// The name of the finding.
    pub finding: String,
    /// The outcome in the first study.
    pub before: Outcome,
    /// The outcome in the second study.
    pub after: Outcome,
}

/// Compares two studies. Their runs lie far apart in time, so runs are not paired: a point differs
/// if its two intervals do not overlap.
#[must_use]
pub fn diff(before: &StudyReport, after: &StudyReport) -> Diff {
    let mut all = Diff {
        points: Vec::new(),
        alike: 0,
        alone: 0,
        verdicts: Vec::new(),
        notes: notes(before, after),
    };
    for point in &before.points {
        let Some(other) = after.point(&point.config) else {
            all.alone += 1;
            continue;
        };
        let ends = (point.interval(Metric::IosPerS), other.interval(Metric::IosPerS));
        let (Some(first), Some(second)) = ends else {
            all.alone += 1;
            continue;
        };
        if !apart(&first, &second) {
            all.alike += 1;
            continue;
        }
        all.points.push(PointDiff {
            point: point.config.to_string(),
            times: digits(second.mid / first.mid),
            before: first.mid,
            after: second.mid,
        });
    }
    all.alone += after.points.iter().filter(|one| before.point(&one.config).is_none()).count();
    let far = |one: &PointDiff| one.times.ln().abs();
    all.points.sort_by(|a, b| far(b).total_cmp(&far(a)));
    let same = |one: &&Verdict, other: &Verdict| one.finding == other.finding;
    for verdict in &before.verdicts {
        let other = after.verdicts.iter().find(|other| same(other, verdict));
        if let Some(other) = other.filter(|other| other.outcome != verdict.outcome) {
            all.verdicts.push(VerdictDiff {
                finding: verdict.finding.clone(),
                before: verdict.outcome,
                after: other.outcome,
            });
        }
    }
    all
}

/// Whether two intervals do not overlap. A single run has no interval and never differs.
fn apart(first: &Interval, second: &Interval) -> bool {
    let bounds = first.bounds.zip(second.bounds);
    bounds.is_some_and(|(first, second)| first.1 < second.0 || second.1 < first.0)
}

fn notes(before: &StudyReport, after: &StudyReport) -> Vec<String> {
    let mut notes = Vec::new();
    let mut differ = |what: &str, first: String, second: String| {
        if first != second {
            notes.push(format!("{what}: {first}; then {second}"));
        }
    };
    differ("machines", before.machine.one_line(), after.machine.one_line());
    differ("cores", before.cores.to_string(), after.cores.to_string());
    let devices = |study: &StudyReport| {
        study.devices.iter().map(|one| one.about.clone()).collect::<Vec<_>>().join("; ")
    };
    differ("devices", devices(before), devices(after));
    differ("programs", before.program.clone(), after.program.clone());
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{slower, speed, study_of};

    fn one(cores: usize, k_times_slower: f64) -> StudyReport {
        let experiments = vec![crate::find("s1-fig2").unwrap()];
        let names = ["libaio", "io_uring", "io_uring+k"];
        study_of(experiments, cores, 1, &names, |config, round| {
            let mut measure = speed(config, round, 100e3);
            if config.interface == "io_uring+k" && config.cores == 1 {
                slower(&mut measure, k_times_slower);
            }
            Some(measure)
        })
    }

    #[test]
    fn what_differs_is_told_and_what_does_not_is_not() {
        let found = diff(&one(2, 1.0), &one(2, 1.0));
        assert!(found.points.is_empty() && found.verdicts.is_empty() && found.notes.is_empty());
        assert!(found.alike > 20 && found.alone == 0, "{found:?}");
        let found = diff(&one(2, 1.0), &one(2, 13.0));
        assert!(
            found
                .points
                .iter()
                .all(|point| point.point.starts_with("io_uring+k: 1 thread on 1 core,"))
        );
        assert!((found.points[0].times - 1.0 / 13.0).abs() < 0.01, "{found:?}");
        let collapse =
            found.verdicts.iter().find(|one| one.finding == "s1-kernel-thread-collapses");
        let outcomes = collapse.map(|one| (one.before, one.after));
        assert_eq!(outcomes, Some((Outcome::DoesNotHold, Outcome::Holds)));
        let found = diff(&one(2, 1.0), &one(1, 1.0));
        assert!(found.alone > 5 && found.notes[0].contains("cores: 2; then 1"), "{found:?}");
    }
}
