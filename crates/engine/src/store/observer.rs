//! Watching a store without keeping it open.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use qpair_block::ChannelStatistics;
use qpair_format::{Error, Result};

use super::Store;
use crate::log_device::LogDevice;
use crate::metrics::Metrics;
use crate::shared::Shared;
use crate::task::{current, refuse_on_worker, spawn_to};
use crate::tx::{TransactionInfo, Tx};

/// Reads the counters and the open transactions of a store while it is open, without keeping it
/// open.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// let observer = store.observer();
/// assert!(observer.is_open());
/// println!("{} commits", observer.metrics()?.commits);
/// drop(table);
/// store.close()?;
/// assert!(!observer.is_open());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Observer {
    tx: Weak<Tx>,
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer").field("open", &self.is_open()).finish()
    }
}

impl Store {
    /// Returns the metrics of the store since it was opened.
    ///
    /// # Errors
    /// `Closed` if the store is closed; `Invalid` on a worker.
    pub fn metrics(&self) -> Result<Metrics> {
        metrics(&self.inner.tx)
    }

    /// Returns an observer, which reads the same metrics without keeping the store open.
    #[must_use]
    pub fn observer(&self) -> Observer {
        Observer { tx: Arc::downgrade(&self.inner.tx) }
    }
}

impl Observer {
    fn tx(&self) -> Result<Arc<Tx>> {
        let is_open =
            |tx: &Arc<Tx>| !tx.shared.lifecycle.is_closing() && !tx.shared.lifecycle.has_ended();
        self.tx.upgrade().filter(is_open).ok_or_else(Error::closed)
    }

    /// Whether the store is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.tx().is_ok()
    }

    /// Returns the store's metrics, as [`Store::metrics`].
    ///
    /// # Errors
    /// `Closed` if the store is closed; `Invalid` on a worker.
    pub fn metrics(&self) -> Result<Metrics> {
        metrics(&*self.tx()?)
    }

    /// Returns the store's open transactions, as [`Store::transactions`].
    ///
    /// # Errors
    /// `Closed` if the store is closed.
    pub fn transactions(&self) -> Result<Vec<TransactionInfo>> {
        Ok(self.tx()?.transactions())
    }
}

/// Returns the statistics of all workers' channels. Waits for each worker.
pub(crate) fn device_statistics(shared: &Shared) -> Result<ChannelStatistics> {
    refuse_on_worker()?;
    let own = || async { current(|worker| worker.statistics()).unwrap_or_default() };
    let workers = 0..shared.worker_handles.len();
    let handles: Vec<_> = workers.map(|worker| spawn_to(shared, worker, own)).collect();
    let mut total = ChannelStatistics::default();
    for handle in handles {
        total = total.plus(handle.join()?);
    }
    Ok(total)
}

fn metrics(tx: &Tx) -> Result<Metrics> {
    let shared = &*tx.shared;
    let device = device_statistics(shared)?;
    let page_size = shared.page_size as u64;
    let shares = shared.space.shares();
    let backup = shared.wal.feed.report();
    let (log_used, log_max) = shared.wal.device.as_ref().map_or((0, 0), LogDevice::space);
    let (reader_checkpoints, reader_checkpoints_given_up) = shared.kept_images.counts();
    let mut metrics = Metrics {
        reader_checkpoints,
        reader_checkpoints_given_up,
        log_bytes: shared.wal.bytes_total.load(Ordering::Relaxed),
        log_since_checkpoint_bytes: shared.wal.bytes.load(Ordering::Relaxed),
        log_writes: shared.wal.writes.load(Ordering::Relaxed),
        checkpoints: shared.checkpointing.epochs.completed.load(Ordering::Relaxed),
        device_reads: device.reads,
        device_read_bytes: device.read_bytes,
        device_writes: device.writes,
        device_written_bytes: device.written_bytes,
        device_flushes: device.flushes,
        device_errors: device.errors,
        pages_evicted: shared.pool.evictions.load(Ordering::Relaxed),
        recovered_commits: shared
            .lifecycle
            .recovered
            .get()
            .map_or(0, |recovered| recovered.commits),
        frames: u64::from(shared.pool.frames.len()),
        frames_free: shared.pool.free_count() as u64,
        compressed_value_bytes: shared.compressed.value_bytes.load(Ordering::Relaxed),
        compressed_stored_bytes: shared.compressed.stored_bytes.load(Ordering::Relaxed),
        expired_records_removed: shared.expiry.removed.load(Ordering::Relaxed),
        expired_records_left: shared.expiry.left.load(Ordering::Relaxed),
        expired_oldest_age_ms: shared.expiry.oldest_due_age_ms(),
        versions_bytes: tx.versions_bytes(),
        history_bytes: tx.old_device_bytes(),
        oldest_snapshot_age_commits: tx.oldest_snapshot_age(),
        open_transactions: tx.transactions().len() as u64,
        last_timestamp: shared.last_timestamp(),
        used_bytes: shares.used() * page_size,
        free_bytes: shares.free * page_size,
        retained_bytes: shares.retained * page_size,
        log_device_used_bytes: log_used,
        log_device_bytes_max: log_max,
        backup_shipped_timestamp: backup.shipped_timestamp,
        backup_waiting_bytes: shared.wal.feed.waiting_bytes(),
        backup_unshipped_age_us: shared.wal.feed.unshipped_age().as_micros() as u64,
        backup_breaks: backup.breaks,
        backup_requests: backup.requests,
        backup_bytes: backup.bytes,
        read_only: shared.lifecycle.check_writable().is_err(),
        ..Metrics::default()
    };
    shared.counters.add_to(&mut metrics);
    Ok(metrics)
}
