//! The counters of a store, and how people and programs read them.
//!
//! Invariant: counting is an addition without ordering in memory of the worker's own. A lookup
//! counts nothing; its task counts what it has begun since it was given the worker. Figures that
//! exist elsewhere are read there when a caller asks.

mod counters;
mod cycles;
mod histogram;
mod json;
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
    /// Commits of transactions that wrote something. Creating and dropping tables does not count.
    pub commits: u64,
    /// Transactions that met a conflict.
    pub conflicts: u64,
    /// Transactions that ended without a commit, including those with conflicts.
    pub rollbacks: u64,
    /// The durations of commits in microseconds, from the call until the commit survived power
    /// loss. Commits that did not wait for that do not count.
    pub commit_latency_us: Histogram,
    /// The durations in microseconds of worker turns in which tasks ran. Everything else that a
    /// worker has to do waits for the end of a turn. A long turn is most often a task that
    /// computes, and should call [`yield_now`](crate::yield_now).
    pub worker_turn_us: Histogram,
    /// Operations on trees that workers have begun: lookups, leaves of a scan, changes of a record.
    /// Operations of other threads on pages in memory do not count.
    pub operations: u64,
    /// The lookups of a key among `operations`.
    pub lookups: u64,
    /// Bytes of log records.
    pub log_bytes: u64,
    /// Bytes of log on the device since the last checkpoint's instant, which recovery would read.
    pub log_since_checkpoint_bytes: u64,
    /// Writes of the log. Each makes all gathered records durable.
    pub log_writes: u64,
    /// The durations of log writes in microseconds.
    pub log_write_us: Histogram,
    /// Checkpoints that became durable.
    pub checkpoints: u64,
    /// The durations of checkpoints in microseconds.
    pub checkpoint_us: Histogram,
    /// The time in microseconds for which commits were kept waiting at the beginning of a
    /// checkpoint.
    pub checkpoint_stall_us: Histogram,
    /// Read requests to the device.
    pub device_reads: u64,
    /// The durations of page reads in microseconds. Each worker measures one read at a time.
    pub device_read_us: Histogram,
    /// The number of page reads that all workers together may have in flight, as set by the options
    /// or found by measuring throughput.
    pub reads_in_flight_max: u64,
    /// Bytes read from the device.
    pub device_read_bytes: u64,
    /// Write requests to the device.
    pub device_writes: u64,
    /// Bytes written to the device.
    pub device_written_bytes: u64,
    /// Flush requests to the device.
    pub device_flushes: u64,
    /// Requests to the device that failed.
    pub device_errors: u64,
    /// Pages that left memory.
    pub pages_evicted: u64,
    /// Commits of the log that recovery applied again when the store was opened.
    pub recovered_commits: u64,
    /// Frames for pages in memory.
    pub frames: u64,
    /// Frames that hold nothing and are on no worker's free list.
    pub frames_free: u64,
    /// Bytes of values that were put into compressed tables.
    pub compressed_value_bytes: u64,
    /// Bytes that those tables keep in the place of these values.
    pub compressed_stored_bytes: u64,
    /// Expired records that were removed.
    pub expired_records_removed: u64,
    /// Expired records that the last removal left, since transactions had them locked.
    pub expired_records_left: u64,
    /// The time in milliseconds for which the oldest expired record has waited for its removal; 0
    /// if none waits.
    pub expired_oldest_age_ms: u64,
    /// Bytes of older values that are kept in memory for snapshots.
    pub versions_bytes: u64,
    /// Bytes of the device that older values use, including the pages of large ones.
    pub history_bytes: u64,
    /// Commits since the oldest snapshot in use was taken.
    pub oldest_snapshot_age_commits: u64,
    /// Open transactions.
    pub open_transactions: u64,
    /// The timestamp of the newest commit.
    pub last_timestamp: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes of free pages. A file grows when they are used up.
    pub free_bytes: u64,
    /// Bytes of pages that are no longer in use, and are kept for the state that a crash would go
    /// back to, for backups, and for readers in other processes.
    pub retained_bytes: u64,
    /// Checkpoints before the last one that are kept for readers in other processes.
    pub reader_checkpoints: u64,
    /// Checkpoints that readers in other processes used, and that were given up for want of space.
    pub reader_checkpoints_given_up: u64,
    /// Bytes of the log device that the logs use; 0 without a log device.
    pub log_device_used_bytes: u64,
    /// Bytes of the log device that the logs may use; 0 without a log device.
    pub log_device_bytes_max: u64,
    /// The newest commit that a backup that follows the store has shipped; 0 without one.
    pub backup_shipped_timestamp: u64,
    /// Bytes of commit records that wait in memory to be shipped.
    pub backup_waiting_bytes: u64,
    /// The time in microseconds since the oldest commit that is not shipped.
    pub backup_unshipped_age_us: u64,
    /// How often the backup had to begin anew with a full part, because more changes gathered than
    /// fit into its memory, or after a sorted load.
    pub backup_breaks: u64,
    /// Requests that the backup sent.
    pub backup_requests: u64,
    /// Bytes that the backup sent.
    pub backup_bytes: u64,
    /// Whether the store refuses changes.
    pub read_only: bool,
}

impl Metrics {
    /// Returns the average number of commits that one write of the log made durable.
    #[must_use]
    pub fn commits_per_log_write(&self) -> f64 {
        if self.log_writes == 0 { 0.0 } else { self.commits as f64 / self.log_writes as f64 }
    }

    /// Returns all metrics in the text format of Prometheus.
    #[must_use]
    pub fn to_prometheus(&self) -> String {
        to_prometheus(self.samples())
    }

    /// Returns all metrics as a JSON object: names with numbers, and for a histogram an object with
    /// `count`, `sum`, `max`, `p50`, `p99` and the counts of its `buckets`.
    #[must_use]
    pub fn to_json(&self) -> String {
        json::to_json(self.samples())
    }
}
