//! Plots as SVG, to be embedded in a page.
//!
//! Text and lines that are not data take the page's colour, so that they can be read on light and
//! dark backgrounds. Series differ in mark and in colour. The colours are those of Okabe and Ito,
//! which colour-blind people can tell apart.

use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::prelude::*;
use qpair_block::{Error, ErrorKind, Result};

use crate::axis::Axis;
use crate::interval::Interval;

/// The size of a plot, in its own units.
const SIZE: (u32, u32) = (480, 300);
/// The size of a legend's mark.
const MARK_SIZE: (u32, u32) = (34, 14);

/// A line with its marks and their intervals.
#[derive(Clone, Debug)]
pub struct Line {
    /// The name in the legend.
    pub name: String,
    /// The colour and mark.
    pub look: Look,
    /// The points, from left to right.
    pub points: Vec<Dot>,
    /// Whether there are marks at the points.
    pub marked: bool,
}

/// A point with its interval.
#[derive(Clone, Copy, Debug)]
pub struct Dot {
    /// The position along the horizontal axis.
    pub x: f64,
    /// The measured value.
    pub mid: f64,
    /// The ends of the value's interval, if there is one.
    pub bounds: Option<(f64, f64)>,
}

impl Dot {
    /// Returns the point of a measured figure, divided by `scale`.
    #[must_use]
    pub fn of(x: f64, found: &Interval, scale: f64) -> Self {
        let bounds = found.bounds.map(|(low, high)| (low / scale, high / scale));
        Self { x, mid: found.mid / scale, bounds }
    }

    /// Returns the ends of the interval, limited so that a wide interval does not compress the
    /// plot.
    pub(crate) fn reach(&self) -> [f64; 3] {
        let (low, high) = self.bounds.unwrap_or((self.mid, self.mid));
        [low.max(self.mid / 2.0), self.mid, high.min(self.mid * 1.5)]
    }
}

/// The colour and mark of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    color: RGBColor,
    mark: usize,
}

impl Look {
    /// Returns the look of a series. An interface looks the same in every plot; the look of other
    /// series depends on their position.
    #[must_use]
    pub fn of(label: &str, place: usize) -> Self {
        const INTERFACES: [(&str, usize); 8] = [
            ("posix", 6),
            ("libaio", 1),
            ("io_uring", 0),
            ("io_uring+p", 2),
            ("io_uring+k", 3),
            ("io_uring_cmd", 4),
            ("io_uring_cmd+p", 5),
            ("nvme", 7),
        ];
        let at = INTERFACES.iter().find(|(name, _)| *name == label).map_or(
            // Other series come after the interfaces that share plots with them.
            if label.starts_with("io_uring") { 4 } else { place },
            |(_, at)| *at,
        );
        Self::at(at)
    }

    fn at(place: usize) -> Self {
        let at = place % COLORS.len();
        Self { color: COLORS[at], mark: at }
    }

    /// Returns this look, or another one if `used` has it; this one if all are used.
    pub(crate) fn unless_used(self, used: &[Self]) -> Self {
        let is_free = |look: &Self| used.iter().all(|other| other.mark != look.mark);
        let others = (0..COLORS.len()).rev().map(Self::at);
        std::iter::once(self).chain(others).find(is_free).unwrap_or(self)
    }
}

const COLORS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(136, 136, 136),
    RGBColor(160, 120, 60),
];

/// Outlines of marks around their centre. The first is a circle.
const MARKS: [&[(i32, i32)]; 8] = [
    &[],
    &[(-4, -4), (4, -4), (4, 4), (-4, 4)],
    &[(0, -5), (5, 4), (-5, 4)],
    &[(0, -6), (6, 0), (0, 6), (-6, 0)],
    &[(0, 5), (5, -4), (-5, -4)],
    &[
        (-2, -6),
        (2, -6),
        (2, -2),
        (6, -2),
        (6, 2),
        (2, 2),
        (2, 6),
        (-2, 6),
        (-2, 2),
        (-6, 2),
        (-6, -2),
        (-2, -2),
    ],
    &[(-5, -2), (5, -2), (5, 2), (-5, 2)],
    &[(-2, -5), (2, -5), (2, 5), (-2, 5)],
];

