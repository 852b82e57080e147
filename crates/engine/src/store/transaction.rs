//! Transactions of threads that are no workers.

use std::future::Future;
use std::sync::Arc;

use qpair_format::{Error, Result};

use super::commit::Commit;
use super::snapshot::Snapshot;
use super::table::Table;
use super::task_transaction::TaskStore;
use super::transaction_range::{Source, TransactionRange};
use super::{Store, StoreInner};
use crate::task::refuse_on_worker;
use crate::tree::Tree;
use crate::tx::{
    Committing, Contended, KeyBounds, RangeCursor, Savepoint, TransactionInfo, TransactionOptions,
    TxState, bounds, nothing_to_do,
};

/// A transaction of a thread that is not a worker. Its calls block; otherwise it is like
/// [`TaskTransaction`](crate::TaskTransaction).
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// let mut tx = store.begin();
/// tx.put(&table, b"from", b"90")?;
/// tx.put(&table, b"to", b"110")?;
/// // It sees its own changes, and no other caller does before the commit.
/// assert_eq!(tx.get(&table, b"to")?.as_deref(), Some(&b"110"[..]));
/// assert_eq!(table.get(b"to")?, None);
/// tx.commit()?;
/// assert!(table.contains_key(b"to")?);
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Transaction {
    /// The state of the transaction. `None` while a worker has it, and after it was lost there.
    core: Option<TxState>,
    /// Keeps the store open. Dropped after the transaction has ended.
    inner: Arc<StoreInner>,
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let id = self.core.as_ref().map(|core| core.id);
        f.debug_struct("Transaction").field("id", &id).finish_non_exhaustive()
    }
}

impl Store {
    /// Returns the store's transactions for tasks.
    #[must_use]
    pub fn task(&self) -> TaskStore {
        TaskStore::new(self.inner.clone())
    }

    /// Begins a transaction.
    #[must_use]
    pub fn begin(&self) -> Transaction {
        self.begin_with(&TransactionOptions::default())
    }

    /// Begins a transaction with these options.
    #[must_use]
    pub fn begin_with(&self, options: &TransactionOptions) -> Transaction {
        let core = Some(TxState::begin(&self.inner.tx, options));
        Transaction { core, inner: self.inner.clone() }
    }

    /// Takes a snapshot of all that is committed.
    ///
    /// # Errors
    /// `Closed` if the store is closed.
    pub fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::take(&self.inner)
    }

    /// Returns the open transactions, the oldest first.
    #[must_use]
    pub fn transactions(&self) -> Vec<TransactionInfo> {
        self.inner.tx.transactions()
    }
}

impl Transaction {
    fn tree(&self, table: &Table) -> Result<Tree> {
        table.tree_in(&self.inner)
    }

    pub(super) fn core(&mut self) -> Result<&mut TxState> {
        refuse_on_worker()?;
        self.core.as_mut().ok_or_else(Error::closed)
    }

    /// Runs `make` on a worker, which has the transaction's state meanwhile.
    pub(super) fn on_worker<T, F>(
        &mut self,
        make: impl FnOnce(TxState) -> F + Send + 'static,
    ) -> Result<T>
    where
        F: Future<Output = (TxState, Result<T>)> + 'static,
        T: Send + 'static,
    {
        self.core()?.tx.shared.check_caller()?;
        let core = self.core.take().ok_or_else(Error::closed)?;
        let (core, result) = self.inner.block_on(move || async move { Ok(make(core).await) })?;
        self.core = Some(core);
        result
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// As [`TaskTransaction::get`](crate::TaskTransaction::get); `Invalid` on a worker.
    pub fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let tree = self.tree(table)?;
        let mut value = Vec::new();
        if let Some(found) = self.core()?.get_inline(tree, key, &mut value)? {
            return Ok(found.then_some(value));
        }
        let key = key.to_vec();
        self.on_worker(move |mut core| async move {
            let mut value = Vec::new();
            let found = core.get_into(tree, &key, &mut value).await;
            (core, found.map(|found| found.then_some(value)))
        })
    }

    /// Locks a key's row, then reads its value.
    ///
    /// # Errors
    /// As [`TaskTransaction::get_for_update`](crate::TaskTransaction::get_for_update); `Invalid` on
    /// a worker.
    pub fn get_for_update(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.lock(table, key)?;
        self.get(table, key)
    }

