//! The results of a run of TPC-C.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::check::CheckReport;
use crate::harness::KindTally;
use crate::report::{LatencyReport, PartReport};

/// Latencies of a type of transaction, with all attempts, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct TpccLatency {
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The maximum.
    pub max: f64,
}

impl TpccLatency {
    /// Converts a histogram of nanoseconds.
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        let LatencyReport { mean, p50, p99, max, .. } = LatencyReport::of(histogram);
        let p95 = histogram.value_at_quantile(0.95) as f64 / 1000.0;
        Self { mean, p50, p95, p99, max }
    }
}

/// The counts of one type of transaction.
#[derive(Clone, Debug, Serialize)]
pub struct TpccType {
    /// The number of transactions that ended.
    pub count: u64,
    /// Transactions that were rolled back as intended: 1 of 100 new orders.
    pub rolled_back: u64,
    /// Attempts that ended with a conflict and were repeated.
    pub conflicts: u64,
    /// Transactions that needed more than one attempt.
    pub retried: u64,
}

impl TpccType {
    pub(crate) fn of(tally: &KindTally) -> Self {
        let &KindTally { rolled_back, conflicts, retried, .. } = tally;
        Self { count: tally.count(), rolled_back, conflicts, retried }
    }
}

/// The results of one run.
#[derive(Clone, Debug, Serialize)]
pub struct TpccReport {
    /// The store, and how it was opened.
    pub store: String,
    pub warehouses: u32,
    /// The number of terminals: clients that run one transaction after the other, without think
    /// time.
    pub terminals: usize,
    /// The durability that commits wait for.
    pub durability: String,
    /// Seconds measured.
    pub seconds: f64,
    /// The rate at which transactions were to arrive, per second, at random times; latencies count
    /// from the time a transaction was due. `None`: each terminal runs one transaction after the
    /// other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// Transactions of all types that ended, per second.
    pub tx_per_s: f64,
    /// New orders committed per minute, without think time and not audited.
    pub tpmc: f64,
    /// The reservation that must be shown with `tpmc`.
    pub tpmc_note: &'static str,
    /// Counts by type of transaction.
    pub types: BTreeMap<&'static str, TpccType>,
    /// Latencies by type of transaction.
    pub latency_us: BTreeMap<&'static str, TpccLatency>,
    /// The transactions of each second of the run.
    pub tx_by_second: Vec<u64>,
    /// The mean number of commits that a flush of the log made durable.
    pub commits_per_flush: Option<f64>,
    /// Bytes written to the log.
    pub log_bytes: Option<u64>,
    /// Bytes written to the log per transaction.
    pub log_bytes_per_tx: Option<f64>,
    /// Read requests to the device per transaction.
    pub device_reads_per_tx: Option<f64>,
    /// Write requests to the device per transaction.
    pub device_writes_per_tx: Option<f64>,
    /// Bytes that the device moved per transaction.
    pub device_bytes_per_tx: Option<f64>,
    /// Mean latency of the timed page reads in microseconds.
    pub device_read_us: Option<f64>,
    /// Read requests to the device per second.
    pub device_reads_per_s: Option<f64>,
    /// Write requests to the device per second.
    pub device_writes_per_s: Option<f64>,
    /// Processor time per transaction of all threads, user and system, in microseconds.
    pub cpu_us_per_tx: f64,
    /// The breakdown of the workers' time, if it was requested. An operation is a transaction.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cycles: Vec<PartReport>,
    /// The size of the store in bytes.
    pub store_bytes: Option<u64>,
    /// Seconds that loading took, if this run loaded the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_seconds: Option<f64>,
    /// Records loaded per second, if this run loaded the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_records_per_s: Option<f64>,
    /// The twelve conditions after the run, if they were checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<CheckReport>,
    /// The release of the kernel.
    pub kernel: String,
}
