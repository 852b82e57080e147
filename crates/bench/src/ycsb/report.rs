//! The results of a run of YCSB.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::harness::KindTally;
use crate::report::{LatencyReport, PartReport};

/// The results of one kind of operation.
#[derive(Clone, Debug, Serialize)]
pub struct YcsbKind {
    /// The number of operations.
    pub count: u64,
    /// Attempts that ended with a conflict and were repeated.
    pub conflicts: u64,
    /// Latencies, with all attempts.
    pub latency_us: LatencyReport,
}

impl YcsbKind {
    pub(crate) fn of(tally: &KindTally) -> Self {
        let latency_us = LatencyReport::of(&tally.histogram);
        Self { count: tally.count(), conflicts: tally.conflicts, latency_us }
    }
}

/// The results of one run.
#[derive(Clone, Debug, Serialize)]
pub struct YcsbReport {
    /// The store, and how it was opened.
    pub store: String,
    /// The workload, A to F.
    pub workload: String,
    /// The number of records at the beginning of the run.
    pub records: u64,
    /// Bytes of a record including its key.
    pub record_bytes: usize,
    /// The number of clients, which run one operation after the other.
    pub clients: usize,
    /// The durability that commits wait for.
    pub durability: String,
    /// Seconds measured.
    pub seconds: f64,
    /// The number of operations.
    pub ops: u64,
    /// Operations per second.
    pub ops_per_s: f64,
    /// Reads of records that did not exist. Workload D reads some that are still being inserted.
    pub missed: u64,
    /// The results by kind of operation.
    pub kinds: BTreeMap<&'static str, YcsbKind>,
    /// The operations of each second of the run.
    pub ops_by_second: Vec<u64>,
    /// The mean number of commits that a flush of the log made durable.
    pub commits_per_flush: Option<f64>,
    /// Bytes written to the log.
    pub log_bytes: Option<u64>,
    /// Read requests to the device per operation.
    pub device_reads_per_op: Option<f64>,
    /// Write requests to the device per operation.
    pub device_writes_per_op: Option<f64>,
    /// Processor time per operation of all threads, user and system, in microseconds.
    pub cpu_us_per_op: f64,
    /// The breakdown of the workers' time, if it was requested. An operation is an operation of the
    /// workload.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cycles: Vec<PartReport>,
    /// The size of the store in bytes.
    pub store_bytes: Option<u64>,
    /// Records loaded per second, if this run loaded the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_records_per_s: Option<f64>,
    /// The release of the kernel.
    pub kernel: String,
}
