//! Several plots below one legend.

use std::fmt::Write as _;

use qpair_block::Result;

use crate::axis::{Axis, Scale};
use crate::interval::Interval;
use crate::plot::{Dot, Line, Look, legend_mark, plot};
use crate::text::escape;

/// A plot: curves over one axis.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The title of the plot.
    pub title: String,
    /// The label of the horizontal axis, which is logarithmic.
    pub x_label: String,
    /// The curves of the plot.
    pub curves: Vec<Curve>,
}

/// A line of a [`Chart`].
#[derive(Clone, Debug)]
pub struct Curve {
    /// The name of the curve. A name has the same look in all charts.
    pub name: String,
    /// The points: the position along the horizontal axis, and the measured value.
    pub points: Vec<(f64, Interval)>,
}

/// The plots, below one legend, as HTML.
///
/// # Errors
/// `Invalid` if one cannot be drawn, which would be a bug.
pub fn charts(charts: &[Chart]) -> Result<String> {
    let mut out = "<ul class=\"legend\">".to_owned();
    let mut names: Vec<&str> = Vec::new();
    for curve in charts.iter().flat_map(|chart| &chart.curves) {
        if !names.contains(&curve.name.as_str()) {
            names.push(&curve.name);
            let mark = legend_mark(Look::of(&curve.name, names.len() - 1))?;
            let _ = write!(out, "<li>{mark}{}</li>", escape(&curve.name));
        }
    }
    out += "</ul>\n<div class=\"plots\">\n";
    for chart in charts {
        let all = || chart.curves.iter().flat_map(|curve| &curve.points);
        let xs: Vec<f64> = all().map(|(x, _)| *x).collect();
        let x = Axis::of_chosen(Scale::Log, &xs);
        let y = Axis::of_found(Scale::Log, all().map(|(_, found)| found.mid));
        let lines: Vec<Line> = chart
            .curves
            .iter()
            .map(|curve| {
                let place = names.iter().position(|name| *name == curve.name).unwrap_or(0);
                let dot = |(at, found): &(f64, Interval)| Dot {
                    x: x.beside(*at, place, names.len()),
                    mid: found.mid,
                    bounds: found.bounds,
                };
                Line {
                    look: Look::of(&curve.name, place),
                    points: curve.points.iter().map(dot).collect(),
                    marked: true,
                }
            })
            .collect();
        let label = format!("{}, by {}", chart.title, chart.x_label);
        let svg = plot(&label, &x, &chart.x_label, &y, &lines)?;
        let title = escape(&chart.title);
        let _ = writeln!(out, "<figure><figcaption>{title}</figcaption>{svg}</figure>");
    }
    out += "</div>\n";
    Ok(out)
}
