//! A system under test, over which clients run, and its counts.

use std::future::Future;

use qpair::unstable::WorkerCycles;

use qpair::Result;

use super::clients::Clients;

/// The counts of a system since it was opened. `None`: the system does not count this.
#[derive(Clone, Copy, Debug, Default)]
pub struct KvStatistics {
    /// Read requests to the device.
    pub device_reads: Option<u64>,
    /// Bytes that read and write requests moved.
    pub device_bytes: Option<u64>,
    /// The number of timed reads, and their total duration in microseconds.
    pub device_reads_timed: Option<(u64, u64)>,
    /// Write requests to the device, of pages and of the log.
    pub device_writes: Option<u64>,
    /// System calls of the channels.
    pub system_calls: Option<u64>,
    /// Flushes of the log, or writes that are durable by themselves.
    pub log_flushes: Option<u64>,
    /// Commits that the log made durable.
    pub log_commits: Option<u64>,
    /// Bytes written to the log.
    pub log_bytes: Option<u64>,
    /// The current size of the store on the device in bytes.
    pub store_bytes: Option<u64>,
    /// The breakdown of the workers' time.
    pub cycles: WorkerCycles,
}

impl KvStatistics {
    /// Returns the mean number of commits that a flush of the log made durable.
    #[must_use]
    pub fn commits_per_flush(&self) -> Option<f64> {
        let flushes = self.log_flushes.filter(|flushes| *flushes > 0)?;
        Some(self.log_commits? as f64 / flushes as f64)
    }

    /// Returns the counts since an earlier call. `store_bytes` is the current size.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let less =
            |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before.unwrap_or(0)));
        let timed = self.device_reads_timed.zip(before.device_reads_timed);
        Self {
            device_reads: less(self.device_reads, before.device_reads),
            device_writes: less(self.device_writes, before.device_writes),
            device_bytes: less(self.device_bytes, before.device_bytes),
            device_reads_timed: timed.map(|(now, before)| (now.0 - before.0, now.1 - before.1)),
            system_calls: less(self.system_calls, before.system_calls),
            log_flushes: less(self.log_flushes, before.log_flushes),
            log_commits: less(self.log_commits, before.log_commits),
            log_bytes: less(self.log_bytes, before.log_bytes),
            store_bytes: self.store_bytes,
            cycles: self.cycles.since(&before.cycles),
        }
    }
}

/// A system under test: a store, or a device alone.
pub trait System: Send + Sync + 'static {
    /// The session of a client.
    type Session: 'static;

    /// Starts clients `0..clients`, and returns at once. Each client gets its number and a session,
    /// and runs where the system runs its clients: in tasks on workers, or on a thread for each
    /// client ([`start_threads`](super::start_threads)).
    ///
    /// # Errors
    /// An error if threads or sessions cannot be created.
    fn start<F, Fut, T>(&self, clients: usize, client: F) -> Result<Clients<T>>
    where
        F: Fn(usize, Self::Session) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T>> + 'static,
        T: Send + 'static;

    /// Returns the counts since the system was opened.
    ///
    /// # Errors
    /// Errors of the system.
    fn statistics(&self) -> Result<KvStatistics>;
}
