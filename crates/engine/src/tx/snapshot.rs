//! Snapshots: reading the store as it was at one point, beside all that changes it.

use std::sync::Arc;

use super::key_bounds::{KeyBounds, bounds};
use super::range::{RangeCursor, Source, TaskTransactionRange, TransactionRange, View};
use super::reading::{older_now, read_at};
use super::slot_here;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{StoreInner, Table};
use crate::task::run_inline;
use crate::tree::{Found, Get};

/// A snapshot in use; the last clone ends it.
#[derive(Clone)]
pub(crate) struct SnapshotCore(Arc<InUse>);

struct InUse {
    inner: Arc<StoreInner>,
    slot: usize,
    stamp: u64,
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.inner.tx.leave_snapshot(self.slot, self.stamp);
    }
}

impl SnapshotCore {
    pub(super) fn take(inner: &Arc<StoreInner>) -> Result<Self> {
        if inner.shared.clock.is_closed() {
            return Err(Error::closed());
        }
        let slot = slot_here(&inner.shared);
        let stamp = inner.tx.enter_snapshot(slot);
        Ok(Self(Arc::new(InUse { inner: inner.clone(), slot, stamp })))
    }

    pub(super) fn stamp(&self) -> u64 {
        self.0.stamp
    }

    pub(super) fn inner(&self) -> &Arc<StoreInner> {
        &self.0.inner
    }

    pub(super) fn check(&self) -> Result<()> {
        let name = || format!("commit {}", self.0.stamp);
        self.0.inner.tx.check_snapshot(self.0.stamp, name)
    }

    fn check_table(&self, table: &Table) -> Result<()> {
        if Arc::ptr_eq(table.inner(), &self.0.inner) {
            return self.0.inner.shared.check_table(table.tree());
        }
        Err(Error::new(ErrorKind::Invalid, "a snapshot of one store was given a table of another"))
    }

    async fn get_into(&self, table: &Table, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.check_table(table)?;
        let start = value.len();
        let found = read_at(&self.0.inner.tx, table.tree(), key, self.0.stamp, value).await;
        let there = self.check().and_then(|()| self.check_table(table));
        there.inspect_err(|_| value.truncate(start))?;
        found
    }

    fn get_inline(&self, table: &Table, key: &[u8]) -> Result<Option<Option<Vec<u8>>>> {
        self.check_table(table)?;
        let (shared, mut value) = (&self.0.inner.shared, Vec::new());
        let Some(found) = run_inline(shared, &mut Get::new(table.tree(), key, &mut value)) else {
            return Ok(None);
        };
        if !shared.may_give(shared.log.reads_wait, found.stamp.min(self.0.stamp)) {
            return Ok(None);
        }
        let found =
            older_now(&self.0.inner.tx, table.tree(), key, self.0.stamp, found, 0, &mut value);
        self.check()?;
        self.check_table(table)?;
        Ok(match found {
            Some(Found::Value) => Some(Some(value)),
            Some(Found::Nothing) => Some(None),
            Some(Found::Overflow) | None => None,
        })
    }
}

/// The store as it was at one point, for reading in tasks. It never waits for writers, and writers never wait for it;
/// but the older values that it needs are kept, in memory and on the device, as long as it is there. Cheap to clone.
#[derive(Clone)]
pub struct TaskSnapshot {
    core: SnapshotCore,
}

impl std::fmt::Debug for TaskSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskSnapshot").field("stamp", &self.core.stamp()).finish()
    }
}

impl TaskSnapshot {
    pub(super) fn new(core: SnapshotCore) -> Self {
        Self { core }
    }

    /// The commit up to which it sees the store.
    #[must_use]
    pub fn stamp(&self) -> u64 {
        self.core.stamp()
    }

    /// The value of a key.
    ///
    /// # Errors
    /// `SnapshotLost` if it was given up; as [`Table::get`] otherwise; `Invalid` if awaited outside of the store's
    /// workers.
    pub async fn get(&self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(table, key, &mut value).await?.then_some(value))
    }

    /// Appends the value of a key to `value`; `false` if there is no such key.
    ///
    /// # Errors
    /// As [`TaskSnapshot::get`].
    pub async fn get_into(&self, table: &Table, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.core.get_into(table, key, value).await
    }

    /// The records of a range of keys.
    ///
    /// # Errors
    /// `Invalid` if the range ends before it begins.
    pub fn range(&self, table: &Table, range: impl KeyBounds) -> Result<TaskTransactionRange<'_>> {
        self.core.check_table(table)?;
        let (from, to) = bounds(&range)?;
        let cursor = RangeCursor::new(table, from, to);
        Ok(TaskTransactionRange::new(View::Snapshot(&self.core), cursor))
    }
}

/// The store as it was at one point, for reading on threads that are no workers. See [`TaskSnapshot`].
#[derive(Clone)]
pub struct Snapshot {
    pub(super) core: SnapshotCore,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("stamp", &self.core.stamp()).finish()
    }
}

impl Snapshot {
    pub(super) fn new(core: SnapshotCore) -> Self {
        Self { core }
    }

    /// The commit up to which it sees the store.
    #[must_use]
    pub fn stamp(&self) -> u64 {
        self.core.stamp()
    }

    /// The same snapshot, for tasks.
    #[must_use]
    pub fn task(&self) -> TaskSnapshot {
        TaskSnapshot { core: self.core.clone() }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// As [`TaskSnapshot::get`]; `Invalid` on a worker.
    pub fn get(&self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some(value) = self.core.get_inline(table, key)? {
            return Ok(value);
        }
        let (core, table, key) = (self.core.clone(), table.clone(), key.to_vec());
        self.core.0.inner.block_on(move || async move {
            let mut value = Vec::new();
            Ok(core.get_into(&table, &key, &mut value).await?.then_some(value))
        })
    }

    /// The records of a range of keys, in order.
    ///
    /// # Errors
    /// `Invalid` if the range ends before it begins.
    pub fn range(&self, table: &Table, range: impl KeyBounds) -> Result<TransactionRange<'_>> {
        self.core.check_table(table)?;
        let (from, to) = bounds(&range)?;
        let cursor = Some(RangeCursor::new(table, from, to));
        Ok(TransactionRange { source: Source::Snapshot(self), cursor })
    }
}
