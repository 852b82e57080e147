//! What a store says about itself.

use std::sync::atomic::Ordering;

use qpair_block::{Backing, ChannelStatistics};
use qpair_format::{Error, Result};

use super::Store;
use super::observer::device_statistics;
use crate::log_device::LogDevice;
use crate::metrics::WorkerCycles;
use crate::shared::Recovered;

/// Counters since the store was opened, over all workers.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// table.put(b"k", b"v")?;
/// let before = store.statistics()?;
/// table.put(b"k", b"w")?;
/// assert!(store.statistics()?.log_bytes > before.log_bytes);
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStatistics {
    /// Requests to the device, and to the one that the log is on, as their channels counted them.
    pub device: ChannelStatistics,
    /// Pages that left memory.
    pub evictions: u64,
    /// Writes of the logs, each durable before the commits in it were acknowledged.
    pub log_writes: u64,
    /// Bytes of commit records.
    pub log_bytes: u64,
    /// Checkpoints that became durable.
    pub checkpoints: u64,
    /// Where the workers' time went, if it was asked for. For measuring.
    #[doc(hidden)]
    pub cycles: WorkerCycles,
}

/// What a store is.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// let report = store.report();
/// println!("{} of {} pages are free", report.free_pages, report.pages);
/// assert_eq!(report.members, 1);
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreReport {
    /// Bytes of a page.
    pub page_size: usize,
    /// Members it is striped over.
    pub members: usize,
    /// Stripe unit, bytes.
    pub stripe_unit_bytes: u64,
    /// Memory for pages, bytes.
    pub memory_bytes: u64,
    /// The kind of pages that the kernel gave for that memory.
    pub memory_backing: Backing,
    /// Pages that the members have room for now.
    pub pages: u64,
    /// Pages of those that segments of the write-ahead log have; none in a store that was closed.
    pub log_pages: u64,
    /// Pages that are free.
    pub free_pages: u64,
    /// Pages of those that are free, which a store that is open keeps for what is dirty in its memory.
    pub reserve_pages: u64,
    /// Pages that are in use no more, and are kept for what a crash would go back to, and for backups.
    pub retained_pages: u64,
    /// When it was made, seconds since 1970.
    pub created_s: u64,
    /// Identity, as hexadecimal digits.
    pub id: String,
    /// The device of its own that its log is on, if it is.
    pub log_device: Option<LogDeviceReport>,
    /// Whether it refuses changes.
    pub read_only: bool,
    /// What recovery did when it was opened, if there was one.
    pub recovered: Option<Recovered>,
}

/// The device that a store keeps its log on.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// match store.report().log_device {
///     Some(device) => println!("the log is on {}", device.name),
///     None => println!("the log is in the store's own space"),
/// }
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogDeviceReport {
    /// Its name; of a store opened without it, the one it had when the store was changed last.
    pub name: String,
    /// Identity, as hexadecimal digits.
    pub id: String,
    /// Bytes of it that the logs have, and that they may have; not known of a store opened without it.
    pub space_bytes: Option<(u64, u64)>,
}

fn digits(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Store {
    /// Counters since the store was opened.
    ///
    /// # Errors
    /// `Closed` if the store is.
    pub fn statistics(&self) -> Result<StoreStatistics> {
        let shared = &self.inner.shared;
        if shared.lifecycle.has_ended() {
            return Err(Error::closed());
        }
        Ok(StoreStatistics {
            device: device_statistics(shared)?,
            evictions: self.inner.evictions(),
            log_writes: shared.wal.writes.load(Ordering::Relaxed),
            log_bytes: shared.wal.bytes_total.load(Ordering::Relaxed),
            checkpoints: shared.checkpointing.epochs.completed.load(Ordering::Relaxed),
            cycles: shared.counters.cycles(),
        })
    }

    /// What the store is.
    #[must_use]
    pub fn report(&self) -> StoreReport {
        let shared = &self.inner.shared;
        let superblock = self
            .inner
            .incarnation
            .superblock
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let shares = shared.space.shares();
        StoreReport {
            page_size: shared.page_size,
            members: superblock.member_count as usize,
            stripe_unit_bytes: superblock.stripe_unit_bytes,
            memory_bytes: u64::from(shared.pool.frames.len()) * shared.page_size as u64,
            memory_backing: shared.pool.frames.arena().backing(),
            pages: shares.capacity,
            log_pages: shares.log,
            free_pages: shares.free,
            reserve_pages: if shared.lifecycle.read_only { 0 } else { shares.reserve },
            retained_pages: shares.retained,
            created_s: superblock.created_s,
            id: digits(&superblock.store_id),
            log_device: superblock.log.as_ref().map(|log| LogDeviceReport {
                name: log.name.clone(),
                id: digits(&log.id),
                space_bytes: shared.wal.device.as_ref().map(LogDevice::space),
            }),
            read_only: shared.lifecycle.check_writable().is_err(),
            recovered: shared.lifecycle.recovered.get().copied(),
        }
    }
}
