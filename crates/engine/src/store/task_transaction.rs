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

/// A store's transactions for tasks: while a call waits, other tasks run on the worker. Cheap to
/// clone.
///
/// The futures of calls may be dropped while they wait, as by a time-out, and several may be
/// awaited concurrently, by `join!`, `select!`, `FuturesUnordered` and similar.
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

    /// Begins a transaction with these options.
    #[must_use]
    pub fn begin_with(&self, options: &TransactionOptions) -> TaskTransaction {
        TaskTransaction { core: TxState::begin(&self.inner.tx, options), inner: self.inner.clone() }
    }

    /// Reads the pages of these keys into memory, all at the same time, whether the keys have
    /// records or not. Call it before a transaction that will need them: the transaction then finds
    /// them in memory, and does not keep its rows locked while it waits for the device. This is a
    /// hint: pages may leave memory again before they are used. Large values are not read.
    ///
    /// # Errors
    /// `Invalid` for a table of another store, or if awaited outside of the store's workers; `Io`,
    /// `Corrupt` if a page cannot be read; `NoMemory`.
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
    /// `Closed` if the store is closed.
    pub fn snapshot(&self) -> Result<TaskSnapshot> {
        TaskSnapshot::take(&self.inner)
    }
}

/// A transaction of a task. Other transactions see its writes only after
/// [`TaskTransaction::commit`]. Dropping the transaction rolls it back.
///
/// A transaction sees the store as of its first read, and its own writes. Each write locks its row
/// until the transaction ends, and waits if another transaction has the row locked. If another
/// transaction has changed the row since the first read, the call fails with `Conflict`, and so do
/// all later calls. Then roll back and run the transaction again, as [`TaskStore::transact`] does.
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
    /// Keeps the store open. Dropped after the transaction has ended.
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

    /// Returns the value of a key.
    ///
    /// # Errors
    /// As [`Table::get`]; `SnapshotLost` if the transaction's snapshot was given up; `Conflict`
    /// after a conflict; `Invalid` if awaited outside of the store's workers.
    pub async fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(table, key, &mut value).await?.then_some(value))
    }

    /// Appends the value of a key to `value`; returns `false` if the key has no record. No memory
    /// is allocated if `value` has room.
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

    /// Prefetches the memory that lookups of these keys touch into the processor's caches, all at
    /// the same time. Nothing is read from the device: this is the part of
    /// [`TaskTransaction::prefetch`] that does not wait, for keys whose pages are known to be in
    /// memory.
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

    /// Announces the keys that the transaction reads next, in this order. Reads their pages into
    /// memory and the data that their lookups touch into the processor's caches, all at the same
    /// time. Best before the first read and the first lock: the transaction then has no snapshot,
    /// and does not keep others waiting while it waits for the device. This is a hint: pages may
    /// leave memory again before they are used, and later reads return the same results as without
    /// it. Large values are not read.
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

    /// Locks a key's row, then reads its value. A transaction that later writes the row may have to
    /// wait here, but meets no conflict at the write.
    ///
    /// # Errors
    /// As [`TaskTransaction::get`] and [`TaskTransaction::lock`].
    pub async fn get_for_update(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_for_update_into(table, key, &mut value).await?.then_some(value))
    }

    /// Like [`TaskTransaction::get_for_update`], but appends to `value`; returns `false` if the key
    /// has no record.
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

    /// Locks a key's row until the transaction ends, whether the key has a record or not. Before
    /// the transaction's first read this call waits, and meets no conflict.
    ///
    /// # Errors
    /// `Conflict` if the row was changed since the snapshot was taken, or if transactions wait for
    /// each other in a cycle; `KeyTooLong`; `ReadOnly`; `Closed`.
    pub async fn lock(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        self.core.lock(self.tree(table)?, key).await
    }

    /// Inserts or replaces a record.
    ///
    /// # Errors
    /// As [`TaskTransaction::lock`]; `ValueTooLong`; `NoSpace` and errors of the device, for large
    /// values and for writes that memory has no room for; `TooLarge` if even what those need in
    /// memory exceeds the limit of the transaction's options.
    pub async fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.core.put(self.tree(table)?, key, value).await
    }

    /// Inserts a record if the key has none; returns whether it was inserted.
    ///
    /// # Errors
    /// As [`TaskTransaction::put`] and [`TaskTransaction::get`].
    pub async fn insert(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<bool> {
        self.core.insert(self.tree(table)?, key, value).await
    }

    /// Replaces a record if its value is the expected one; returns whether it was replaced. `None`
    /// stands for no record, in both `expected` and `new`.
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

    /// Removes a key's record; returns whether there was one.
    ///
    /// # Errors
    /// As [`TaskTransaction::put`] and [`TaskTransaction::get`].
    pub async fn delete(&mut self, table: &Table, key: &[u8]) -> Result<bool> {
        self.core.delete(self.tree(table)?, key).await
    }

    /// Removes all records of a range of keys that the transaction sees; returns their number.
    ///
    /// # Errors
    /// As [`TaskTransaction::delete`]; `NoSpace` and `TooLarge` as [`TaskTransaction::put`]. After
    /// an error, and if the future is dropped before its end, the removals so far are part of the
    /// transaction. Roll back to a savepoint to undo them.
    pub async fn delete_range(&mut self, table: &Table, range: impl KeyBounds) -> Result<u64> {
        let (from, to) = bounds(&range)?;
        self.core.delete_range(self.tree(table)?, from, to, u64::MAX).await
    }

    /// Returns the records of a range of keys, in order.
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

    /// Marks this point, for a later rollback to it.
    pub fn savepoint(&mut self) -> Savepoint {
        self.core.savepoint()
    }

    /// Discards all writes since a savepoint. Locks stay, and so does the savepoint; later
    /// savepoints are removed.
    ///
    /// # Errors
    /// `Invalid` if the transaction does not have this savepoint, or no longer has it; `Conflict`
    /// after a conflict.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.core.rollback_to(savepoint)
    }

    /// Makes all writes visible to every reader, at once.
    ///
    /// # Errors
    /// `Conflict`; `NoSpace`; `TooLarge` if the commit's log record is larger than the limit, or
    /// than a log device; `Closed`; `ReadOnly` if the store already was; errors of the device while
    /// reading. After these errors nothing was written. A write that fails after the commit has its
    /// timestamp makes the store read-only, and commit returns that error. Then the commit may be
    /// visible until the store is closed, and may or may not be there once the store is opened
    /// again.
    pub async fn commit(self) -> Result<Commit> {
        let Self { core, inner } = self;
        let timestamp = commit(core).await?;
        Ok(Commit { timestamp, inner })
    }

    /// Discards all writes, as dropping the transaction does.
    pub fn rollback(self) {}
}
