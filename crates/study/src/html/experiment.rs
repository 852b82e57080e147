//! The part of the report about one experiment.

use std::fmt::Write as _;

use qpair_block::Result;
use qpair_plots::{
    Axis, Dot, Interval, Line, Look, Scale, capital, escape, legend_mark, number, plot,
};

use crate::cliff::cliff;
use crate::experiment::{Group, Plan, Series, Shown};
use crate::measure::{Metric, QUANTILES};
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
                bounds_words(&interval, scale),
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

fn bounds_words(interval: &Interval, scale: f64) -> String {
    interval.bounds.map_or_else(String::new, |(low, high)| {
        format!(" [{} to {}]", number(low / scale), number(high / scale))
    })
}

/// Plots one figure of one group of an experiment: the first that was measured.
pub(super) fn one_group(
    report: &StudyReport,
    experiment: &ExperimentReport,
    title: &str,
) -> Result<String> {
    let groups: Vec<&Group> =
        experiment.plan.groups.iter().filter(|group| group.title == title).collect();
    let Some(shown) = shown(report, experiment).next() else { return Ok(String::new()) };
    let figure = figures(report, &experiment.plan, shown, &groups)?;
    Ok(format!("{}<div class=\"plots single\">\n{figure}</div>\n", legend(&groups)?))
}

fn plots(report: &StudyReport, experiment: &ExperimentReport) -> Result<String> {
    let groups: Vec<&Group> = experiment.plan.groups.iter().collect();
    let mut out = legend(&groups)?;
    let count = shown(report, experiment).count() * groups.len();
    out += if count == 1 { "<div class=\"plots single\">\n" } else { "<div class=\"plots\">\n" };
    for shown in shown(report, experiment) {
        out += &figures(report, &experiment.plan, shown, &groups)?;
    }
    if experiment.latency_against_throughput() {
        out += &latency_against_throughput(report, experiment)?;
        out += &distributions(report, experiment)?;
    }
    out += "</div>\n";
    Ok(out)
}

/// Plots one figure for each of some groups, over the same axes: what is beside each other can be
/// compared.
fn figures(report: &StudyReport, plan: &Plan, shown: Shown, groups: &[&Group]) -> Result<String> {
    let all = || groups.iter().flat_map(|group| &group.series);
    let ends = all().flat_map(|series| dots(report, series, shown.metric)).flat_map(reach);
    let ends: Vec<f64> = ends.collect();
    let y = Axis::of_found(shown.scale, ends.iter().copied());
    let xs: Vec<f64> = all().flat_map(|series| series.points.iter().map(|p| p.0)).collect();
    let x = Axis::of_chosen(plan.x_scale, &xs);
    let mut out = String::new();
    for group in groups {
        let lines = lines(group, |place, series| {
            let beside = |dot: Dot| Dot { x: x.beside(dot.x, place, group.series.len()), ..dot };
            dots(report, series, shown.metric).into_iter().map(beside).collect()
        });
        out += &figure(group, shown.metric, &x, &plan.x_label, &y, &lines)?;
    }
    Ok(out)
}

/// Returns a line for each series of a group, each with its own look.
fn lines(group: &Group, points: impl Fn(usize, &Series) -> Vec<Dot>) -> Vec<Line> {
    let line = |(place, series): (usize, &Series)| Line {
        look: Look::of(&series.label, place),
        points: points(place, series),
        marked: true,
    };
    group.series.iter().enumerate().map(line).collect()
}

/// Plots the median latency against the throughput that was reached with it, along the axis of the
/// experiment.
fn latency_against_throughput(
    report: &StudyReport,
    experiment: &ExperimentReport,
) -> Result<String> {
    let (x_label, x_scale) = Metric::IosPerS.unit();
    let mut out = String::new();
    for group in &experiment.plan.groups {
        let of = |series: &Series| -> Vec<Dot> {
            let dot = |(_, config): &(f64, crate::Config)| {
                let x = interval(report, config, Metric::IosPerS)?.mid / x_scale;
                let mid = interval(report, config, Metric::P50Us)?.mid;
                Some(Dot { x, mid, bounds: None })
            };
            series.points.iter().filter_map(dot).collect()
        };
        let lines = lines(group, |_, series| of(series));
        let ends = || lines.iter().flat_map(|line| &line.points);
        if ends().next().is_none() {
            continue;
        }
        let x = Axis::of_found(Scale::Linear, ends().map(|dot| dot.x));
        let y = Axis::of_found(Scale::Log, ends().map(|dot| dot.mid));
        out += &figure(group, Metric::P50Us, &x, x_label, &y, &lines)?;
    }
    Ok(out)
}

