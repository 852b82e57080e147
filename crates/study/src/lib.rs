//! The papers' experiments on this machine.
//!
//! - [`experiments`]: the experiments, each of which repeats one figure. An experiment plans
//!   [`Config`]s; a configuration that several experiments show is run once.
//! - [`Lent`]: NVMe drives that are rebound to this program's driver and back while a study runs.
//! - [`run`]: runs the configurations, interleaved and repeated. It returns a [`StudyReport`],
//!   which is stored as JSON.
//! - [`Verdict`]: the verdict on each of the papers' findings, based only on the runs and a test
//!   with a threshold.
//! - [`advise`]: recommends an interface from a study, and states the circumstances that would
//!   change the answer.
//! - [`diff`]: compares two studies.
//! - [`to_html`], [`to_text`]: the report for people, which starts with the answer. The page is one
//!   file that contains its plots and loads no other.
//!
//! The papers' numbers are shown beside the measured ones. They are used in tests only as the
//! threshold that is stated with each test.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod advice;
mod against;

mod bare;
mod cliff;
mod config;
mod diff;
mod durable;
mod experiment;
mod finding;
mod fio;
mod html;
mod interface;
mod jobs;
mod judge;
mod lab;
mod lent;
mod means;
mod measure;
mod need;
mod options;
mod outcome;
mod own_file;
mod papers;
mod perf_table;
mod report;
mod run;
mod session;
mod store;
mod store_place;
mod stored;
#[cfg(test)]
mod synthetic;
mod tally;
mod text;
mod verdict;
mod view;

pub use advice::{Advice, Answer, Choice, Question, advise, answer};
pub use against::{Against, Boot, EarlierValues};
pub use config::{Assignment, Channels, Config, Mix, Pace};
pub use diff::{Diff, PointDiff, VerdictDiff, diff};
pub use experiment::{Experiment, Group, Plan, Scale, Series, Shown};
pub use finding::Finding;
pub use html::to_html;
pub use interface::{
    Candidate, FLOOR, INTERFACES, SOFT_DRIVE, SOFT_FLOOR, STORE_KERNEL, TASK_SWITCH, UNREGISTERED,
    USER_SCSI, USER_SPACE,
};
pub use jobs::Length;
pub use judge::judge;
pub use lab::{Device, Effort, InterfaceReport, Lab, cpus, interfaces};
pub use lent::Lent;
pub use means::{FileSystem, Means};
pub use measure::{Measure, Metric, QUANTILES};
pub use need::{Here, Need};
pub use options::Options;
pub use outcome::{Outcome, Threshold};
pub use own_file::OwnFile;
pub use papers::{catalogue, commands, experiments, find};
pub use qpair_workload::Watcher;
pub use report::{ExperimentReport, Point, Resolution, Settings, StudyReport, Twins};
pub use run::{Outside, run};
pub use store::{StoreFigures, StoreUse, StoreWork};
pub use store_place::{is_on_devices, slice_bytes, slice_name};
pub use text::to_text;
pub use verdict::{Evidence, Verdict};
