//! The summary of a study for people.

use qpair_study::{Outcome, Question, StudyReport, advise};

use crate::show::text::count;

pub(super) fn lines(report: &StudyReport) -> Vec<String> {
    let runs: usize = report.points.iter().map(|point| point.runs.len()).sum();
    let failed = report.points.iter().filter(|point| point.runs.is_empty()).count();
    let mut lines = vec![format!(
        "{} configurations, {} runs, {:.0} s; {}",
        report.points.len(),
        runs,
        report.took_s,
        report.machine.one_line()
    )];
    for device in &report.devices {
        lines.push(format!("{}: {}", device.spec, device.about));
    }
    lines.extend(report.notes.iter().cloned());
    lines.extend(report.resolution().map(|resolution| resolution.words()));
    if failed > 0 {
        lines.push(format!("{failed} configurations could not be run; the report says why"));
    }
    lines.push(String::new());
    for outcome in [Outcome::Holds, Outcome::DoesNotHold, Outcome::Undecided] {
        for verdict in report.verdicts.iter().filter(|verdict| verdict.outcome == outcome) {
            lines.push(format!("{:<14} {}  ({})", outcome.words(), verdict.claim, verdict.source));
        }
    }
    let not = report.verdicts.iter().filter(|verdict| verdict.outcome == Outcome::NotTestable);
    lines.push(format!("{} more findings can't be tested here; the report says why", not.count()));
    lines.push(String::new());
    let drives = report.devices.len().max(1) as u32;
    for (words, cores) in [("one core", drives), ("two cores", 2 * drives)] {
        if cores > report.cores {
            continue;
        }
        let question = Question { cores: Some(cores), ..Question::default() };
        if let Some(choice) = advise(report, &question).choice {
            lines.push(format!(
                "with {words} for each drive: {}, {} IOPS at queue depth {}",
                choice.interface,
                count(choice.ios_per_s as u64),
                choice.depth
            ));
        }
    }
    lines
}
