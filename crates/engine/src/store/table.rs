//! Tables: records by key. Blocking calls for any thread but a worker's, and the same calls for
//! tasks.

mod long_keys;

use std::cell::Cell;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use qpair_format::large::Descriptor;
use qpair_format::{Error, ErrorKind, Result};

use super::StoreInner;
use super::range::{Range, TaskRange};
use super::removal::RangeRemoval;
use crate::overflow::{self, check_sizes};
use crate::shared::Shared;
use crate::task::{check_here, run, run_inline};
use crate::tree::{Found, Get, Seen, Tree};
use crate::tx::{self, Inline, KeyBounds, bounds};

/// The size of the buffer that a thread keeps for [`Table::get_with`] at most, in bytes.
const BUFFER_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// The buffer to which [`Table::get_with`] copies a value.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A table of a store: an ordered map from keys to values, both byte strings. Cheap to clone.
///
/// The calls of this type block, and may be made from any thread but a worker's; in a task, use
/// [`Table::task`].
#[derive(Clone)]
pub struct Table {
    inner: Arc<StoreInner>,
    tree: Tree,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("id", &self.tree.id).finish_non_exhaustive()
    }
}

impl Table {
    pub(crate) fn new(inner: Arc<StoreInner>, tree: Tree) -> Self {
        Self { inner, tree }
    }

    /// Returns the table's calls for tasks.
    #[must_use]
    pub fn task(&self) -> TaskTable {
        TaskTable { table: self.clone() }
    }

    pub(crate) fn inner(&self) -> &Arc<StoreInner> {
        &self.inner
    }

    pub(crate) fn tree(&self) -> Tree {
        self.tree
    }

    /// Returns the table's tree, for a transaction or a snapshot of `inner`.
    ///
    /// # Errors
    /// `Invalid` if the table belongs to another store.
    pub(super) fn tree_in(&self, inner: &Arc<StoreInner>) -> Result<Tree> {
        if !Arc::ptr_eq(&self.inner, inner) {
            return Err(Error::new(
                ErrorKind::Invalid,
                "the table belongs to another store than the transaction or snapshot",
            ));
        }
        Ok(self.tree)
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// `Corrupt` and `Io` if a page on the path to the key could not be read, or is damaged; damage
    /// of other pages does not matter. `ReadOnly` if the value did not become durable, since the
    /// log could not be written ([`Durability`](crate::Durability)). `Invalid` on a worker, whether
    /// the page is in memory or not.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_blocking(key, &mut value)?.then_some(value))
    }

