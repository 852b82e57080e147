//! The results of a run.

use serde::Serialize;

use crate::report::{LatencyReport, PartReport};
use crate::store_kv::Warmed;

/// The configuration and results of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub workload: String,
    /// The interface that was used.
    pub io: String,
    /// The mode of the interface.
    pub io_mode: String,
    pub workers: usize,
    /// The number of tasks of each worker.
    pub tasks: usize,
    /// The maximum number of tasks of each worker, if the warm-up chose how many run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks_chosen_of: Option<usize>,
    /// The durability that commits waited for: sync, group or async; `None` if nothing was
    /// committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<String>,
    /// The number of records in the store.
    pub records: u64,
    /// Memory for pages in bytes.
    pub memory_bytes: u64,
    /// The size of the store's pages in bytes.
    pub store_bytes: u64,
    /// Seconds measured.
    pub seconds: f64,
    /// The rate at which operations were to arrive, per second, at random times; latencies count
    /// from the time an operation was due. `None`: each task runs one operation after the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// The number of operations.
    pub ops: u64,
    /// Operations per second.
    pub ops_per_s: f64,
    /// Reads of the device per second.
    pub device_reads_per_s: f64,
    /// The maximum number of page reads that all workers together could have in flight at the end.
    pub reads_in_flight_max: u64,
    /// Writes of the device per second.
    pub device_writes_per_s: f64,
    /// Reads of the device per operation.
    pub reads_per_op: f64,
    /// Bytes that the device moved per operation.
    pub device_bytes_per_op: f64,
    /// Mean latency of the timed page reads in microseconds; 0: no read was timed.
    pub device_read_us: f64,
    /// System calls of the channels per operation.
    pub system_calls_per_op: f64,
    /// Processor time per operation of all threads, user and system, in microseconds.
    pub cpu_us_per_op: f64,
    /// The kernel's share of the processor time.
    #[serde(skip)]
    pub kernel_share: f64,
    /// The breakdown of the workers' time, if it was requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cycles: Vec<PartReport>,
    /// Latencies of the operations.
    pub latency_us: LatencyReport,
    /// The operations of each second of the run.
    pub ops_by_second: Vec<u64>,
    /// Random reads per second of the device alone, if they were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling_reads_per_s: Option<f64>,
    /// Records per second of filling the store, if this run filled it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill_records_per_s: Option<f64>,
    /// The pages that were read into memory before the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmed: Option<Warmed>,
    /// A hash of the configuration; equal configurations have equal hashes.
    pub config_hash: String,
    /// The release of the kernel.
    pub kernel: String,
}
