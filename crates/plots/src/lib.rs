//! Plots of measured figures with their intervals, and the pages that hold them.
//!
//! - [`Interval`]: the middle of several runs, or of their ratios, with an interval.
//! - [`Chart`]: a plot of [`Line`]s over two [`Axis`]es; [`charts`]: several below one legend.
//! - [`page`]: an HTML page that contains its style and plots. It loads no other file and has no
//!   scripts. [`escape`], [`capital`], [`number`], [`range`] and [`thousands`] make text for it.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod axis;
mod chart;
mod interval;
mod page;
mod plot;
mod text;

pub use axis::{Axis, Scale};
pub use chart::{Chart, Curves, charts};
pub use interval::{Confidence, Interval, median};
pub use page::page;
pub use plot::{Dot, Line, Look};
pub use text::{capital, escape, number, range, thousands};
