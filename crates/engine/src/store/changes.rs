//! Changes that depend on the present value, each in a transaction of its own, and several changes
//! at once.

use std::sync::Arc;

use qpair_format::Result;

use super::Store;
use super::table::{Table, TaskTable};
use super::task_transaction::{TaskStore, TaskTransaction};
use crate::overflow::check_sizes;
use crate::task::check_here;
use crate::tx::TransactionOptions;

type Record = (Vec<u8>, Vec<u8>);

/// Changes of any tables of a store, which [`Store::write`] makes all at once.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// let (users, names) = (store.table("users")?, store.table("names")?);
/// let mut batch = qpair_engine::WriteBatch::default();
/// batch.put(&users, b"1", b"ada").put(&names, b"ada", b"1").delete(&names, b"alan");
/// store.write(&batch)?;
/// assert_eq!(names.get(b"ada")?.as_deref(), Some(&b"1"[..]));
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    /// Shared with the worker that writes the batch, so that a write copies nothing.
    changes: Arc<Changes>,
}

/// Changes with their keys and values one after the other in one buffer.
#[derive(Clone, Debug, Default)]
struct Changes {
    tables: Vec<Table>,
    bytes: Vec<u8>,
    list: Vec<Change>,
}

/// A change: its table's index, the place of its key, and the length of the value behind the key.
#[derive(Clone, Copy, Debug)]
struct Change {
    table: usize,
    at: usize,
    key_len: usize,
    /// `None` removes the record.
    value_len: Option<usize>,
}

/// The number of tables of a batch that are compared with the table of another change. A table
/// that was named earlier is named again, which is harmless.
const TABLES_COMPARED: usize = 8;

/// Whether both are the same table of the same open store.
fn is_same(one: &Table, other: &Table) -> bool {
    one.tree().id == other.tree().id && Arc::ptr_eq(one.inner(), other.inner())
}

impl Changes {
    fn push(&mut self, table: &Table, key: &[u8], value: Option<&[u8]>) {
        let mut near = self.tables.iter().enumerate().rev().take(TABLES_COMPARED);
        let known = near.find_map(|(index, other)| is_same(other, table).then_some(index));
        let table = known.unwrap_or_else(|| {
            self.tables.push(table.clone());
            self.tables.len() - 1
        });
        let at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.list.push(Change { table, at, key_len: key.len(), value_len: value.map(<[u8]>::len) });
    }

    /// Returns table, key and new value of each change.
    fn iter(&self) -> impl Iterator<Item = (&Table, &[u8], Option<&[u8]>)> {
        self.list.iter().map(|change| {
            let (key, rest) = self.bytes[change.at..].split_at(change.key_len);
            (&self.tables[change.table], key, change.value_len.map(|len| &rest[..len]))
        })
    }
}

impl WriteBatch {
    /// Adds a change that inserts or replaces a record, after the changes before it.
    pub fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> &mut Self {
        Arc::make_mut(&mut self.changes).push(table, key, Some(value));
        self
    }

    /// Adds a change that removes a key's record, if there is one.
    pub fn delete(&mut self, table: &Table, key: &[u8]) -> &mut Self {
        Arc::make_mut(&mut self.changes).push(table, key, None);
        self
    }

    /// Returns the number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.changes.list.len()
    }

    /// Whether the batch has no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.list.is_empty()
    }

    /// Removes all changes, and keeps the memory for new ones.
    pub fn clear(&mut self) {
        match Arc::get_mut(&mut self.changes) {
            Some(changes) => {
                changes.tables.clear();
                changes.bytes.clear();
                changes.list.clear();
            }
            // A copy of the batch has the memory.
            None => self.changes = Arc::default(),
        }
    }

    async fn write(&self, tx: &mut TaskTransaction) -> Result<()> {
        for (table, key, value) in self.changes.iter() {
            match value {
                Some(value) => tx.put(table, key, value).await?,
                None => drop(tx.delete(table, key).await?),
            }
        }
        Ok(())
    }
}

impl TaskStore {
    /// Like [`Store::write`], in a task.
    ///
    /// # Errors
    /// As [`Store::write`]; `Invalid` if awaited outside of the store's workers.
    pub async fn write(&self, batch: &WriteBatch) -> Result<()> {
        let keys = batch.changes.iter().map(|(table, key, _)| (table, key));
        self.prefetch(keys).await?;
        self.transact(async |tx| batch.write(tx).await).await
    }
}

impl Store {
    /// Makes all changes of a batch, in their order, or none of them.
    ///
    /// # Errors
    /// As [`Table::put`] and [`Transaction::commit`](crate::Transaction::commit); `Invalid` for a
    /// table of another store.
    pub fn write(&self, batch: &WriteBatch) -> Result<()> {
        let (store, batch) = (self.task(), batch.clone());
        self.inner.block_on(move || async move { store.write(&batch).await })
    }
}

