//! What a run of YCSB found.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::report::{LatencyReport, PartReport};

/// One kind of operation.
#[derive(Clone, Debug, Serialize)]
pub struct YcsbKind {
    /// Operations.
    pub count: u64,
    /// Attempts that ended with a conflict, and were made again.
    pub conflicts: u64,
    /// Latencies, with all attempts.
    pub latency_us: LatencyReport,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct YcsbReport {
    /// The store, and how it was opened.
    pub store: String,
    /// A to F.
    pub workload: String,
    /// Records at the beginning of the run.
    pub records: u64,
    /// Bytes of a record with its key.
    pub record_bytes: usize,
    /// Clients that do one operation after the other.
    pub clients: usize,
    /// What commits wait for.
    pub durability: String,
    /// Seconds measured.
    pub seconds: f64,
    /// Operations.
    pub ops: u64,
    /// Operations per second.
    pub ops_per_s: f64,
    /// Reads of records that were not there: of workload D some that are still being inserted.
    pub missed: u64,
    /// By kind of operation.
    pub kinds: BTreeMap<&'static str, YcsbKind>,
    /// Operations of each second of the run.
    pub ops_by_second: Vec<u64>,
    /// Commits that a flush of the log made durable, on average.
    pub commits_per_flush: Option<f64>,
    /// Bytes written to the log.
    pub log_bytes: Option<u64>,
    /// Requests that read the device, per operation.
    pub device_reads_per_op: Option<f64>,
    /// Requests that wrote it, per operation.
    pub device_writes_per_op: Option<f64>,
    /// Processor time per operation, user and system, all threads, microseconds.
    pub cpu_us_per_op: f64,
    /// Where the workers' time went, if it was asked for; an operation is one of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cycles: Vec<PartReport>,
    /// Bytes the store takes.
    pub store_bytes: Option<u64>,
    /// Records loaded per second, where this run loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_records_per_s: Option<f64>,
    /// Kernel release.
    pub kernel: String,
}
