//! What a run of TPC-C found.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::CheckReport;
use crate::report::PartReport;

/// Latencies of a type of transaction, with all attempts, microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct TpccLatency {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95 of 100 were at most this.
    pub p95: f64,
    /// 99 of 100 were at most this.
    pub p99: f64,
    /// The slowest.
    pub max: f64,
}

impl TpccLatency {
    /// From a histogram of nanoseconds.
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        let us = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        Self {
            mean: histogram.mean() / 1000.0,
            p50: us(0.5),
            p95: us(0.95),
            p99: us(0.99),
            max: histogram.max() as f64 / 1000.0,
        }
    }
}

/// One type of transaction.
#[derive(Clone, Debug, Serialize)]
pub struct TpccType {
    /// Transactions that ended.
    pub count: u64,
    /// Those of them that were rolled back because they were meant to be: 1 of 100 new orders.
    pub rolled_back: u64,
    /// Attempts that ended with a conflict, and were made again.
    pub conflicts: u64,
    /// Transactions that needed more than one attempt.
    pub retried: u64,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct TpccReport {
    /// The store, and how it was opened.
    pub store: String,
    /// Warehouses.
    pub warehouses: u32,
    /// Terminals: clients that run one transaction after the other, without think time.
    pub terminals: usize,
    /// What commits wait for.
    pub durability: String,
    /// Seconds measured.
    pub seconds: f64,
    /// Transactions that were to arrive a second, at random times; latencies count from when each was due. None: each terminal does one
    /// after the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// Transactions of all types that ended, per second.
    pub tx_per_s: f64,
    /// New orders committed per minute. No think time, not audited.
    pub tpmc: f64,
    /// What `tpmc` is not.
    pub tpmc_note: &'static str,
    /// By type.
    pub types: BTreeMap<&'static str, TpccType>,
    /// By type.
    pub latency_us: BTreeMap<&'static str, TpccLatency>,
    /// Transactions of each second of the run.
    pub tx_by_second: Vec<u64>,
    /// Commits that a flush of the log made durable, on average.
    pub commits_per_flush: Option<f64>,
    /// Bytes written to the log.
    pub log_bytes: Option<u64>,
    /// The same per transaction.
    pub log_bytes_per_tx: Option<f64>,
    /// Requests that read the device, per transaction.
    pub device_reads_per_tx: Option<f64>,
    /// Requests that wrote it, per transaction.
    pub device_writes_per_tx: Option<f64>,
    /// Bytes that the device moved, per transaction.
    pub device_bytes_per_tx: Option<f64>,
    /// Mean latency of the reads of pages that were timed, microseconds.
    pub device_read_us: Option<f64>,
    /// Requests that read the device, per second.
    pub device_reads_per_s: Option<f64>,
    /// Requests that wrote it, per second.
    pub device_writes_per_s: Option<f64>,
    /// Processor time per transaction, user and system, all threads, microseconds.
    pub cpu_us_per_tx: f64,
    /// Where the workers' time went, if it was asked for; an operation is a transaction.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cycles: Vec<PartReport>,
    /// Bytes the store takes.
    pub store_bytes: Option<u64>,
    /// Seconds that loading took, where this run loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_seconds: Option<f64>,
    /// Records loaded per second, where this run loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_records_per_s: Option<f64>,
    /// The twelve conditions after the run, where they were checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<CheckReport>,
    /// Kernel release.
    pub kernel: String,
}