    /// Calls `read` with the value of a key and returns its result; `None` if the key has no
    /// record. The value is in a buffer that the thread reuses: no memory is allocated for a value
    /// whose page is in memory. `read` may call the store.
    ///
    /// ```
    /// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
    /// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
    /// # let store = qpair_engine::Store::open(vec![device], &options)?;
    /// let table = store.table("counts")?;
    /// table.put(b"a", &7u32.to_be_bytes())?;
    /// let count = table.get_with(b"a", |value| value.try_into().map_or(0, u32::from_be_bytes))?;
    /// assert_eq!(count, Some(7));
    /// # store.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn get_with<T>(&self, key: &[u8], read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        // A call within `read` finds no buffer and makes its own. So does a thread that is ending.
        let mut value = BUFFER.try_with(Cell::take).unwrap_or_default();
        value.clear();
        let found = self.get_blocking(key, &mut value)?;
        let made = found.then(|| read(&value));
        if value.capacity() <= BUFFER_BYTES_MAX {
            // A thread that is ending keeps no buffer.
            let _ = BUFFER.try_with(|buffer| buffer.set(value));
        }
        Ok(made)
    }

    /// Puts a key's value into `value`, which is empty; returns `false` if the key has no record.
    #[inline(always)]
    fn get_blocking(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        if let Some((found, timestamp)) = self.get_inline(key, value)? {
            self.inner.block_to_give(self.inner.shared.wal.options.reads_wait, timestamp)?;
            return Ok(found);
        }
        let (table, key) = (self.task(), key.to_vec());
        let there = self.inner.block_on(move || async move { table.get(&key).await })?;
        Ok(there.map(|there| *value = there).is_some())
    }

    /// Puts a key's value into `value`, which is empty, if its page is in memory. Returns whether
    /// the key has a value, and the timestamp of a commit that made it so, or of a later one.
    /// Returns `None` if the caller has to wait for the value.
    #[inline(always)]
    fn get_inline(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<(bool, u64)>> {
        let (shared, start) = (&self.inner.shared, value.len());
        if self.tree.is_long(key) {
            return Ok(None);
        }
        shared.check_table(self.tree)?;
        let seen = run_inline(shared, &mut Get::new(self.tree, key, value));
        shared.check_table(self.tree)?;
        Ok(match seen {
            Some(Seen { found, timestamp, .. }) if found != Found::Overflow => {
                let found = found == Found::Value;
                Some((shared.value(self.tree, found, value, start)?, timestamp))
            }
            _ => None,
        })
    }

    /// Inserts or replaces a record; returns whether one was replaced. Waits while a transaction
    /// has the record locked. Never call this while a transaction of the same thread has it locked:
    /// within a closure of [`Store::transact`](crate::Store::transact) the call is refused; beside
    /// a [`Transaction`](crate::Transaction) begun by hand it waits for ever.
    ///
    /// # Errors
    /// `Invalid` if a transaction whose closure this thread is in has the record locked;
    /// `KeyTooLong`, `ValueTooLong`, `NoSpace`, `ReadOnly`, and errors of the device. After an
    /// error the record is unchanged, with one exception: if writing the log failed (`ReadOnly`,
    /// and the store is read-only from then on), the new value may or may not be there once the
    /// store is opened again.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.inner.shared.check_caller()?;
        check_sizes(&self.inner.shared, self.tree, key, value)?;
        self.inner.incarnation.begin_change()?;
        match tx::put_inline(&self.inner.tx, self.tree, key, value)? {
            Inline::Done(replaced) => return Ok(replaced),
            Inline::Begun(mut committing) => {
                return self
                    .inner
                    .block_on(move || async move { Ok(committing.complete().await?.found) });
            }
            Inline::Nothing => {}
        }
        let (table, key, value) = (self.task(), key.to_vec(), value.to_vec());
        self.inner.block_on(move || async move { table.put(&key, &value).await })
    }

    /// Removes a key's record; returns whether there was one.
    ///
    /// # Errors
    /// `ReadOnly`, and errors of the device.
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        self.inner.shared.check_caller()?;
        self.inner.incarnation.begin_change()?;
        let (table, key) = (self.task(), key.to_vec());
        self.inner.block_on(move || async move { table.delete(&key).await })
    }

    /// Removes the records of a range of keys; returns their number. The removal is not atomic: it
    /// uses transactions of up to 1,000 records each (fewer where a full device has no room for so
    /// many), to bound memory and locks. For all or nothing, use
    /// [`Transaction::delete_range`](crate::Transaction::delete_range).
    ///
    /// # Errors
    /// As [`Table::delete`]; `Invalid` if the range ends before it begins. After an error some of
    /// the records may be gone.
    pub fn delete_range(&self, range: impl KeyBounds) -> Result<u64> {
        self.delete_range_with(range, |_| ControlFlow::Continue(()))
    }

    /// Like [`Table::delete_range`]; calls `progress` on this thread after each transaction, with
    /// the number of records removed so far. `progress` may break the removal off.
    ///
    /// # Errors
    /// As [`Table::delete_range`]; `Interrupted` if `progress` broke it off.
    pub fn delete_range_with(
        &self,
        range: impl KeyBounds,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        let (from, to) = bounds(&range)?;
        let mut removal = RangeRemoval::new(self, from, to);
        // One worker runs all parts: a part waits for that worker's older values to be written, and
        // not for another worker's.
        let worker = self.inner.next_worker();
        loop {
            let goes_on;
            (removal, goes_on) = self.inner.block_on_worker(worker, move || async move {
                let goes_on = removal.part().await?;
                Ok((removal, goes_on))
            })?;
            match progress(removal.deleted()) {
                _ if !goes_on => return Ok(removal.deleted()),
                ControlFlow::Continue(()) => {}
                ControlFlow::Break(()) => {
                    return Err(Error::new(
                        ErrorKind::Interrupted,
                        "the removal of a range was interrupted",
                    ));
                }
            }
        }
    }

    /// Returns the records of a range of keys, in order; [`Range::reverse`] reverses it. Each leaf
    /// is read when the iteration gets there, in its state of that moment. After the error of a
    /// leaf that cannot be read the iteration ends.
    ///
    /// # Errors
    /// `Invalid` if the range ends before it begins.
    pub fn range(&self, range: impl KeyBounds) -> Result<Range> {
        let (from, to) = bounds(&range)?;
        Ok(Range::new(self.clone(), from, to))
    }

    /// Returns all records, in order.
    #[must_use]
    pub fn iter(&self) -> Range {
        Range::new(self.clone(), Bound::Unbounded, Bound::Unbounded)
    }

    /// Returns the record with the smallest key.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn first(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.iter().limit(1).next().transpose()
    }

    /// Returns the record with the greatest key.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn last(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.iter().reverse().limit(1).next().transpose()
    }

    /// Whether a key has a record.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn contains_key(&self, key: &[u8]) -> Result<bool> {
        Ok(self.get_with(key, |_| ())?.is_some())
    }

    /// Appends the value of a key to `value` if its page is in memory, without waiting. Returns
    /// whether the key has a record; returns `None` and leaves `value` unchanged if the caller has
    /// to wait for the answer, with [`Table::get`] or [`Table::get_async`]. No memory is allocated
    /// if `value` has room.
    ///
    /// # Errors
    /// `NotFound` if the table was dropped. All other conditions, among them a closed store, are
    /// reported by the call that waits.
    pub fn try_get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<bool>> {
        let (wal, start) = (&self.inner.shared.wal, value.len());
        match self.get_inline(key, value) {
            Ok(Some((found, timestamp))) if wal.may_give(wal.options.reads_wait, timestamp) => {
                Ok(Some(found))
            }
            outcome => {
                value.truncate(start);
                outcome.map(|_| None)
            }
        }
    }

    /// Like [`Table::get`], for any asynchronous runtime: waits without blocking the thread. A
    /// value in memory is returned at once.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub async fn get_async(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        if let Some(found) = self.try_get_into(key, &mut value)? {
            return Ok(found.then_some(value));
        }
        let (table, key) = (self.task(), key.to_vec());
        self.inner.run_on_worker(move || async move { table.get(&key).await }).await
    }

    /// Like [`Table::put`], for any asynchronous runtime. The record is put even if the future is
    /// dropped meanwhile.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub async fn put_async(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        check_sizes(&self.inner.shared, self.tree, key, value)?;
        let (table, key, value) = (self.task(), key.to_vec(), value.to_vec());
        self.inner.run_on_worker(move || async move { table.put(&key, &value).await }).await
    }

    /// Like [`Table::delete`], for any asynchronous runtime. The record is removed even if the
    /// future is dropped meanwhile.
    ///
    /// # Errors
    /// As [`Table::delete`].
    pub async fn delete_async(&self, key: &[u8]) -> Result<bool> {
        let (table, key) = (self.task(), key.to_vec());
        self.inner.run_on_worker(move || async move { table.delete(&key).await }).await
    }
}

