//! The report as text, in the order of the page: the answer, a plot, the papers, the findings.

use qpair_plots::thousands;

use crate::advice::{Choice, answer};
use crate::experiment::cores_words;
use crate::outcome::Outcome;
use crate::perf_table::perf_table;
use crate::report::StudyReport;
use crate::tally::{COLUMNS, tallies};

/// Returns the lines of the report.
#[must_use]
pub fn to_text(report: &StudyReport) -> Vec<String> {
    let answer = answer(report);
    let mut lines = answer.sentences;
    lines.extend(answer.doubts);
    let mut shown: Vec<Choice> = answer.choice.into_iter().chain(answer.others).collect();
    shown.sort_by(|a, b| b.ios_per_s.total_cmp(&a.ios_per_s));
    if let Some(first) = shown.first() {
        let cores = cores_words(first.cores);
        lines.extend([String::new(), format!("IOPS on {cores}, each at its best queue depth")]);
        lines.extend(shown.iter().map(|one| bar(one, first.ios_per_s)));
    }
    lines.push(String::new());
    let header = COLUMNS.map(|name| format!("  {name}")).concat();
    lines.push(format!("paper{header}"));
    for tally in tallies(report) {
        let cells =
            tally.counts.iter().zip(COLUMNS).map(|(n, name)| format!("  {n:>0$}", name.len()));
        lines.push(format!("{:<5}{}", tally.paper.id, cells.collect::<String>()));
    }
    lines.push(String::new());
    let shown = [Outcome::Holds, Outcome::HoldsInPart, Outcome::DoesNotHold, Outcome::Undecided];
    for outcome in shown {
        for verdict in report.verdicts.iter().filter(|verdict| verdict.outcome == outcome) {
            let of_model = if verdict.of_model { ", of a model" } else { "" };
            let source = format!("{}{of_model}", verdict.source);
            lines.push(format!("{:<14} {}  ({source})", outcome.words(), verdict.claim));
        }
    }
    lines.push(String::new());
    let differing: Vec<String> = report
        .verdicts
        .iter()
        .filter_map(|verdict| {
            let words = verdict.differs_words(verdict.before?);
            Some(format!("{}: {}, {words}", verdict.finding, verdict.outcome.words()))
        })
        .collect();
    if !differing.is_empty() {
        lines.extend(differing);
        lines.push(String::new());
    }
    let table = perf_table(report);
    if !table.is_empty() {
        lines.extend(table);
        lines.push(String::new());
    }
    let runs: usize = report.points.iter().map(|point| point.runs.len()).sum();
    lines.push(format!(
        "{} configurations, {runs} runs, {:.0} s; {}",
        report.points.len(),
        report.took_s,
        report.machine.one_line()
    ));
    let device = |one: &crate::Device| format!("{}: {}", one.spec, one.about);
    lines.extend(report.devices.iter().map(device));
    lines.extend(report.resolution().map(|resolution| resolution.words()));
    match report.points.iter().filter(|point| point.runs.is_empty()).count() {
        0 => {}
        failed => {
            lines.push(format!("{failed} configurations could not be run; the report says why"));
        }
    }
    lines
}

fn bar(choice: &Choice, most: f64) -> String {
    const WIDTH: f64 = 40.0;
    let bar = "#".repeat((WIDTH * choice.ios_per_s / most).round() as usize);
    format!("  {:<14} {:>11}  {bar}", choice.interface, thousands(choice.ios_per_s))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{slower, speed, study};

    #[test]
    fn the_answer_is_first() {
        let report = study(2, 1, &["libaio", "io_uring"], |config, round| {
            let mut measure = speed(config, round, 100e3);
            slower(&mut measure, if config.interface == "libaio" { 2.0 } else { 1.0 });
            Some(measure)
        });
        let lines = to_text(&report);
        assert!(lines[0].starts_with("Use io_uring with "), "{lines:#?}");
        let place = |start: &str| lines.iter().position(|line| line.starts_with(start)).unwrap();
        let order =
            ["IOPS on two cores", "paper  holds", "S1 ", "S5 ", "holds  ", "does not hold  "];
        let places = order.map(place);
        assert!(places.is_sorted(), "{places:?} {lines:#?}");
        // The bar is as long as the interface's share of the fastest.
        let bar = |name: &str| lines[place(&format!("  {name}"))].matches('#').count();
        assert_eq!((bar("io_uring"), bar("libaio")), (40, 20), "{lines:#?}");
        let failed = to_text(&study(2, 1, &["libaio"], |_, _| None));
        assert!(
            failed[0].contains("does not say") && failed[2].starts_with("paper"),
            "{failed:#?}"
        );
    }
}
