//! The floor: the performance of a drive with as little software as possible, and the cost of each
//! layer above (docs/design/floor.md).
//!
//! - [`Load`], [`paper`]: the measured loads; [`Way`]: a way to reach the drive.
//! - [`run`]: runs every load over every way in turns, on one drive; [`Which`]: the drive and its
//!   driver.
//! - [`build`]: builds the floor's kernel module.
//! - [`Report`]: the results, with the gaps between ways and what they are relative to; stored as
//!   JSON.
//! - [`table`], [`to_html`]: reports for people.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod events;
mod fio;
mod hwperf;
mod lent;
mod load;
mod module;
mod own;
mod page;
mod paths;
mod report;
mod table;
mod turn;
mod turns;

pub use load::{Load, Workload, paper, paper_names};
pub use module::build;
pub use page::to_html;
pub use report::{Counts, Gap, Parts, Point, Report, Turn, Way};
pub use table::table;
pub use turns::{KernelDrive, Options, Watcher, Which, run};
