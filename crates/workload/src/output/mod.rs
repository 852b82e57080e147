//! The results of a run, as text and files.
//!
//! All functions here are pure functions of a [`RunReport`](crate::RunReport), except those that
//! write files. Jobs with [`Job::group_reporting`](crate::Job::group_reporting) are merged by their
//! group first, in every format except the time series of [`write_logs`], which are one per job as
//! in fio.
//!
//! - [`table`]: for people.
//! - [`fio_json`]: fio 3.33's JSON, for programs that read fio's.
//! - [`csv`]: one row for each job and direction.
//! - [`hgrm`], [`write_hgrm`]: latencies in `HdrHistogram`'s percentile format.
//! - [`words`]: numbers, sizes and times in words.
//! - [`write_logs`]: throughput and latency over time, as fio's `write_bw_log` and similar options.

mod bins;
mod csv;
mod entry;
mod files;
mod fio;
#[cfg(test)]
mod fio_layout;
mod grid;
mod hgrm;
mod histogram_log;
mod json;
mod logs;
mod own;
mod plot;
#[cfg(test)]
mod samples;
mod table;
pub mod words;
mod workload;

pub use csv::csv;
pub use fio::{fio_json, fio_json_text};
pub use hgrm::{hgrm, write_hgrm};
pub use logs::write_logs;
pub use table::{Style, table};
