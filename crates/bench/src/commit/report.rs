//! What a run of small transactions found.

use serde::Serialize;

use crate::report::{LatencyReport, PartReport};

use super::Baseline;

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct CommitReport {
    /// The store, and how it was opened.
    pub store: String,
    /// Update or insert.
    pub work: String,
    /// Records in the store: those updated, or those inserted.
    pub records: u64,
    /// Rows of a transaction.
    pub rows_per_tx: u32,
    /// Clients, each a closed loop.
    pub clients: usize,
    /// What commits wait for.
    pub durability: String,
    /// Seconds measured.
    pub seconds: f64,
    /// Transactions committed.
    pub commits: u64,
    /// The same per second.
    pub commits_per_s: f64,
    /// Rows written per second.
    pub rows_per_s: f64,
    /// Attempts that ended with a conflict, and were made again.
    pub conflicts: u64,
    /// Latencies of transactions, from their beginning to the end of their commit.
    pub latency_us: LatencyReport,
    /// Commits that a flush of the log made durable, on average.
    pub commits_per_flush: Option<f64>,
    /// Bytes written to the log per commit.
    pub log_bytes_per_commit: Option<f64>,
    /// Requests that wrote the device, per commit.
    pub device_writes_per_commit: Option<f64>,
    /// Requests that read the device, per commit.
    pub device_reads_per_commit: Option<f64>,
    /// Processor time per commit, user and system, all threads, microseconds.
    pub cpu_us_per_commit: f64,
    /// Where the workers' time went, if it was asked for; an operation is a commit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cycles: Vec<PartReport>,
    /// Bytes the store takes.
    pub store_bytes: Option<u64>,
    /// Rows of each second of the run.
    pub rows_by_second: Vec<u64>,
    /// The slowest whole second over the median one.
    pub slowest_second_over_median: Option<f64>,
    /// Records loaded per second, where this run loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_records_per_s: Option<f64>,
    /// The device alone, where it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Baseline>,
    /// Median latency of a commit over that of a bare write with its flush.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_over_baseline: Option<f64>,
    /// Kernel release.
    pub kernel: String,
}

impl CommitReport {
    /// Puts the device alone beside it.
    pub fn set_baseline(&mut self, baseline: Baseline) {
        let p50 = baseline.latency_us.p50;
        self.p50_over_baseline = (p50 > 0.0).then(|| self.latency_us.p50 / p50);
        self.baseline = Some(baseline);
    }
}

/// The slowest of the whole seconds over the median of them.
pub(super) fn slowest_over_median(by_second: &[u64], seconds: f64) -> Option<f64> {
    // The last second counts only if it was a whole one.
    let whole = by_second.len().min((seconds + 0.001) as usize);
    let mut sorted = by_second[..whole].to_vec();
    sorted.sort_unstable();
    let median = *sorted.get(whole / 2).filter(|median| **median > 0)?;
    Some(*sorted.first()? as f64 / median as f64)
}
