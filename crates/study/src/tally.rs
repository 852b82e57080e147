//! The numbers of verdicts: a row for each paper.

use crate::outcome::Outcome;
use crate::papers::{PAPERS, Paper};
use crate::report::StudyReport;
use crate::verdict::Verdict;

/// The verdicts on the findings of one paper.
#[derive(Clone, Debug)]
pub(crate) struct Tally<'a> {
    pub(crate) paper: Paper,
    pub(crate) verdicts: Vec<&'a Verdict>,
    /// The number of findings in each of [`COLUMNS`].
    pub(crate) counts: [usize; COLUMNS.len()],
}

/// The columns of a row of counts. Each finding is in one of them.
pub(crate) const COLUMNS: [&str; 7] = [
    "holds",
    "in part",
    "does not hold",
    "undecided",
    "not run",
    "can't be tested here",
    "of a model",
];

/// Returns a row for each paper, in their order.
pub(crate) fn tallies(report: &StudyReport) -> impl Iterator<Item = Tally<'_>> {
    PAPERS.iter().map(|&paper| {
        let start = format!("{}-", paper.id.to_lowercase());
        let verdicts: Vec<&Verdict> =
            report.verdicts.iter().filter(|one| one.finding.starts_with(&start)).collect();
        let mut counts = [0; COLUMNS.len()];
        verdicts.iter().for_each(|verdict| counts[column(report, verdict)] += 1);
        Tally { paper, verdicts, counts }
    })
}

fn column(report: &StudyReport, verdict: &Verdict) -> usize {
    let has_test = !verdict.experiment.is_empty();
    match verdict.outcome {
        _ if verdict.of_model => 6,
        Outcome::Holds => 0,
        Outcome::HoldsInPart => 1,
        Outcome::DoesNotHold => 2,
        Outcome::Undecided => 3,
        Outcome::NotTestable if has_test && report.experiment(&verdict.experiment).is_none() => 4,
        Outcome::NotTestable => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{speed, study_of};

    #[test]
    fn every_finding_is_in_one_column() {
        let experiments = vec![crate::find("s1-fig2").unwrap()];
        let report = study_of(experiments, 2, 1, &["libaio", "io_uring"], |config, round| {
            Some(speed(config, round, 100e3))
        });
        let all: Vec<Tally> = tallies(&report).collect();
        assert_eq!(all.iter().map(|one| one.paper.id).collect::<String>(), "S1S2S3S4S5");
        for one in &all {
            assert_eq!(one.counts.iter().sum::<usize>(), one.verdicts.len(), "{one:?}");
        }
        let total: usize = all.iter().map(|one| one.verdicts.len()).sum();
        assert_eq!(total, report.verdicts.len());
        // s1-shallow-alike holds where nothing differs, and s1-second-core does so for the two
        // interfaces that there are; Figure 3 was not run.
        assert!(all[0].counts[..2].iter().all(|count| *count > 0), "{all:?}");
        assert!(all[0].counts[4] > 0, "{all:?}");
        // The two of S4 that are of a model are counted apart, though they were not run either.
        assert!(all[3].counts[4] > 5 && all[3].counts[6] == 2, "{all:?}");
    }
}