/// Plots the distribution of latency at the lowest and the highest load: the share of requests that
/// took at most a given time.
fn distributions(report: &StudyReport, experiment: &ExperimentReport) -> Result<String> {
    let mut out = String::new();
    for group in &experiment.plan.groups {
        let xs = || group.series.iter().flat_map(|series| &series.points).map(|(x, _)| *x);
        let mut ends = vec![xs().fold(f64::INFINITY, f64::min), xs().fold(0.0, f64::max)];
        ends.dedup();
        for load in ends {
            let of = |series: &Series| {
                let at = series.points.iter().find(|(x, _)| *x == load);
                at.map_or_else(Vec::new, |(_, config)| distribution(report, config))
            };
            let lines = lines(group, |_, series| of(series));
            let found = || lines.iter().flat_map(|line| &line.points);
            if found().next().is_none() {
                continue;
            }
            let x = Axis::of_found(Scale::Log, found().map(|dot| dot.x));
            let y = Axis::of_found(Scale::Linear, std::iter::once(100.0));
            let title =
                if group.title.is_empty() { String::new() } else { format!(", {}", group.title) };
            let load = number_of_axis(load);
            let caption = format!(
                "Share of requests, %, by latency, us{title}, {} {load}",
                experiment.plan.x_label
            );
            let svg = plot(&caption, &x, "latency, us", &y, &lines)?;
            let _ = writeln!(
                out,
                "<figure><figcaption>{}</figcaption>{svg}</figure>",
                escape(&caption)
            );
        }
    }
    Ok(out)
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

fn figure(
    group: &Group,
    metric: Metric,
    x: &Axis,
    x_label: &str,
    y: &Axis,
    lines: &[Line],
) -> Result<String> {
    let (unit, _) = metric.unit();
    let caption = match group.title.as_str() {
        "" => capital(unit),
        title => format!("{}, {title}", capital(unit)),
    };
    let caption = format!("{caption}, by {x_label}");
    let svg = plot(&caption, x, x_label, y, lines)?;
    Ok(format!("<figure><figcaption>{}</figcaption>{svg}</figure>\n", escape(&caption)))
}

/// Returns the ends of a point's interval, limited so that a wide interval does not compress the
/// plot.
fn reach(dot: Dot) -> [f64; 3] {
    let (low, high) = dot.bounds.unwrap_or((dot.mid, dot.mid));
    [low.max(dot.mid / 2.0), dot.mid, high.min(dot.mid * 1.5)]
}

fn dots(report: &StudyReport, series: &Series, metric: Metric) -> Vec<Dot> {
    let (_, scale) = metric.unit();
    series
        .points
        .iter()
        .filter_map(|(x, config)| {
            let interval = interval(report, config, metric)?;
            Some(Dot {
                x: *x,
                mid: interval.mid / scale,
                bounds: interval.bounds.map(|(low, high)| (low / scale, high / scale)),
            })
        })
        .collect()
}

fn legend(groups: &[&Group]) -> Result<String> {
    let mut known: Vec<&str> = Vec::new();
    let mut out = "<ul class=\"legend\">".to_owned();
    for group in groups {
        for (place, series) in group.series.iter().enumerate() {
            if known.contains(&series.label.as_str()) {
                continue;
            }
            known.push(&series.label);
            let mark = legend_mark(Look::of(&series.label, place))?;
            let _ = write!(out, "<li>{mark}{}</li>", escape(&series.label));
        }
    }
    // A single line needs no telling apart, but its name.
    out += "</ul>\n";
    Ok(out)
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
                let label = match group.title.as_str() {
                    "" => series.label.clone(),
                    title => format!("{}, {title}", series.label),
                };
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
            let bounds = bounds_words(&interval, scale);
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
            let line =
                Line { look: Look::of(&series.label, place), points, marked: xs.len() <= 60 };
            out += "<div class=\"plots single\">\n";
            out += &figure(group, Metric::BytesPerS, &x, &experiment.plan.x_label, &y, &[line])?;
            out += "</div>\n";
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
