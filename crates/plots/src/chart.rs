//! Several plots below one legend.

use std::fmt::Write as _;

use qpair_block::Result;

use crate::axis::{Axis, Scale};
use crate::plot::{Dot, Line, Look, legend_mark, plot};
use crate::text::escape;

/// A plot with its caption.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The caption, which also describes the plot for readers who cannot see it.
    pub caption: String,
    /// The label of the horizontal axis.
    pub x_label: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines of the plot.
    pub lines: Vec<Line>,
}

/// Points by the name of their line.
pub type Curves = Vec<(String, Vec<Dot>)>;

impl Chart {
    /// Returns a plot. The name and position of each curve determine its colour and mark.
    #[must_use]
    pub fn new(caption: String, x_label: &str, (x, y): (Axis, Axis), curves: Curves) -> Self {
        let line = |(place, (name, points)): (usize, (String, Vec<Dot>))| Line {
            look: Look::of(&name, place),
            name,
            points,
            marked: true,
        };
        let lines = curves.into_iter().enumerate().map(line).collect();
        Self { caption, x_label: x_label.to_owned(), x, y, lines }
    }

    /// Returns plots of measured figures, each with its caption, over the same axes, so that they
    /// can be compared side by side. The horizontal axis has a tick at each point.
    #[must_use]
    pub fn alike(
        x_label: &str,
        (x_scale, y_scale): (Scale, Scale),
        plots: Vec<(String, Curves)>,
    ) -> Vec<Self> {
        let dots = || plots.iter().flat_map(|plot| &plot.1).flat_map(|(_, dots)| dots);
        let x = Axis::of_chosen(x_scale, &dots().map(|dot| dot.x).collect::<Vec<f64>>());
        let ends: Vec<f64> = dots().flat_map(|dot| dot.reach()).collect();
        let y = Axis::of_found(y_scale, ends.into_iter());
        let chart = |(caption, mut curves): (String, Curves)| {
            let count = curves.len();
            for (place, (_, dots)) in curves.iter_mut().enumerate() {
                dots.iter_mut().for_each(|dot| dot.x = x.beside(dot.x, place, count));
            }
            Self::new(caption, x_label, (x.clone(), y.clone()), curves)
        };
        plots.into_iter().map(chart).collect()
    }

    /// Returns the plot as HTML.
    ///
    /// # Errors
    /// `Invalid` if the plot cannot be drawn, which would be a bug.
    pub fn figure(&self) -> Result<String> {
        let svg = plot(&self.caption, &self.x, &self.x_label, &self.y, &self.lines)?;
        let caption = escape(&self.caption);
        Ok(format!("<figure><figcaption>{caption}</figcaption>{svg}</figure>\n"))
    }
}

/// Returns plots in which lines of different names look different, as far as there are looks.
fn told_apart(charts: &[Chart]) -> Vec<Chart> {
    let mut charts = charts.to_vec();
    let mut known: Vec<(String, Look)> = Vec::new();
    for line in charts.iter_mut().flat_map(|chart| &mut chart.lines) {
        line.look = match known.iter().find(|(name, _)| *name == line.name) {
            Some((_, look)) => *look,
            None => {
                let used: Vec<Look> = known.iter().map(|(_, look)| *look).collect();
                let look = line.look.unless_used(&used);
                known.push((line.name.clone(), look));
                look
            }
        };
    }
    charts
}

/// Returns the plots, below one legend, as HTML.
///
/// # Errors
/// As [`Chart::figure`].
pub fn charts(charts: &[Chart]) -> Result<String> {
    let charts = told_apart(charts);
    let mut out = "<ul class=\"legend\">".to_owned();
    let mut names: Vec<&str> = Vec::new();
    for line in charts.iter().flat_map(|chart| &chart.lines) {
        if !names.contains(&line.name.as_str()) {
            names.push(&line.name);
            let _ = write!(out, "<li>{}{}</li>", legend_mark(line.look)?, escape(&line.name));
        }
    }
    let class = if charts.len() == 1 { "plots single" } else { "plots" };
    let _ = writeln!(out, "</ul>\n<div class=\"{class}\">");
    for chart in &charts {
        out += &chart.figure()?;
    }
    out += "</div>\n";
    Ok(out)
}
