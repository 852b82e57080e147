//! The part of the report about one experiment.

use std::fmt::Write as _;

use qpair_block::Result;
use qpair_plots::{
    Axis, Chart, Curves, Dot, Interval, Line, Look, Scale, capital, charts, escape, number, range,
};

use crate::cliff::cliff;
use crate::experiment::{Group, Plan, Series, Shown};
use crate::measure::{Metric, QUANTILES};
use crate::perf_table::{TABLE_OF, perf_table};
use crate::report::{ExperimentReport, Point, StudyReport};

/// Returns the section about one experiment as HTML.
pub(super) fn section(report: &StudyReport, experiment: &ExperimentReport) -> Result<String> {
    let mut out = String::new();
    let _ = write!(
        out,
        "<section id=\"{}\">\n<h3>{} <small>{}</small></h3>\n<p>{}.</p>\n<p class=\"soft\">The paper: {}</p>\n",
        experiment.name,
        escape(&experiment.figure),
        escape(&experiment.name),
        escape(&capital(&experiment.shows)),
        escape(&experiment.found),
    );
    for remark in &experiment.plan.remarks {
        let _ = writeln!(out, "<p class=\"soft\">{}</p>", escape(remark));
    }
    for skipped in &experiment.plan.skipped {
        let _ = writeln!(out, "<p>Not done here: {}.</p>", escape(skipped));
    }
    if experiment.plan.configs().next().is_some() {
        if experiment.plan.over_time {
            out += &over_time(report, experiment)?;
        } else {
            out += &summary(report, experiment);
            out += &plots(report, experiment)?;
            out += &table(report, experiment);
        }
        if experiment.name == TABLE_OF {
            let lines = perf_table(report).join("\n");
            let _ = writeln!(out, "<div class=\"wide\"><pre>{}</pre></div>", escape(&lines));
        }
    }
    out += &failures(report, experiment);
    out += "</section>\n";
    Ok(out)
}

/// Returns the figures of an experiment that were measured. Machines without counters, for example,
/// have no instruction counts.
fn shown<'a>(
    report: &'a StudyReport,
    experiment: &'a ExperimentReport,
) -> impl Iterator<Item = Shown> + 'a {
    experiment.plan.shown.iter().copied().filter(|shown| {
        experiment
            .plan
            .configs()
            .any(|config| report.point(config).is_some_and(|p| !p.values(shown.metric).is_empty()))
    })
}

fn interval(report: &StudyReport, config: &crate::Config, metric: Metric) -> Option<Interval> {
    report.point(config).and_then(|point| point.interval(metric))
}

/// Summarizes the highest or lowest value of each plot in a sentence.
fn summary(report: &StudyReport, experiment: &ExperimentReport) -> String {
    let Some(first) = shown(report, experiment).next() else { return String::new() };
    let less_is_more = !matches!(first.metric, Metric::IosPerS | Metric::BytesPerS);
    let (unit, scale) = first.metric.unit();
    let mut sentences = Vec::new();
    for group in &experiment.plan.groups {
        let points = group.series.iter().flat_map(|series| {
            series.points.iter().filter_map(move |(x, config)| {
                Some((&series.label, *x, interval(report, config, first.metric)?))
            })
        });
        let best = points.max_by(|a, b| {
            let order = a.2.mid.total_cmp(&b.2.mid);
            if less_is_more { order.reverse() } else { order }
        });
        if let Some((label, x, interval)) = best {
            let place =
                if group.title.is_empty() { String::new() } else { format!("{}: ", group.title) };
            sentences.push(format!(
                "{place}{} {} {unit}{}, {label} at {} ({})",
                if less_is_more { "least" } else { "most" },
                number(interval.mid / scale),
                range(interval.bounds, scale),
                number_of_axis(x),
                experiment.plan.x_label,
            ));
        }
    }
    if sentences.is_empty() {
        return String::new();
    }
    format!("<p>Measured here: {}.</p>\n", escape(&sentences.join("; ")))
}

fn number_of_axis(x: f64) -> String {
    if x.fract() == 0.0 { format!("{x:.0}") } else { number(x) }
}

/// Plots one figure of one group of an experiment: the first that was measured.
pub(super) fn one_group(
    report: &StudyReport,
    experiment: &ExperimentReport,
    title: &str,
) -> Result<String> {
    let Some(shown) = shown(report, experiment).next() else { return Ok(String::new()) };
    let groups = experiment.plan.groups.iter().filter(|group| group.title == title);
    charts(&figures(report, &experiment.plan, shown, groups))
}

