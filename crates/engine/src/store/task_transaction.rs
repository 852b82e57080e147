//! Transactions of tasks.

use std::sync::Arc;

use qpair_format::Result;

use super::StoreInner;
use super::commit::Commit;
use super::snapshot::TaskSnapshot;
use super::table::Table;
use super::transaction_range::TaskTransactionRange;
use crate::task::{check_here, current};
use crate::tree::Tree;
use crate::tx::{
    KeyBounds, PrefetchSet, RangeCursor, Savepoint, TransactionOptions, TxState, View, bounds,
    commit,
};

/// A store's transactions for tasks: calls wait by giving the worker to others. Cheap to clone.
///
/// Calls may be dropped while they wait, as by a time-out, and several may be awaited side by side, by `join!`, `select!`, `FuturesUnordered` and
/// their like.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// let (task, of) = (store.task(), table.clone());
/// let done = store.spawn(move || async move {
///     task.transact(async |tx| tx.put(&of, b"k", b"v").await).await
/// });
/// done.join()??;
/// assert!(table.contains_key(b"k")?);
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct TaskStore {
    pub(super) inner: Arc<StoreInner>,
}

impl std::fmt::Debug for TaskStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskStore").finish_non_exhaustive()
    }
}

impl TaskStore {
    pub(crate) fn new(inner: Arc<StoreInner>) -> Self {
        Self { inner }
    }

    /// Begins a transaction.
    #[must_use]
    pub fn begin(&self) -> TaskTransaction {
        self.begin_with(&TransactionOptions::default())
    }

    /// Begins a transaction with options of its own.
    #[must_use]
    pub fn begin_with(&self, options: &TransactionOptions) -> TaskTransaction {
        TaskTransaction { core: TxState::begin(&self.inner.tx, options), inner: self.inner.clone() }
    }

    /// Reads the pages that these keys are in, or would be in, into memory, all at the same time. Call it before a transaction begins that
    /// needs them: the transaction then finds them in memory, and keeps no other transaction waiting for its rows while it waits for the
    /// device. A hint: pages may leave memory again before they are used. Large values are not read.
    ///
    /// # Errors
    /// `Invalid` for a table of another store, or if awaited outside of the store's workers; `Io`, `Corrupt` if a page cannot
    /// be had; `NoMemory`.
    pub async fn prefetch<'k>(
        &self,
        keys: impl IntoIterator<Item = (&'k Table, &'k [u8])>,
    ) -> Result<()> {
        check_here(&self.inner.shared)?;
        let mut ahead = PrefetchSet::default();
        for (table, key) in keys {
            let tree = table.tree_in(&self.inner)?;
            self.inner.shared.check_table(tree)?;
            ahead.push(tree, key);
        }
        current(|worker| ahead.fetch(worker.context()));
        ahead.read_missing(&self.inner.shared).await
    }

    /// Takes a snapshot of all that is committed.
    ///
    /// # Errors
    /// `Closed` if the store is.
    pub fn snapshot(&self) -> Result<TaskSnapshot> {
        TaskSnapshot::take(&self.inner)
    }
}

/// A transaction of a task. Others see its writes only after [`TaskTransaction::commit`]; dropped, it is rolled back.
///
/// It sees the store as it was at its first read, and its own writes. Each write locks its row until the transaction is
/// over, and waits if another has it locked. If another has changed the row since the first read, the call fails with
/// `Conflict`, and so does all that follows: then roll back and begin anew, as [`TaskStore::transact`] does.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// let (task, of) = (store.task(), table.clone());
/// let done = store.spawn(move || async move {
///     let mut tx = task.begin();
///     tx.put(&of, b"k", b"v").await?;
///     tx.commit().await?.durable().await
/// });
/// done.join()??;
/// assert!(table.contains_key(b"k")?);
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TaskTransaction {
    pub(super) core: TxState,
    /// Keeps the store open. Dropped after the transaction is over.
    inner: Arc<StoreInner>,
}

impl std::fmt::Debug for TaskTransaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskTransaction").field("id", &self.core.id).finish_non_exhaustive()
    }
}

impl TaskTransaction {
    fn tree(&self, table: &Table) -> Result<Tree> {
        table.tree_in(&self.inner)
    }