    /// Locks a key's row until the transaction ends.
    ///
    /// # Errors
    /// As [`TaskTransaction::lock`](crate::TaskTransaction::lock); `Invalid` on a worker.
    pub fn lock(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        let tree = self.tree(table)?;
        if self.core()?.lock_inline(tree, key)? {
            return Ok(());
        }
        let key = key.to_vec();
        self.on_worker(move |mut core| async move {
            let outcome = core.lock(tree, &key).await;
            (core, outcome)
        })
    }

    /// Inserts or replaces a record.
    ///
    /// # Errors
    /// As [`TaskTransaction::put`](crate::TaskTransaction::put); `Invalid` on a worker.
    pub fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        let tree = self.tree(table)?;
        if self.core()?.put_inline(tree, key, value)? {
            return Ok(());
        }
        let (key, value) = (key.to_vec(), value.to_vec());
        self.on_worker(move |mut core| async move {
            let outcome = core.put(tree, &key, &value).await;
            (core, outcome)
        })
    }

    /// Inserts a record if the key has none; returns whether it was inserted.
    ///
    /// # Errors
    /// As [`TaskTransaction::insert`](crate::TaskTransaction::insert); `Invalid` on a worker.
    pub fn insert(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<bool> {
        let tree = self.tree(table)?;
        if let Some(inserted) = self.core()?.insert_inline(tree, key, value)? {
            return Ok(inserted);
        }
        let (key, value) = (key.to_vec(), value.to_vec());
        self.on_worker(move |mut core| async move {
            let outcome = core.insert(tree, &key, &value).await;
            (core, outcome)
        })
    }

    /// Replaces a record if its value is the expected one; returns whether it was replaced. `None`
    /// stands for no record, in both `expected` and `new`.
    ///
    /// # Errors
    /// As [`TaskTransaction::compare_and_swap`](crate::TaskTransaction::compare_and_swap);
    /// `Invalid` on a worker.
    pub fn compare_and_swap(
        &mut self,
        table: &Table,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        let tree = self.tree(table)?;
        let key = key.to_vec();
        let (expected, new) = (expected.map(<[u8]>::to_vec), new.map(<[u8]>::to_vec));
        self.on_worker(move |mut core| async move {
            let swap = core.compare_and_swap(tree, &key, expected.as_deref(), new.as_deref());
            let outcome = swap.await;
            (core, outcome)
        })
    }

    /// Removes a key's record; returns whether there was one.
    ///
    /// # Errors
    /// As [`TaskTransaction::delete`](crate::TaskTransaction::delete); `Invalid` on a worker.
    pub fn delete(&mut self, table: &Table, key: &[u8]) -> Result<bool> {
        let tree = self.tree(table)?;
        if let Some(deleted) = self.core()?.delete_inline(tree, key)? {
            return Ok(deleted);
        }
        let key = key.to_vec();
        self.on_worker(move |mut core| async move {
            let outcome = core.delete(tree, &key).await;
            (core, outcome)
        })
    }

    /// Removes all records of a range of keys that the transaction sees; returns their number.
    ///
    /// # Errors
    /// As [`TaskTransaction::delete_range`](crate::TaskTransaction::delete_range); `Invalid` on a
    /// worker.
    pub fn delete_range(&mut self, table: &Table, range: impl KeyBounds) -> Result<u64> {
        let tree = self.tree(table)?;
        let (from, to) = bounds(&range)?;
        self.on_worker(move |mut core| async move {
            let outcome = core.delete_range(tree, from, to, u64::MAX).await;
            (core, outcome)
        })
    }

    /// Returns the records of a range of keys, in order.
    ///
    /// # Errors
    /// `Invalid` if the range ends before it begins.
    pub fn range(&mut self, table: &Table, range: impl KeyBounds) -> Result<TransactionRange<'_>> {
        let tree = self.tree(table)?;
        let (from, to) = bounds(&range)?;
        self.core()?.check(tree)?;
        let cursor = RangeCursor::new(&self.inner.tx, tree, from, to);
        Ok(TransactionRange::new(Source::Transaction(self), cursor))
    }

    /// Marks this point, for a later rollback to it.
    ///
    /// # Errors
    /// `Closed` if the transaction was lost with its store.
    pub fn savepoint(&mut self) -> Result<Savepoint> {
        Ok(self.core()?.savepoint())
    }

    /// Discards all writes since a savepoint. Locks stay, and so does the savepoint; later
    /// savepoints are removed.
    ///
    /// # Errors
    /// `Invalid` if the transaction does not have this savepoint, or no longer has it; `Conflict`
    /// after a conflict.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.core()?.rollback_to(savepoint)
    }

    /// Makes all writes visible to every reader, at once.
    ///
    /// # Errors
    /// As [`TaskTransaction::commit`](crate::TaskTransaction::commit); `Invalid` on a worker.
    pub fn commit(self) -> Result<Commit> {
        self.finish().0
    }

    /// Like [`Transaction::commit`], for any asynchronous runtime. The commit is made on the
    /// calling thread as far as possible without waiting, and then by a worker, even if the future
    /// is dropped meanwhile. Dropping a future that was never polled discards all writes.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub async fn commit_async(mut self) -> Result<Commit> {
        let inner = self.inner.clone();
        let mut core = self.core.take().ok_or_else(Error::closed)?;
        drop(self);
        inner.shared.check_caller()?;
        if let Some(timestamp) = nothing_to_do(&mut core)? {
            let (waits, seen) = core.seen();
            drop(core);
            if !inner.shared.wal.may_give(waits, seen) {
                let shared = inner.shared.clone();
                let wait = move || async move { shared.wait_to_give(waits, seen).await };
                inner.run_on_worker(wait).await?;
            }
            return Ok(Commit { timestamp, inner });
        }
        core.tx.incarnation.begin_change()?;
        let mut committing = Committing::new(core);
        let done = match committing.inline()? {
            Some(done) => done,
            None => inner.run_on_worker(move || async move { committing.complete().await }).await?,
        };
        Ok(Commit { timestamp: done.timestamp, inner })
    }

    /// Commits; returns also the row on which the transaction met a conflict.
    pub(super) fn finish(mut self) -> (Result<Commit>, Option<Contended>) {
        let Some(mut core) = self.core.take() else { return (Err(Error::closed()), None) };
        let contended = core.contended.take();
        (finish(&self.inner, core), contended)
    }

    /// Discards all writes, as dropping the transaction does.
    pub fn rollback(self) {}
}

