//! The floor: what a drive gives with no software in the way, and what each layer adds to it (docs/design/floor.md).
//!
//! - [`Load`], [`paper`]: what is measured; [`Way`]: how the drive is reached.
//! - [`run`]: runs every load over every way in turns, on one drive; [`Which`]: by which driver it is reached.
//! - [`build`]: builds the kernel's module of the floor.
//! - [`Report`]: what was found, with gaps and their bases; stored as JSON.
//! - [`table`], [`to_html`]: the same for people.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod events;
mod fio;
mod hwperf;
mod lent;
mod load;
mod module;
mod page;
mod paths;
mod report;
mod table;
mod turn;
mod turns;

pub use load::{Load, Workload, paper, paper_names};
pub use module::build;
pub use page::to_html;
pub use report::{Gap, Parts, Point, Report, Turn, Way};
pub use table::table;
pub use turns::{KernelDrive, Options, Watcher, Which, run};
