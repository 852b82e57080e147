//! What a run found.

use hdrhistogram::Histogram;
use qpair::unstable::WorkerCycles;
use serde::Serialize;

use crate::warm::Warmed;

/// Latencies of operations, microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct LatencyReport {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 99 of 100 were at most this.
    pub p99: f64,
    /// 999 of 1000 were at most this.
    pub p999: f64,
    /// The slowest.
    pub max: f64,
}

impl LatencyReport {
    /// From a histogram of nanoseconds.
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        let us = |ns: u64| ns as f64 / 1000.0;
        Self {
            mean: histogram.mean() / 1000.0,
            p50: us(histogram.value_at_quantile(0.5)),
            p99: us(histogram.value_at_quantile(0.99)),
            p999: us(histogram.value_at_quantile(0.999)),
            max: us(histogram.max()),
        }
    }
}

/// A part of the workers' loop, and the time that it took.
#[derive(Clone, Debug, Serialize)]
pub struct PartReport {
    /// Its name.
    pub part: &'static str,
    /// Of the time of all workers, waiting included.
    pub share: f64,
    /// Microseconds of an operation.
    pub us_per_op: f64,
}

impl PartReport {
    /// Of workers that did so many operations in that time; nothing where it was not counted.
    pub(crate) fn of(cycles: &WorkerCycles, wall_s: f64, ops: u64) -> Vec<Self> {
        let us_per_op = wall_s * 1e6 * cycles.workers as f64 / ops.max(1) as f64;
        let of = |(part, share)| Self { part, share, us_per_op: share * us_per_op };
        cycles.shares().map(of).collect()
    }
}

/// One run: what ran, and what it cost.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The workload.
    pub workload: String,
    /// Interface really in use.
    pub io: String,
    /// Its details.
    pub io_mode: String,
    /// Workers.
    pub workers: usize,
    /// Tasks of each worker.
    pub tasks: usize,
    /// What commits waited for, where there were any: sync, group or async.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<String>,
    /// Records in the store.
    pub records: u64,
    /// Memory for pages, bytes.
    pub memory_bytes: u64,
    /// Pages of the store, bytes.
    pub store_bytes: u64,
    /// Seconds measured.
    pub seconds: f64,
    /// Operations that were to arrive a second, at random times; latencies count from when each was due. None: each task does one after
    /// the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// Operations done.
    pub ops: u64,
    /// Operations per second.
    pub ops_per_s: f64,
    /// Reads of the device per second.
    pub device_reads_per_s: f64,
    /// Reads of pages that all workers could have in flight at the end.
    pub reads_in_flight_max: u64,
    /// Writes of the device per second.
    pub device_writes_per_s: f64,
    /// Reads of the device per operation.
    pub reads_per_op: f64,
    /// Bytes that the device moved per operation.
    pub device_bytes_per_op: f64,
    /// Mean latency of the reads of pages that were timed, microseconds; 0: none was.
    pub device_read_us: f64,
    /// System calls of the channels per operation.
    pub system_calls_per_op: f64,
    /// Processor time per operation, user and system, all threads, microseconds.
    pub cpu_us_per_op: f64,
    /// Where the workers' time went, if it was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cycles: Vec<PartReport>,
    /// Latencies.
    pub latency_us: LatencyReport,
    /// Operations of each second of the run.
    pub ops_by_second: Vec<u64>,
    /// Random reads per second of the device alone, where they were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling_reads_per_s: Option<f64>,
    /// Seconds that filling the store took, and records per second, where it was filled by this run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill_records_per_s: Option<f64>,
    /// What was read into memory before the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmed: Option<Warmed>,
    /// The same configuration gives the same hash.
    pub config_hash: String,
    /// Kernel release.
    pub kernel: String,
}

/// Release of the running kernel.
pub(crate) fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}