fn finish(inner: &Arc<StoreInner>, mut core: TxState) -> Result<Commit> {
    inner.shared.check_caller()?;
    if let Some(timestamp) = nothing_to_do(&mut core)? {
        let (waits, seen) = core.seen();
        inner.block_to_give(waits, seen)?;
        return Ok(Commit { timestamp, inner: inner.clone() });
    }
    core.tx.incarnation.begin_change()?;
    let mut committing = Committing::new(core);
    let done = match committing.inline()? {
        Some(done) => done,
        None => inner.block_on(move || async move { committing.complete().await })?,
    };
    Ok(Commit { timestamp: done.timestamp, inner: inner.clone() })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use qpair_block::{RamDevice, RamOptions};

    use crate::{Store, StoreOptions};

    /// A regression: each insertion and deletion went to a worker and back, so that a transaction
    /// of 200,000 deletions took 4 s.
    #[test]
    fn what_is_in_memory_is_inserted_and_deleted_on_the_callers_thread() {
        let ram = RamOptions { size_bytes: 16 << 20, ..RamOptions::default() };
        let options = StoreOptions { format: true, ..StoreOptions::default() };
        let store = Store::open(vec![Arc::new(RamDevice::new(ram).unwrap())], &options).unwrap();
        let table = store.table("t").unwrap();
        let tree = table.tree();
        table.put(b"there", b"1").unwrap();
        let mut tx = store.begin();
        let core = tx.core().unwrap();
        assert_eq!(core.insert_inline(tree, b"there", b"2").unwrap(), Some(false));
        assert_eq!(core.insert_inline(tree, b"new", b"2").unwrap(), Some(true));
        assert_eq!(core.insert_inline(tree, b"new", b"3").unwrap(), Some(false));
        assert_eq!(core.insert_inline(tree, b"large", &[1; 100_000]).unwrap(), None);
        assert_eq!(core.delete_inline(tree, b"there").unwrap(), Some(true));
        assert_eq!(core.delete_inline(tree, b"there").unwrap(), Some(false));
        assert_eq!(core.delete_inline(tree, b"none").unwrap(), Some(false));
        assert_eq!(core.insert_inline(tree, b"there", b"4").unwrap(), Some(true));
        tx.commit().unwrap();
        assert_eq!(table.get(b"there").unwrap().unwrap(), b"4");
        assert_eq!(table.get(b"new").unwrap().unwrap(), b"2");
    }
}