/// A [`Table`]'s calls for tasks: while they wait, other tasks run on the worker.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// let of = table.task();
/// let found = store.spawn(move || async move {
///     of.put(b"k", b"v").await?;
///     of.get(b"k").await
/// });
/// assert_eq!(found.join()??.as_deref(), Some(&b"v"[..]));
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TaskTable {
    table: Table,
}

impl TaskTable {
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.table.inner.shared
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// As [`Table::get`]; `Invalid` if awaited outside of the store's workers.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value).await?.then_some(value))
    }

    /// Appends the value of a key to `value`; returns `false` if the key has no record. No memory
    /// is allocated if `value` has room.
    ///
    /// # Errors
    /// As [`TaskTable::get`]; `value` is then unchanged.
    pub async fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        if self.table.tree.is_long(key) {
            return Box::pin(self.get_long(key, value)).await;
        }
        self.shared().check_table(self.table.tree)?;
        let start = value.len();
        let Seen { found, timestamp, .. } =
            run(self.shared(), Get::new(self.table.tree, key, value)).await?;
        let found = match found {
            Found::Value => Ok((true, timestamp)),
            Found::Nothing => Ok((false, timestamp)),
            Found::Overflow => self.get_overflow(key, timestamp, value).await,
        };
        let there = self.shared().check_table(self.table.tree);
        there.inspect_err(|_| value.truncate(start))?;
        let (found, timestamp) = found?;
        self.wait_to_give(timestamp).await.inspect_err(|_| value.truncate(start))?;
        self.shared().value(self.table.tree, found, value, start)
    }

    async fn wait_to_give(&self, timestamp: u64) -> Result<()> {
        let shared = self.shared();
        shared.wait_to_give(shared.wal.options.reads_wait, timestamp).await
    }

    /// Completes a lookup that found a descriptor of a large value at a timestamp and appended it
    /// to `value`. Returns whether there is a value, and the timestamp of the leaf that says so.
    async fn get_overflow(
        &self,
        key: &[u8],
        mut timestamp: u64,
        value: &mut Vec<u8>,
    ) -> Result<(bool, u64)> {
        let start = value.len() - Descriptor::BYTES.min(value.len());
        let mut previous = None;
        loop {
            let encoded = value.split_off(start);
            let descriptor = Descriptor::decode(&encoded, self.shared().page_bytes)?;
            match overflow::read(self.shared(), descriptor, value).await {
                Ok(true) => return Ok((true, timestamp)),
                // The value was replaced meanwhile, or is damaged: the second lookup tells which.
                outcome => {
                    value.truncate(start);
                    if previous == Some(descriptor) {
                        outcome?;
                        return Err(Error::new(
                            ErrorKind::Corrupt,
                            format!(
                                "the pages from page {} on belong to another large value",
                                descriptor.page_id
                            ),
                        ));
                    }
                    previous = Some(descriptor);
                }
            }
            let seen = run(self.shared(), Get::new(self.table.tree, key, value)).await?;
            timestamp = seen.timestamp;
            match seen.found {
                Found::Value => return Ok((true, timestamp)),
                Found::Nothing => return Ok((false, timestamp)),
                Found::Overflow => {}
            }
        }
    }

    /// Inserts or replaces a record; returns whether one was replaced.
    ///
    /// # Errors
    /// As [`Table::put`]; `Invalid` if awaited outside of the store's workers.
    pub async fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        check_here(self.shared())?;
        tx::put(&self.table.inner.tx, self.table.tree, key, value).await
    }

    /// Removes a key's record; returns whether there was one.
    ///
    /// # Errors
    /// As [`Table::delete`]; `Invalid` if awaited outside of the store's workers.
    pub async fn delete(&self, key: &[u8]) -> Result<bool> {
        check_here(self.shared())?;
        tx::delete(&self.table.inner.tx, self.table.tree, key).await
    }

    /// Removes the records of a range of keys; returns their number.
    ///
    /// # Errors
    /// As [`Table::delete_range`]; `Invalid` if awaited outside of the store's workers.
    pub async fn delete_range(&self, range: impl KeyBounds) -> Result<u64> {
        let (from, to) = bounds(&range)?;
        let mut removal = RangeRemoval::new(&self.table, from, to);
        while removal.part().await? {}
        Ok(removal.deleted())
    }

    /// Returns the records of a range of keys, in order.
    ///
    /// # Errors
    /// As [`Table::range`].
    pub fn range(&self, range: impl KeyBounds) -> Result<TaskRange> {
        let (from, to) = bounds(&range)?;
        Ok(TaskRange::new(self.table.clone(), from, to))
    }

    /// Replaces the descriptor, all that `value` has, by the large value itself; returns whether
    /// there is still a value. The leaf with the descriptor may already be shown to the program.
    pub(crate) async fn resolve(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let there = self.get_overflow(key, 0, value).await;
        // The pages of a dropped table may belong to another table by now.
        self.shared().check_table(self.table.tree)?;
        let (there, timestamp) = there?;
        self.wait_to_give(timestamp).await?;
        self.shared().value(self.table.tree, there, value, 0)
    }
}