/// Draws a plot. `label` describes it for readers who cannot see it.
pub(crate) fn plot(
    label: &str,
    x: &Axis,
    x_label: &str,
    y: &Axis,
    lines: &[Line],
) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        draw(&area, x, x_label, y, lines).map_err(|error| failed(&error))?;
        area.present().map_err(|error| failed(&error))?;
    }
    Ok(in_page_colors(&svg, label))
}

/// Draws a series' mark on a short piece of its line, for a legend.
pub(crate) fn legend_mark(look: Look) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, MARK_SIZE).into_drawing_area();
        let (width, height) = (MARK_SIZE.0 as i32, MARK_SIZE.1 as i32);
        let line = vec![(0, height / 2), (width, height / 2)];
        let style = look.color.stroke_width(2);
        area.draw(&PathElement::new(line, style)).map_err(|error| failed(&error))?;
        match MARKS[look.mark] {
            [] => area.draw(&Circle::new((width / 2, height / 2), 4, look.color.filled())),
            outline => {
                let at = outline.iter().map(|(x, y)| (x + width / 2, y + height / 2)).collect();
                area.draw(&Polygon::new::<Vec<(i32, i32)>, _>(at, look.color.filled()))
            }
        }
        .map_err(|error| failed(&error))?;
        area.present().map_err(|error| failed(&error))?;
    }
    Ok(in_page_colors(&svg, ""))
}

fn failed(error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, format!("drawing a plot: {error}"))
}

/// Replaces black with the page's colour, and adds `label` for readers who cannot see the plot.
fn in_page_colors(svg: &str, label: &str) -> String {
    let hidden = "<svg aria-hidden=\"true\" ".to_owned();
    let role = if label.is_empty() {
        hidden
    } else {
        format!("<svg role=\"img\" aria-label=\"{}\" ", crate::text::escape(label))
    };
    svg.replacen("<svg ", &role, 1).replace("\"#000000\"", "\"currentColor\"")
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;
type Drawn<'b> =
    std::result::Result<(), DrawingAreaErrorKind<<SVGBackend<'b> as DrawingBackend>::ErrorType>>;

fn draw<'b>(area: &Area<'b>, x: &Axis, x_label: &str, y: &Axis, lines: &[Line]) -> Drawn<'b> {
    let text = ("sans-serif", 16).into_font().color(&BLACK);
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(14)
        .set_label_area_size(LabelAreaPosition::Left, 48)
        .set_label_area_size(LabelAreaPosition::Bottom, 44)
        .build_cartesian_2d(x.clone(), y.clone())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .axis_style(BLACK.mix(0.6))
        .label_style(text.clone())
        .axis_desc_style(text)
        .x_desc(x_label)
        .draw()?;
    // Intervals are drawn first, so that they hide no mark.
    for line in lines {
        intervals(&mut chart, y, line)?;
    }
    for line in lines {
        let points = line.points.iter().map(|dot| (dot.x, y.clamp(dot.mid)));
        chart.draw_series(LineSeries::new(points, line.look.color.stroke_width(2)))?;
        if line.marked {
            marks(&mut chart, y, line)?;
        }
    }
    Ok(())
}

fn intervals<'b>(chart: &mut Chart<'_, 'b>, y: &Axis, line: &Line) -> Drawn<'b> {
    let style = line.look.color.mix(0.7).stroke_width(1);
    for dot in &line.points {
        let Some((low, high)) = dot.bounds else { continue };
        let ends = [y.clamp(low), y.clamp(high)];
        chart.draw_series([PathElement::new(vec![(dot.x, ends[0]), (dot.x, ends[1])], style)])?;
        for end in ends {
            let cap = PathElement::new(vec![(-4, 0), (4, 0)], style);
            chart.draw_series([EmptyElement::at((dot.x, end)) + cap])?;
        }
    }
    Ok(())
}

fn marks<'b>(chart: &mut Chart<'_, 'b>, y: &Axis, line: &Line) -> Drawn<'b> {
    let style = line.look.color.filled();
    for dot in &line.points {
        let at = EmptyElement::at((dot.x, y.clamp(dot.mid)));
        match MARKS[line.look.mark] {
            [] => chart.draw_series([at + Circle::new((0, 0), 4, style)])?,
            outline => chart.draw_series([at + Polygon::new(outline.to_vec(), style)])?,
        };
    }
    Ok(())
}
