//! Runs and measures workloads over block devices, as fio does.
//!
//! - [`Job`]: the work of one thread, with every option settled, as in fio.
//! - [`options`], [`jobfile`]: convert fio's options, on the command line and in job files, to
//!   jobs.
//! - [`run`]: runs jobs.
//! - [`peak()`]: measures peak throughput in a loop without clocks and histograms.
//! - [`RunReport`]: the results of a run: latencies, throughput over time, and the cost of each
//!   request.
//! - [`Observer`]: watches a run, and may stop it.
//! - [`output`]: writes results as text and files.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod files;
#[doc(hidden)]
pub mod fuzzing;
mod iolog;
mod job;
pub mod jobfile;
mod observer;
pub mod options;
pub mod output;
mod peak;
mod report;
mod run;

pub use files::{FileOp, FilesOptions, FilesReport, OpReport, Profile, Role, run_files};
pub use iolog::{Action, Entry};
pub use job::{
    BlockSizes, Content, CpuPolicy, Direction, Distribution, EndsWith, Extent, FlowShare, Form,
    HistogramLog, Job, LatencyGoal, Measured, Order, PERCENTILES, Rate, RateProcess, Replay, Shape,
    Steadiness, SteadyGoal, SteadyOf, Steps, Stride, Target, TargetOrder, Tolerance, Verbs, Verify,
    VerifyMethod, Zone,
};
pub use observer::{Live, Observer, Unwatched, Watcher};
pub use peak::{PeakOptions, PeakReport, peak};
pub use report::{
    CpuReport, DirectionReport, DiskReport, HistogramSample, Incidents, JobError, JobReport,
    Latencies, Passed, RunReport, Sample, Spread, SteadyReport, VerifyError, VerifyReport,
};
pub use run::cpu::counts_cache_misses;
pub use run::{prefill, run};
