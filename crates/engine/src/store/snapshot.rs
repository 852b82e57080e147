//! Snapshots: the store as it was at one point, for reading while it changes.

use std::sync::Arc;

use qpair_format::Result;

use super::transaction_range::{Source, TaskTransactionRange, TransactionRange};
use super::{StoreInner, Table};
use crate::tx::{KeyBounds, RangeCursor, SnapshotCore, View, bounds};

/// The store as it was at one point, for reading in tasks. Snapshots and writers never wait for
/// each other. The older values that a snapshot needs are kept, in memory and on the device, until
/// it is dropped. Cheap to clone.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// table.put(b"a", b"1")?;
/// let (task, of) = (store.task(), table.clone());
/// let found = store.spawn(move || async move {
///     let snapshot = task.snapshot()?;
///     of.task().put(b"a", b"2").await?;
///     snapshot.get(&of, b"a").await
/// });
/// assert_eq!(found.join()??.as_deref(), Some(&b"1"[..]));
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct TaskSnapshot {
    core: SnapshotCore,
    inner: Arc<StoreInner>,
}

impl std::fmt::Debug for TaskSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskSnapshot").field("timestamp", &self.core.timestamp()).finish()
    }
}

impl TaskSnapshot {
    pub(super) fn take(inner: &Arc<StoreInner>) -> Result<Self> {
        Ok(Self { core: SnapshotCore::take(&inner.tx)?, inner: inner.clone() })
    }

    /// The timestamp of the newest commit that the snapshot sees.
    #[must_use]
    pub fn timestamp(&self) -> u64 {
        self.core.timestamp()
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// `SnapshotLost` if the snapshot was given up; `Invalid` if awaited outside of the store's
    /// workers; otherwise as [`Table::get`].
    pub async fn get(&self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(table, key, &mut value).await?.then_some(value))
    }

    /// Appends the value of a key to `value`; returns `false` if the key has no record.
    ///
    /// # Errors
    /// As [`TaskSnapshot::get`].
    pub async fn get_into(&self, table: &Table, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.core.get_into(table.tree_in(&self.inner)?, key, value).await
    }

    /// Returns the records of a range of keys, in order.
    ///
    /// # Errors
    /// `Invalid` if the range ends before it begins.
    pub fn range(&self, table: &Table, range: impl KeyBounds) -> Result<TaskTransactionRange<'_>> {
        let tree = table.tree_in(&self.inner)?;
        self.core.check_table(tree)?;
        let (from, to) = bounds(&range)?;
        let cursor = RangeCursor::new(&self.inner.tx, tree, from, to);
        Ok(TaskTransactionRange::new(View::Snapshot(&self.core), cursor))
    }
}

/// The store as it was at one point, for reading on threads that are no workers. See
/// [`TaskSnapshot`].
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// table.put(b"price", b"10")?;
/// let before = store.snapshot()?;
/// table.put(b"price", b"12")?;
/// assert_eq!(before.get(&table, b"price")?.as_deref(), Some(&b"10"[..]));
/// assert_eq!(before.range(&table, ..)?.count(), 1);
/// # drop(before);
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Snapshot {
    pub(super) core: SnapshotCore,
    pub(super) inner: Arc<StoreInner>,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("timestamp", &self.core.timestamp()).finish()
    }
}

impl Snapshot {
    pub(super) fn take(inner: &Arc<StoreInner>) -> Result<Self> {
        Ok(Self { core: SnapshotCore::take(&inner.tx)?, inner: inner.clone() })
    }

    /// The timestamp of the newest commit that the snapshot sees.
    #[must_use]
    pub fn timestamp(&self) -> u64 {
        self.core.timestamp()
    }

    /// Returns the same snapshot, for tasks.
    #[must_use]
    pub fn task(&self) -> TaskSnapshot {
        TaskSnapshot { core: self.core.clone(), inner: self.inner.clone() }
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// As [`TaskSnapshot::get`]; `Invalid` on a worker.
    pub fn get(&self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let tree = table.tree_in(&self.inner)?;
        if let Some(value) = self.core.get_inline(tree, key)? {
            return Ok(value);
        }
        let (core, key) = (self.core.clone(), key.to_vec());
        self.inner.block_on(move || async move {
            let mut value = Vec::new();
            Ok(core.get_into(tree, &key, &mut value).await?.then_some(value))
        })
    }

    /// Returns the records of a range of keys, in order.
    ///
    /// # Errors
    /// `Invalid` if the range ends before it begins.
    pub fn range(&self, table: &Table, range: impl KeyBounds) -> Result<TransactionRange<'_>> {
        let tree = table.tree_in(&self.inner)?;
        self.core.check_table(tree)?;
        let (from, to) = bounds(&range)?;
        let cursor = RangeCursor::new(&self.inner.tx, tree, from, to);
        Ok(TransactionRange::new(Source::Snapshot(self), cursor))
    }
}
