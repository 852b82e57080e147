//! The papers' experiments on this machine.
//!
//! - [`EXPERIMENTS`]: each repeats one figure; it plans [`Config`]s, which are run once however many experiments show them.
//! - [`Lent`]: NVMe drives that go to this program's driver and back while a study runs.
//! - [`run`]: runs them interleaved and repeated; gives a [`StudyReport`], which is stored as JSON.
//! - [`Verdict`]: what each of the papers' findings is worth here, from the runs alone, by a test with a threshold.
//! - [`advise`]: from a study, the interface to use, and what would change the answer.
//! - [`diff`]: what differs between two studies.
//! - [`to_html`]: the report for people: one file, plots inside, nothing fetched. [`page`] and [`charts`] make such files of other figures.
//!
//! Nothing is asserted from the papers' numbers: they are shown beside what was measured, and enter no test but as the
//! threshold that is stated with it.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod advice;
mod config;
mod diff;
mod experiment;
mod finding;
mod html;
mod jobs;
mod lab;
mod lent;
mod measure;
mod own_file;
mod report;
mod run;
mod statistics;
mod store;
#[cfg(test)]
mod synthetic;

pub use advice::{Advice, Choice, Question, advise};
pub use config::{Assignment, Channels, Config, Mix, Pace};
pub use diff::{Diff, PointDiff, VerdictDiff, diff};
pub use experiment::{EXPERIMENTS, Experiment, Group, Plan, Scale, Series, Shown, find};
pub use finding::{Evidence, Finding, Need, Row, Verdict, catalogue, judge};
pub use html::{Chart, Curve, charts, escape, number, page, to_html};
pub use jobs::Length;
pub use lab::{
    Candidate, Device, Effort, INTERFACES, InterfaceReport, Lab, SOFT_DRIVE, UNREGISTERED,
    USER_SPACE, cpus, interfaces,
};
pub use lent::Lent;
pub use measure::{Measure, Metric, QUANTILES};
pub use own_file::OwnFile;
pub use report::{ExperimentReport, Point, Resolution, Settings, StudyReport, Twins};
pub use run::{Options, Watcher, run};
pub use statistics::{Interval, Outcome, Threshold, median};
pub use store::{StoreFigures, StoreRunner, StoreUse, StoreWork};
