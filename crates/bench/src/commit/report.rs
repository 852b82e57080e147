//! The results of a run of small transactions.

use serde::Serialize;

use crate::device::Baseline;
use crate::report::{LatencyReport, PartReport};

/// The results of one run.
#[derive(Clone, Debug, Serialize)]
pub struct CommitReport {
    /// The store, and how it was opened.
    pub store: String,
    /// The work: update or insert.
    pub work: String,
    /// The number of records in the store; for inserts, the number of inserted records.
    pub records: u64,
    /// The number of rows of a transaction.
    pub rows_per_tx: u32,
    /// The number of clients, each a closed loop.
    pub clients: usize,
    /// The durability that commits wait for.
    pub durability: String,
    /// Seconds measured.
    pub seconds: f64,
    /// The number of committed transactions.
    pub commits: u64,
    /// Committed transactions per second.
    pub commits_per_s: f64,
    /// Rows written per second.
    pub rows_per_s: f64,
    /// Attempts that ended with a conflict and were repeated.
    pub conflicts: u64,
    /// Latencies of transactions, from their beginning to the end of their commit.
    pub latency_us: LatencyReport,
    /// The mean number of commits that a flush of the log made durable.
    pub commits_per_flush: Option<f64>,
    /// Bytes written to the log per commit.
    pub log_bytes_per_commit: Option<f64>,
    /// Write requests to the device per commit.
    pub device_writes_per_commit: Option<f64>,
    /// Read requests to the device per commit.
    pub device_reads_per_commit: Option<f64>,
    /// Processor time per commit of all threads, user and system, in microseconds.
    pub cpu_us_per_commit: f64,
    /// The breakdown of the workers' time, if it was requested. An operation is a commit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cycles: Vec<PartReport>,
    /// The size of the store in bytes.
    pub store_bytes: Option<u64>,
    /// The rows written in each second of the run.
    pub rows_by_second: Vec<u64>,
    /// The ratio of the slowest whole second to the median one.
    pub slowest_second_over_median: Option<f64>,
    /// Records loaded per second, if this run loaded the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_records_per_s: Option<f64>,
    /// The results of the device alone, if it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Baseline>,
    /// The ratio of the median latency of a commit to that of a bare write with its flush.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_over_baseline: Option<f64>,
    /// The release of the kernel.
    pub kernel: String,
}

impl CommitReport {
    /// Adds the results of the device alone.
    pub fn set_baseline(&mut self, baseline: Baseline) {
        let p50 = baseline.latency_us.p50;
        self.p50_over_baseline = (p50 > 0.0).then(|| self.latency_us.p50 / p50);
        self.baseline = Some(baseline);
    }
}

/// Returns the ratio of the slowest whole second to the median one.
pub(super) fn slowest_over_median(by_second: &[u64], seconds: f64) -> Option<f64> {
    // The last second counts only if the run covered it in full.
    let whole = by_second.len().min((seconds + 0.001) as usize);
    let mut sorted = by_second[..whole].to_vec();
    sorted.sort_unstable();
    let median = *sorted.get(whole / 2).filter(|median| **median > 0)?;
    Some(*sorted.first()? as f64 / median as f64)
}
