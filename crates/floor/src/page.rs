//! The report as an HTML page with plots and all figures.

use std::fmt::Write as _;

use qpair_block::Result;
use qpair_plots::{Chart, Dot, Scale, capital, charts, escape, page};

use crate::load::Workload;
use crate::report::{Point, Report, Turn, Way};
use crate::table::{COLUMNS, cells, counts, in_parts, title};

/// Returns the report as HTML. `begun`: the time at which the measurement began, in words.
///
/// # Errors
/// `Invalid` if a plot cannot be drawn, which would be a bug.
pub fn to_html(report: &Report, begun: &str) -> Result<String> {
    let name = format!("The floor of {}", report.device);
    let mut out = format!(
        "<h1>{}</h1>\n<p class=\"soft\">{}; qpair {}; {}; turns of {} s, {} rounds.</p>\n",
        escape(&name),
        escape(begun),
        escape(&report.program),
        escape(&report.machine.one_line()),
        report.seconds,
        report.repeat
    );
    let _ = write!(out, "<p>{}.</p>\n<ul>", escape(&report.mode));
    for way in report.ways() {
        let _ = write!(out, "<li><strong>{}</strong>: {}</li>", way.name(), escape(way.about()));
    }
    out += "</ul>\n";
    if report.interrupted {
        out += "<p class=\"warning\">It was interrupted: fewer rounds than wanted.</p>\n";
    }
    for note in &report.notes {
        let _ = writeln!(out, "<p class=\"warning\">{}</p>", escape(note));
    }
    for (at, point) in report.points.iter().enumerate() {
        let workload = point.load.workload;
        let is_first = report.points[..at].iter().all(|other| other.load.workload != workload);
        if is_first {
            let _ = writeln!(out, "<h2>{}</h2>", escape(&capital(&workload.words())));
            out += &charts(&charts_of(report, workload))?;
            out += &tables(report, workload);
        }
    }
    Ok(page(&name, &out))
}

fn points(report: &Report, workload: Workload) -> impl Iterator<Item = &Point> {
    report.points.iter().filter(move |point| point.load.workload == workload)
}

/// Returns plots of latency and throughput: by depth for one job, and by number of jobs if there
/// are several.
fn charts_of(report: &Report, workload: Workload) -> Vec<Chart> {
    let chart = |title: &str, by_jobs: bool, figure: fn(&Turn) -> f64| {
        let x_label = if by_jobs { "jobs" } else { "queue depth" };
        let shown: Vec<&Point> =
            points(report, workload).filter(|point| (point.load.jobs > 1) == by_jobs).collect();
        let curve = |way: Way| {
            let at = |point: &&Point| {
                let x = if by_jobs { point.load.jobs } else { point.load.depth };
                let turns = point.ways.iter().find(|turns| turns.way == way)?;
                Some(Dot::of(f64::from(x), &turns.interval(figure)?, 1.0))
            };
            (way.name().to_owned(), shown.iter().filter_map(at).collect())
        };
        let curves = report.ways().into_iter().map(curve).collect();
        let plots = match shown.is_empty() {
            true => Vec::new(),
            false => vec![(format!("{title}, by {x_label}"), curves)],
        };
        Chart::alike(x_label, (Scale::Log, Scale::Log), plots)
    };
    let both = |by_jobs| {
        let mut all = chart("Mean latency, us", by_jobs, |turn| turn.mean_us);
        all.extend(chart("Thousand I/Os per second", by_jobs, |turn| turn.ios_per_s / 1e3));
        all
    };
    [false, true].into_iter().flat_map(both).collect()
}

fn tables(report: &Report, workload: Workload) -> String {
    let mut out = String::new();
    for point in points(report, workload) {
        let _ = write!(
            out,
            "<h3>{}</h3>\n<div class=\"wide\"><table>\n<tr>",
            escape(&capital(&title(point)))
        );
        for (at, name) in std::iter::once("Way").chain(COLUMNS).enumerate() {
            let class = if at == 0 { "" } else { " class=\"number\"" };
            let _ = write!(out, "<th{class}>{name}</th>");
        }
        out += "</tr>\n";
        for way in &point.ways {
            out += "<tr>";
            for (at, cell) in cells(way).iter().enumerate() {
                let class = if at == 0 { "" } else { " class=\"number\"" };
                let _ = write!(out, "<td{class}>{}</td>", escape(cell.trim()));
            }
            out += "</tr>\n";
        }
        out += "</table></div>\n";
        for line in counts(point).chain(point.parts.iter().map(in_parts)) {
            let _ = writeln!(out, "<p class=\"soft\">{}.</p>", escape(&capital(&line)));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::synthetic;

    #[test]
    fn the_page_has_plots_and_bases() {
        let html = to_html(&synthetic(), "today").unwrap();
        assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>\n"));
        assert_eq!(html.matches("<svg role=\"img\"").count(), 2, "latency and IOPS");
        assert_eq!(html.matches("gap, % of the floor").count(), 3, "one for each depth");
        for forbidden in ["<script", "src=", "NaN", "inf<"] {
            assert!(!html.contains(forbidden), "{forbidden}");
        }
    }
}
