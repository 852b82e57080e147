//! The metrics one by one, with their names, for code that exports them.

use super::{Histogram, Metrics};

/// The value of a metric.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// use qpair_engine::SampleValue;
///
/// let metrics = store.metrics()?;
/// let counters = metrics.samples().filter(|sample| matches!(sample.value, SampleValue::Counter(_)));
/// assert!(counters.count() > 0);
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SampleValue<'a> {
    /// A counter, which only grows while the store is open.
    Counter(u64),
    /// A gauge, which goes up and down.
    Gauge(f64),
    /// A histogram of durations in microseconds.
    Histogram(&'a Histogram),
}

/// One metric.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// let metrics = store.metrics()?;
/// for sample in metrics.samples() {
///     println!("{}: {}", sample.name, sample.help);
/// }
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'a> {
    /// The name, with the unit at its end; the names of counters have no `_total`.
    pub name: &'static str,
    /// A description in words.
    pub help: &'static str,
    /// The value.
    pub value: SampleValue<'a>,
}

impl Metrics {
    /// Returns all metrics, one by one.
    pub fn samples(&self) -> impl Iterator<Item = Sample<'_>> {
        use SampleValue::{Counter, Gauge, Histogram};
        let gauge = |value: u64| Gauge(value as f64);
        [
            ("commits", "Commits that wrote something", Counter(self.commits)),
            ("conflicts", "Transactions that met a conflict", Counter(self.conflicts)),
            ("rollbacks", "Transactions that ended without a commit", Counter(self.rollbacks)),
            (
                "commit_latency_us",
                "Time from asking for a commit until it survived power loss",
                Histogram(&self.commit_latency_us),
            ),
            ("operations", "Operations on trees that workers have begun", Counter(self.operations)),
            ("lookups", "Lookups among these operations", Counter(self.lookups)),
            (
                "worker_turn_us",
                "Time that turns of workers took in which tasks ran",
                Histogram(&self.worker_turn_us),
            ),
            ("log_bytes", "Bytes of commit records", Counter(self.log_bytes)),
            (
                "log_since_checkpoint_bytes",
                "Bytes of log since the last checkpoint's instant",
                gauge(self.log_since_checkpoint_bytes),
            ),
            ("log_writes", "Writes of the log", Counter(self.log_writes)),
            ("log_write_us", "Time that writes of the log took", Histogram(&self.log_write_us)),
            ("checkpoints", "Checkpoints that became durable", Counter(self.checkpoints)),
            ("checkpoint_us", "Time that checkpoints took", Histogram(&self.checkpoint_us)),
            (
                "checkpoint_stall_us",
                "Time that checkpoints kept commits waiting",
                Histogram(&self.checkpoint_stall_us),
            ),
            ("device_reads", "Reads of the device", Counter(self.device_reads)),
            (
                "device_read_us",
                "Time that reads of pages took, of each worker one at a time",
                Histogram(&self.device_read_us),
            ),
            (
                "reads_in_flight_max",
                "Reads of pages that all workers may have in flight, as throughput says",
                gauge(self.reads_in_flight_max),
            ),
            ("device_read_bytes", "Bytes read from the device", Counter(self.device_read_bytes)),
            ("device_writes", "Writes of the device", Counter(self.device_writes)),
            (
                "device_written_bytes",
                "Bytes written to the device",
                Counter(self.device_written_bytes),
            ),
            ("device_flushes", "Flushes of the device", Counter(self.device_flushes)),
            ("device_errors", "Failed requests to the device", Counter(self.device_errors)),
            ("pages_evicted", "Pages that left memory", Counter(self.pages_evicted)),
            (
                "recovered_commits",
                "Commits made again when the store was opened",
                Counter(self.recovered_commits),
            ),
            ("frames", "Frames for pages in memory", gauge(self.frames)),
            ("frames_free", "Frames that hold nothing", gauge(self.frames_free)),
            (
                "compressed_value_bytes",
                "Bytes of values that were put into compressed tables",
                Counter(self.compressed_value_bytes),
            ),
            (
                "compressed_stored_bytes",
                "Bytes that compressed tables keep for these values",
                Counter(self.compressed_stored_bytes),
            ),
            (
                "expired_records_removed",
                "Expired records that were removed",
                Counter(self.expired_records_removed),
            ),
            (
                "expired_records_left",
                "Expired records that the last removal left to transactions that locked them",
                gauge(self.expired_records_left),
            ),
            (
                "expired_oldest_age_ms",
                "Time for which the oldest expired record has waited for its removal",
                gauge(self.expired_oldest_age_ms),
            ),
            (
                "versions_bytes",
                "Memory of older values kept for snapshots",
                gauge(self.versions_bytes),
            ),
            (
                "history_bytes",
                "Bytes of the device that older values have",
                gauge(self.history_bytes),
            ),
            (
                "oldest_snapshot_age_commits",
                "Commits since the oldest snapshot in use was taken",
                gauge(self.oldest_snapshot_age_commits),
            ),
            ("open_transactions", "Open transactions", gauge(self.open_transactions)),
            ("last_timestamp", "Number of the newest commit", gauge(self.last_timestamp)),
            ("used_bytes", "Space in use", gauge(self.used_bytes)),
            ("free_bytes", "Space of free pages", gauge(self.free_bytes)),
            (
                "retained_bytes",
                "Space kept for what a crash would go back to, for backups and for readers",
                gauge(self.retained_bytes),
            ),
            (
                "reader_checkpoints",
                "Older checkpoints kept for readers in other processes",
                gauge(self.reader_checkpoints),
            ),
            (
                "reader_checkpoints_given_up",
                "Checkpoints in use by readers in other processes that were given up for space",
                Counter(self.reader_checkpoints_given_up),
            ),
            (
                "log_device_used_bytes",
                "Space of the log's own device that is in use; 0 without one",
                gauge(self.log_device_used_bytes),
            ),
            (
                "log_device_bytes_max",
                "Space of the log's own device that may be used; 0 without one",
                gauge(self.log_device_bytes_max),
            ),
            (
                "backup_shipped_timestamp",
                "Number of the newest commit that a following backup has shipped; 0 without one",
                gauge(self.backup_shipped_timestamp),
            ),
            (
                "backup_waiting_bytes",
                "Memory of commits that wait to be shipped",
                gauge(self.backup_waiting_bytes),
            ),
            (
                "backup_unshipped_age_us",
                "Time since the oldest commit that is not shipped",
                gauge(self.backup_unshipped_age_us),
            ),
            (
                "backup_breaks",
                "Times that the backup had to begin anew with a full part",
                Counter(self.backup_breaks),
            ),
            ("backup_requests", "Requests that the backup sent", Counter(self.backup_requests)),
            ("backup_bytes", "Bytes that the backup sent", Counter(self.backup_bytes)),
            ("read_only", "1 if the store refuses changes", gauge(u64::from(self.read_only))),
        ]
        .into_iter()
        .map(|(name, help, value)| Sample { name, help, value })
    }
}