    /// The value of a key.
    ///
    /// # Errors
    /// As [`Table::get`]; `SnapshotLost` if its snapshot was given up; `Conflict` after a conflict; `Invalid` if awaited
    /// outside of the store's workers.
    pub async fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(table, key, &mut value).await?.then_some(value))
    }

    /// Appends the value of a key to `value`; `false` if there is no such key. No memory is allocated for it if `value`
    /// has room.
    ///
    /// # Errors
    /// As [`TaskTransaction::get`].
    pub async fn get_into(
        &mut self,
        table: &Table,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool> {
        self.core.get_into(self.tree(table)?, key, value).await
    }

    /// Brings into the processor's caches what lookups of these keys touch in memory, all at the same time. Nothing is read from the device: this is
    /// the part of [`TaskTransaction::prefetch`] that does not wait, for keys whose pages are known to be in memory.
    ///
    /// # Errors
    /// `Invalid` for a table of another store; `Conflict` after a conflict.
    #[doc(hidden)]
    pub fn prefetch_cached<'k>(
        &mut self,
        keys: impl IntoIterator<Item = (&'k Table, &'k [u8])>,
    ) -> Result<()> {
        let inner = &self.inner;
        let keys = keys.into_iter().map(|(table, key)| Ok((table.tree_in(inner)?, key)));
        self.core.prefetch_cached(keys)
    }

    /// Says which keys the transaction reads next, in this order. Their pages are read into memory, all at the same time, and what their lookups
    /// touch there comes into the processor's caches. Best before the first read and the first lock: a transaction has no snapshot then, and
    /// keeps no other transaction waiting while it waits for the device. A hint: pages may leave memory again before they are used, and what is
    /// read later is what it would have been. Large values are not read.
    ///
    /// # Errors
    /// As [`TaskStore::prefetch`]; `Conflict` after a conflict.
    pub async fn prefetch<'k>(
        &mut self,
        keys: impl IntoIterator<Item = (&'k Table, &'k [u8])>,
    ) -> Result<()> {
        let inner = &self.inner;
        let keys = keys.into_iter().map(|(table, key)| Ok((table.tree_in(inner)?, key)));
        self.core.prefetch(keys).await
    }

    /// Locks a key's row, then reads its value. A transaction that reads a row this way and writes it later waits, but meets no conflict there.
    ///
    /// # Errors
    /// As [`TaskTransaction::get`] and [`TaskTransaction::lock`].
    pub async fn get_for_update(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_for_update_into(table, key, &mut value).await?.then_some(value))
    }

    /// [`TaskTransaction::get_for_update`], appending to `value`; `false` if there is no such key.
    ///
    /// # Errors
    /// As [`TaskTransaction::get_for_update`].
    pub async fn get_for_update_into(
        &mut self,
        table: &Table,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool> {
        self.core.get_for_update(self.tree(table)?, key, value).await
    }

    /// Locks a key's row, whether there is such a key or not, until the transaction is over. Before the first read this
    /// waits, and meets no conflict.
    ///
    /// # Errors
    /// `Conflict` if the row was changed since the snapshot was taken, or if transactions wait for one another in a
    /// cycle; `KeyTooLong`; `ReadOnly`; `Closed`.
    pub async fn lock(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        self.core.lock(self.tree(table)?, key).await
    }

    /// Inserts or replaces a record.
    ///
    /// # Errors
    /// As [`TaskTransaction::lock`]; `ValueTooLong`; `TooLarge` if the transaction has more to write than its options
    /// allow; for large values `NoSpace` and what the device says.
    pub async fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.core.put(self.tree(table)?, key, value).await
    }

    /// Inserts a record if there is none of this key; whether it did.
    ///
    /// # Errors
    /// As [`TaskTransaction::put`] and [`TaskTransaction::get`].
    pub async fn insert(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<bool> {
        self.core.insert(self.tree(table)?, key, value).await
    }

    /// Replaces a record by another if its value is the one expected, where none stands for no record; whether it did.
    ///
    /// # Errors
    /// As [`TaskTransaction::put`] and [`TaskTransaction::get`].
    pub async fn compare_and_swap(
        &mut self,
        table: &Table,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        self.core.compare_and_swap(self.tree(table)?, key, expected, new).await
    }

    /// Removes a key's record; whether there was one.
    ///
    /// # Errors
    /// As [`TaskTransaction::put`] and [`TaskTransaction::get`].
    pub async fn delete(&mut self, table: &Table, key: &[u8]) -> Result<bool> {
        self.core.delete(self.tree(table)?, key).await
    }

    /// Removes all records of a range of keys that the transaction sees; how many.
    ///
    /// # Errors
    /// As [`TaskTransaction::delete`]; `TooLarge` if they are more than its options allow. Then, and if it is dropped before its end,
    /// what it did up to there is part of the transaction; a savepoint takes it back.
    pub async fn delete_range(&mut self, table: &Table, range: impl KeyBounds) -> Result<u64> {
        let (from, to) = bounds(&range)?;
        self.core.delete_range(self.tree(table)?, from, to, u64::MAX).await
    }

    /// The records of a range of keys, in order.
    ///
    /// # Errors
    /// `Invalid` if the range ends before it begins.
    pub fn range(
        &mut self,
        table: &Table,
        range: impl KeyBounds,
    ) -> Result<TaskTransactionRange<'_>> {
        let (from, to) = bounds(&range)?;
        let tree = self.tree(table)?;
        self.core.check(tree)?;
        let cursor = RangeCursor::new(&self.inner.tx, tree, from, to);
        Ok(TaskTransactionRange::new(View::Transaction(&mut self.core), cursor))
    }

    /// Marks this point, to roll back to.
    pub fn savepoint(&mut self) -> Savepoint {
        self.core.savepoint()
    }

    /// Forgets what was written since a savepoint. Locks stay, and so does the savepoint; later ones are gone.
    ///
    /// # Errors
    /// `Invalid` if the transaction does not have it, or no longer; `Conflict` after a conflict.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.core.rollback_to(savepoint)
    }

    /// Makes all writes visible to every reader, at once.
    ///
    /// # Errors
    /// `Conflict`; `NoSpace`; `TooLarge` if its record is larger than one may be, or than a log device; `Closed`; `ReadOnly` if the store was
    /// before; what the device says of reads: then nothing was written. A write that fails when the commit has its timestamp makes the store
    /// read-only, and that is the error then: the commit may be seen until the store is closed, and the caller cannot know whether it is there once
    /// the store is opened again.
    pub async fn commit(self) -> Result<Commit> {
        let Self { core, inner } = self;
        let timestamp = commit(core).await?;
        Ok(Commit { timestamp, inner })
    }

    /// Forgets all writes. The same as dropping it.
    pub fn rollback(self) {}
}