impl Table {
    /// Inserts a record if the key has none; returns whether it was inserted.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        check_sizes(&self.inner().shared, self.tree(), key, value)?;
        let (table, key, value) = (self.task(), key.to_vec(), value.to_vec());
        self.inner().block_on(move || async move { table.insert(&key, &value).await })
    }

    /// Replaces a record if its value is the expected one; returns whether it was replaced. `None`
    /// stands for no record, in both `expected` and `new`.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn compare_and_swap(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        check_sizes(&self.inner().shared, self.tree(), key, new.unwrap_or_default())?;
        let (table, key) = (self.task(), key.to_vec());
        let (expected, new) = (expected.map(<[u8]>::to_vec), new.map(<[u8]>::to_vec));
        self.inner().block_on(move || async move {
            table.compare_and_swap(&key, expected.as_deref(), new.as_deref()).await
        })
    }

    /// Passes a key's value to `change`, puts the value that it returns, and returns that value;
    /// `None` stands for no record. `change` runs on a worker, with the row locked, and runs again
    /// if the transaction has to: it should only compute.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn update(
        &self,
        key: &[u8],
        change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>> + Send + 'static,
    ) -> Result<Option<Vec<u8>>> {
        let (table, key) = (self.task(), key.to_vec());
        self.inner().block_on(move || async move { table.update(&key, change).await })
    }

    /// Removes the record with the smallest key at the time of the call, and returns it. Concurrent
    /// callers each get a different record.
    ///
    /// # Errors
    /// As [`Table::delete`].
    pub fn pop_first(&self) -> Result<Option<Record>> {
        let table = self.task();
        self.inner().block_on(move || async move { table.pop_first().await })
    }

    /// Removes the record with the greatest key, and returns it; otherwise like
    /// [`Table::pop_first`].
    ///
    /// # Errors
    /// As [`Table::delete`].
    pub fn pop_last(&self) -> Result<Option<Record>> {
        let table = self.task();
        self.inner().block_on(move || async move { table.pop_last().await })
    }

    /// Returns the values of several keys, in the order of the keys. Pages that are not in memory
    /// are read all at the same time. Each key is looked up separately; to read all of them as of
    /// one moment, use a [`Snapshot`](crate::Snapshot).
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let keys: Vec<Vec<u8>> = keys.into_iter().map(|key| key.as_ref().to_vec()).collect();
        let table = self.task();
        self.inner().block_on(move || async move { table.multi_get(&keys).await })
    }

    /// Removes all records; returns their number. The removal is not atomic but in parts, as in
    /// [`Table::delete_range`]. Snapshots still see the records. [`Store::drop_table`] takes the
    /// same time for any number of records, and its pages become free in the background.
    ///
    /// ```
    /// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
    /// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
    /// # let store = qpair_engine::Store::open(vec![device], &options)?;
    /// let table = store.table("cache")?;
    /// table.put(b"1", b"ada")?;
    /// assert_eq!(table.clear()?, 1);
    /// assert!(table.is_empty()?);
    /// # store.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Table::delete_range`].
    pub fn clear(&self) -> Result<u64> {
        self.delete_range(..)
    }

    /// Returns the number of records, for which it reads all leaves.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn count(&self) -> Result<u64> {
        self.iter().try_fold(0, |count, record| record.map(|_| count + 1))
    }
}

impl TaskTable {
    /// Runs one transaction of the store, with the durability of single changes.
    async fn transact<T>(
        &self,
        run: impl AsyncFnMut(&mut TaskTransaction) -> Result<T>,
    ) -> Result<T> {
        check_here(self.shared())?;
        let durability = self.shared().wal.options.durability;
        let options = TransactionOptions { durability, ..TransactionOptions::default() };
        TaskStore::new(self.table().inner().clone()).transact_with(&options, run).await
    }

    /// Like [`Table::insert`], in a task.
    ///
    /// # Errors
    /// As [`Table::insert`]; `Invalid` if awaited outside of the store's workers.
    pub async fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.transact(async |tx| tx.insert(self.table(), key, value).await).await
    }

    /// Like [`Table::compare_and_swap`], in a task.
    ///
    /// # Errors
    /// As [`Table::compare_and_swap`]; `Invalid` if awaited outside of the store's workers.
    pub async fn compare_and_swap(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        self.transact(async |tx| tx.compare_and_swap(self.table(), key, expected, new).await).await
    }

    /// Like [`Table::update`], in a task.
    ///
    /// # Errors
    /// As [`Table::update`]; `Invalid` if awaited outside of the store's workers.
    pub async fn update(
        &self,
        key: &[u8],
        mut change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>> {
        let table = self.table();
        self.transact(async |tx| {
            let there = tx.get_for_update(table, key).await?;
            let new = change(there.as_deref());
            match &new {
                Some(new) => tx.put(table, key, new).await?,
                None if there.is_some() => drop(tx.delete(table, key).await?),
                None => {}
            }
            Ok(new)
        })
        .await
    }

    /// Like [`Table::pop_first`], in a task.
    ///
    /// # Errors
    /// As [`Table::pop_first`]; `Invalid` if awaited outside of the store's workers.
    pub async fn pop_first(&self) -> Result<Option<Record>> {
        self.pop(false).await
    }

    /// Like [`Table::pop_last`], in a task.
    ///
    /// # Errors
    /// As [`Table::pop_last`]; `Invalid` if awaited outside of the store's workers.
    pub async fn pop_last(&self) -> Result<Option<Record>> {
        self.pop(true).await
    }

    async fn pop(&self, last: bool) -> Result<Option<Record>> {
        let table = self.table();
        loop {
            let all = self.range(..)?.limit(1);
            let mut all = if last { all.reverse() } else { all };
            let Some((key, _)) = all.next().await? else { return Ok(None) };
            // The row is locked before it is read: a second task finds no record, and tries the
            // next one.
            let taken = self.transact(async |tx| {
                let value = tx.get_for_update(table, &key).await?;
                if value.is_some() {
                    tx.delete(table, &key).await?;
                }
                Ok(value)
            });
            if let Some(value) = taken.await? {
                return Ok(Some((key, value)));
            }
        }
    }

    /// Like [`Table::multi_get`], in a task.
    ///
    /// # Errors
    /// As [`Table::multi_get`]; `Invalid` if awaited outside of the store's workers.
    pub async fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        let store = TaskStore::new(self.table().inner().clone());
        store.prefetch(keys.iter().map(|key| (self.table(), key.as_ref()))).await?;
        let mut values = Vec::with_capacity(keys.len());
        for key in keys {
            values.push(self.get(key.as_ref()).await?);
        }
        Ok(values)
    }
}
