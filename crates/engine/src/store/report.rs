//! Reports about a store, and its statistics.

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
    /// Requests to the store's device and to its log device, as counted by their channels.
    pub device: ChannelStatistics,
    /// The number of pages that left memory.
    pub evictions: u64,
    /// The number of writes to the logs. Each was durable before its commits were acknowledged.
    pub log_writes: u64,
    /// The size of all commit records, in bytes.
    pub log_bytes: u64,
    /// The number of checkpoints that became durable.
    pub checkpoints: u64,
    /// The time of each part of the workers' loop, if the store was opened to count it.
    #[doc(hidden)]
    pub cycles: WorkerCycles,
}

/// The properties of a store.
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
    /// The size of a page, in bytes.
    pub page_size: usize,
    /// The number of members that the store is striped over.
    pub members: usize,
    /// The stripe unit, in bytes.
    pub stripe_unit_bytes: u64,
    /// The memory for pages, in bytes.
    pub memory_bytes: u64,
    /// The kind of memory pages that the kernel provided.
    pub memory_backing: Backing,
    /// The number of pages that the members have room for now.
    pub pages: u64,
    /// The number of these pages that the write-ahead log takes; 0 in a store that was closed.
    pub log_pages: u64,
    /// The number of free pages.
    pub free_pages: u64,
    /// The number of free pages that an open store keeps for the dirty pages in its memory.
    pub reserve_pages: u64,
    /// The number of pages that are no longer in use, but kept because recovery after a crash, or a
    /// backup, needs them.
    pub retained_pages: u64,
    /// The time when the store was made, in seconds since 1970.
    pub created_s: u64,
    /// The store's id, as hexadecimal digits.
    pub id: String,
    /// The separate device of the store's log, if it has one.
    pub log_device: Option<LogDeviceReport>,
    /// Whether the store is encrypted.
    pub encrypted: bool,
    /// Whether the store refuses changes.
    pub read_only: bool,
    /// The results of recovery when the store was opened, if there was one.
    pub recovered: Option<Recovered>,
}

/// The separate device that a store keeps its log on.
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
    /// The device's name. For a store opened without its log device, the name at the last change of
    /// the store.
    pub name: String,
    /// The log device's id, as hexadecimal digits.
    pub id: String,
    /// The bytes that the logs take on the device, and the bytes that they may take. `None` for a
    /// store opened without its log device.
    pub space_bytes: Option<(u64, u64)>,
}

fn digits(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Store {
    /// Returns the counters since the store was opened.
    ///
    /// # Errors
    /// `Closed` if the store is closed.
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

    /// Returns the properties of the store.
    #[must_use]
    pub fn report(&self) -> StoreReport {
        let shared = &self.inner.shared;
        let superblock = self.inner.incarnation.superblock.lock();
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
            encrypted: superblock.key_slot.is_some(),
            read_only: shared.lifecycle.check_writable().is_err(),
            recovered: shared.lifecycle.recovered.get().copied(),
        }
    }
}
