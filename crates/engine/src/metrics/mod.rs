//! The counters of a store, and how people and programs read them.
//!
//! Invariant: counting is an addition without ordering in memory of the worker's own. A lookup
//! counts nothing; its task counts what it has begun since it was given the worker. Figures that
//! exist elsewhere are read there when a caller asks.

mod counters;
mod cycles;
mod histogram;
mod prometheus;
mod samples;

pub(crate) use counters::Counters;
pub(crate) use cycles::Part;
pub use cycles::WorkerCycles;
pub use histogram::Histogram;
pub use prometheus::to_prometheus;
pub use samples::{Sample, SampleValue};

/// The counters of a store since it was opened, and its current state.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// table.put(b"k", b"v")?;
/// let metrics = store.metrics()?;
/// assert!(metrics.commits >= 1);
/// println!("{} commits for each write of the log", metrics.commits_per_log_write());
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Commits of transactions that wrote something. The making and dropping of tables is not among them.
    pub commits: u64,
    /// Transactions that met a conflict.
    pub conflicts: u64,
    /// Transactions that ended without a commit, those with conflicts among them.
    pub rollbacks: u64,
    /// How long commits took, from being asked for until they survived power loss, microseconds. Those that did not wait for that
    /// are not among them.
    pub commit_latency_us: Histogram,
    /// How long the turns of workers took in which tasks ran, microseconds. Whatever else a worker has to do waits for the end of one: a long
    /// one is most often a task that computes, and should call [`yield_now`](crate::yield_now).
    pub worker_turn_us: Histogram,
    /// Operations on trees that workers have begun: lookups, leaves of a scan, changes of a record. What threads do by themselves, with pages
    /// in memory, is not among them.
    pub operations: u64,
    /// The lookups of a key among them.
    pub lookups: u64,
    /// Bytes of commit records.
    pub log_bytes: u64,
    /// Bytes of log on the device since the last checkpoint's instant, which recovery would read.
    pub log_since_checkpoint_bytes: u64,
    /// Writes of the log, each of which made all that had gathered durable.
    pub log_writes: u64,
    /// How long they took, microseconds.
    pub log_write_us: Histogram,
    /// Checkpoints that became durable.
    pub checkpoints: u64,
    /// How long they took, microseconds.
    pub checkpoint_us: Histogram,
    /// How long commits were kept waiting at the beginning of a checkpoint, microseconds.
    pub checkpoint_stall_us: Histogram,
    /// Reads of the device.
    pub device_reads: u64,
    /// How long reads of pages took, microseconds: of each worker one at a time is measured.
    pub device_read_us: Histogram,
    /// Reads of pages that all workers may have in flight: what throughput says, or what the options say.
    pub reads_in_flight_max: u64,
    /// Bytes read from it.
    pub device_read_bytes: u64,
    /// Writes of the device.
    pub device_writes: u64,
    /// Bytes written to it.
    pub device_written_bytes: u64,
    /// Flushes of the device.
    pub device_flushes: u64,
    /// Requests to the device that failed.
    pub device_errors: u64,
    /// Pages that left memory.
    pub pages_evicted: u64,
    /// Commits that recovery made again when the store was opened.
    pub recovered_commits: u64,
    /// Frames for pages in memory.
    pub frames: u64,
    /// Frames that no worker has at hand, and that hold nothing.
    pub frames_free: u64,
    /// Bytes of older values that are kept for snapshots.
    pub versions_bytes: u64,
    /// Bytes of the device that older values have, the pages of large ones among them.
    pub history_bytes: u64,
    /// Commits since the oldest snapshot in use was taken.
    pub oldest_snapshot_age_commits: u64,
    /// Transactions that are open.
    pub open_transactions: u64,
    /// Timestamp of the newest commit.
    pub last_timestamp: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes of free pages. A file grows when they are used up.
    pub free_bytes: u64,
    /// Bytes that are in use no more, and are kept for what a crash would go back to, and for backups.
    pub retained_bytes: u64,
    /// Bytes of the log's own device that the logs have; 0 without one.
    pub log_device_used_bytes: u64,
    /// Bytes of it that they may have; 0 without one.
    pub log_device_bytes_max: u64,
    /// The store refuses changes.
    pub read_only: bool,
}

impl Metrics {
    /// Commits that one write of the log made durable, on average.
    #[must_use]
    pub fn commits_per_log_write(&self) -> f64 {
        if self.log_writes == 0 { 0.0 } else { self.commits as f64 / self.log_writes as f64 }
    }

    /// All of it in the format that Prometheus reads.
    #[must_use]
    pub fn to_prometheus(&self) -> String {
        to_prometheus(self.samples())
    }
}