fn plots(report: &StudyReport, experiment: &ExperimentReport) -> Result<String> {
    let plan = &experiment.plan;
    let figures = |shown| figures(report, plan, shown, plan.groups.iter());
    let mut all: Vec<Chart> = shown(report, experiment).flat_map(figures).collect();
    if experiment.latency_against_throughput() {
        all.extend(
            plan.groups.iter().filter_map(|group| latency_against_throughput(report, group)),
        );
        all.extend(plan.groups.iter().flat_map(|group| distributions(report, plan, group)));
    }
    charts(&all)
}

/// Plots one figure for each of some groups, over the same axes.
fn figures<'a>(
    report: &StudyReport,
    plan: &Plan,
    shown: Shown,
    groups: impl Iterator<Item = &'a Group>,
) -> Vec<Chart> {
    let (_, scale) = shown.metric.unit();
    let dot = |(x, config): &(f64, crate::Config)| {
        Some(Dot::of(*x, &interval(report, config, shown.metric)?, scale))
    };
    let plot = |group: &Group| {
        let of = |series: &Series| series.points.iter().filter_map(dot).collect();
        (caption(group, shown.metric, &plan.x_label), curves(group, of))
    };
    Chart::alike(&plan.x_label, (plan.x_scale, shown.scale), groups.map(plot).collect())
}

fn curves(group: &Group, points: impl Fn(&Series) -> Vec<Dot>) -> Curves {
    group.series.iter().map(|series| (series.label.clone(), points(series))).collect()
}

fn caption(group: &Group, metric: Metric, x_label: &str) -> String {
    format!("{}{}, by {x_label}", capital(metric.unit().0), after_comma(&group.title))
}

fn after_comma(title: &str) -> String {
    if title.is_empty() { String::new() } else { format!(", {title}") }
}

/// Plots the median latency against the throughput that was reached with it, along the axis of the
/// experiment.
fn latency_against_throughput(report: &StudyReport, group: &Group) -> Option<Chart> {
    let (x_label, x_scale) = Metric::IosPerS.unit();
    let dot = |(_, config): &(f64, crate::Config)| {
        let x = interval(report, config, Metric::IosPerS)?.mid / x_scale;
        Some(Dot { x, mid: interval(report, config, Metric::P50Us)?.mid, bounds: None })
    };
    let curves = curves(group, |series| series.points.iter().filter_map(dot).collect());
    let dots = || curves.iter().flat_map(|(_, dots)| dots);
    dots().next()?;
    let x = Axis::of_found(Scale::Linear, dots().map(|dot| dot.x));
    let y = Axis::of_found(Scale::Log, dots().map(|dot| dot.mid));
    Some(Chart::new(caption(group, Metric::P50Us, x_label), x_label, (x, y), curves))
}

/// Plots the distribution of latency at the lowest and the highest load: the share of requests that
/// took at most a given time.
fn distributions(report: &StudyReport, plan: &Plan, group: &Group) -> Vec<Chart> {
    let xs = || group.series.iter().flat_map(|series| &series.points).map(|(x, _)| *x);
    let mut loads = vec![xs().fold(f64::INFINITY, f64::min), xs().fold(0.0, f64::max)];
    loads.dedup();
    let chart = |load: f64| {
        let curves = curves(group, |series| {
            let at = series.points.iter().find(|(x, _)| *x == load);
            at.map_or_else(Vec::new, |(_, config)| distribution(report, config))
        });
        let xs: Vec<f64> = curves.iter().flat_map(|(_, dots)| dots).map(|dot| dot.x).collect();
        if xs.is_empty() {
            return None;
        }
        let x = Axis::of_found(Scale::Log, xs.into_iter());
        let y = Axis::of_found(Scale::Linear, std::iter::once(100.0));
        let title = after_comma(&group.title);
        let (label, load) = (&plan.x_label, number_of_axis(load));
        let caption = format!("Share of requests, %, by latency, us{title}, {label} {load}");
        Some(Chart::new(caption, "latency, us", (x, y), curves))
    };
    loads.into_iter().filter_map(chart).collect()
}

/// Returns the median of the runs for each quantile.
fn distribution(report: &StudyReport, config: &crate::Config) -> Vec<Dot> {
    let Some(point) = report.point(config) else { return Vec::new() };
    let dot = |(at, share): (usize, &f64)| {
        let of_runs: Vec<f64> =
            point.runs.iter().filter_map(|run| run.quantiles_us.get(at).copied()).collect();
        let x = Interval::of(&of_runs)?.mid;
        (x > 0.0).then_some(Dot { x, mid: share * 100.0, bounds: None })
    };
    QUANTILES.iter().enumerate().filter_map(dot).collect()
}

/// Returns a table of all numbers.
fn table(report: &StudyReport, experiment: &ExperimentReport) -> String {
    let metrics: Vec<Shown> = shown(report, experiment).collect();
    let mut out = "<details><summary>Numbers: median and 95 % interval</summary><div class=\"wide\"><table>\n<tr>".to_owned();
    let _ = write!(
        out,
        "<th>Series</th><th class=\"number\">{}</th>",
        escape(&experiment.plan.x_label)
    );
    for shown in &metrics {
        let _ = write!(out, "<th class=\"number\">{}</th>", escape(shown.metric.unit().0));
    }
    out += "<th class=\"number\">p99 us</th><th class=\"number\">CPU us per I/O</th><th class=\"number\">runs</th></tr>\n";
    for group in &experiment.plan.groups {
        for series in &group.series {
            for (x, config) in &series.points {
                let Some(point) = report.point(config) else { continue };
                let label = format!("{}{}", series.label, after_comma(&group.title));
                let _ = write!(
                    out,
                    "<tr><td>{}</td><td class=\"number\">{}</td>",
                    escape(&label),
                    number_of_axis(*x)
                );
                for shown in &metrics {
                    let _ = write!(out, "<td class=\"number\">{}</td>", cell(point, shown.metric));
                }
                let _ = writeln!(
                    out,
                    "<td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td></tr>",
                    cell(point, Metric::P99Us),
                    cell(point, Metric::CpuUsPerIo),
                    point.runs.len()
                );
            }
        }
    }
    out += "</table></div></details>\n";
    out
}

fn cell(point: &Point, metric: Metric) -> String {
    let (_, scale) = metric.unit();
    point.interval(metric).map_or_else(
        || "-".to_owned(),
        |interval| {
            let bounds = range(interval.bounds, scale);
            format!("{}<span class=\"soft\">{bounds}</span>", number(interval.mid / scale))
        },
    )
}

fn over_time(report: &StudyReport, experiment: &ExperimentReport) -> Result<String> {
    let (unit, scale) = Metric::BytesPerS.unit();
    let mut out = String::new();
    for group in &experiment.plan.groups {
        for (place, series) in group.series.iter().enumerate() {
            let runs = series.points.iter().filter_map(|(_, config)| report.point(config));
            let Some(run) = runs.flat_map(|point| &point.runs).next() else { continue };
            let points: Vec<Dot> = run
                .over_time
                .iter()
                .enumerate()
                .map(|(at, bytes)| Dot {
                    x: (at + 1) as f64 * run.sample_s,
                    mid: bytes / scale,
                    bounds: None,
                })
                .collect();
            let Some(interval) = Interval::of(&run.over_time) else { continue };
            let fall = match cliff(&run.over_time) {
                Some(fall) => format!(
                    "; from second {:.0} on {} instead of {}",
                    fall.at as f64 * run.sample_s,
                    number(fall.after / scale),
                    number(fall.before / scale)
                ),
                None => "; no lasting fall".to_owned(),
            };
            let gib = run.over_time.iter().sum::<f64>() * run.sample_s / f64::from(1 << 30);
            let _ = writeln!(
                out,
                "<p>Measured here: {}, median {} {unit}, {} GiB in all{}.</p>",
                escape(&series.label),
                number(interval.mid / scale),
                number(gib),
                escape(&fall)
            );
            let xs: Vec<f64> = points.iter().map(|dot| dot.x).collect();
            let y = Axis::of_found(Scale::Linear, points.iter().map(|dot| dot.mid));
            let x = Axis::of_chosen(Scale::Linear, &xs);
            let (name, look) = (series.label.clone(), Look::of(&series.label, place));
            let x_label = experiment.plan.x_label.clone();
            let caption = caption(group, Metric::BytesPerS, &x_label);
            let lines = vec![Line { name, look, points, marked: xs.len() <= 60 }];
            let figure = Chart { caption, x_label, x, y, lines }.figure()?;
            let _ = writeln!(out, "<div class=\"plots single\">\n{figure}</div>");
        }
    }
    Ok(out)
}

/// Lists failed runs with their reasons.
fn failures(report: &StudyReport, experiment: &ExperimentReport) -> String {
    let failed = |config: &crate::Config| {
        report.point(config).filter(|point| !point.errors.is_empty()).map(|point| {
            format!(
                "<li>{}: {}</li>",
                escape(&config.to_string()),
                escape(&point.errors.join("; "))
            )
        })
    };
    let items: String = experiment.plan.configs().filter_map(failed).collect();
    if items.is_empty() {
        return items;
    }
    format!("<details><summary>Runs that failed</summary><ul>{items}</ul></details>\n")
}
