//! Transactions of threads that are no workers.

use std::future::Future;

use super::TransactionInfo;
use super::commit::{Work, nothing_to_do};
use super::core::Core;
use super::core::Savepoint;
use super::key_bounds::{KeyBounds, bounds};
use super::options::{Commit, TransactionOptions};
use super::range::{RangeCursor, Source, TransactionRange};
use super::snapshot::{Snapshot, SnapshotCore};
use super::task::TaskStore;
use crate::error::{Error, Result};
use crate::store::{Store, Table};
use crate::task::refuse_on_worker;

/// A transaction of a thread that is no worker; its calls block. Otherwise as [`TaskTransaction`](super::TaskTransaction).
pub struct Transaction {
    /// None while it is on a worker, and after it was lost there.
    core: Option<Core>,
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let id = self.core.as_ref().map(|core| core.id);
        f.debug_struct("Transaction").field("id", &id).finish_non_exhaustive()
    }
}

impl Store {
    /// The transactions of tasks.
    #[must_use]
    pub fn task(&self) -> TaskStore {
        TaskStore::new(self.inner.clone())
    }

    /// Begins a transaction.
    #[must_use]
    pub fn begin(&self) -> Transaction {
        self.begin_with(&TransactionOptions::default())
    }

    /// Begins a transaction with options of its own.
    #[must_use]
    pub fn begin_with(&self, options: &TransactionOptions) -> Transaction {
        Transaction { core: Some(Core::begin(&self.inner, options)) }
    }

    /// Takes a snapshot of all that is committed.
    ///
    /// # Errors
    /// `Closed` if the store is.
    pub fn snapshot(&self) -> Result<Snapshot> {
        SnapshotCore::take(&self.inner).map(Snapshot::new)
    }

    /// The open transactions, the oldest first.
    #[must_use]
    pub fn transactions(&self) -> Vec<TransactionInfo> {
        self.inner.tx.transactions()
    }
}

impl Transaction {
    pub(super) fn core(&mut self) -> Result<&mut Core> {
        refuse_on_worker()?;
        self.core.as_mut().ok_or_else(Error::closed)
    }

    /// Takes the transaction to a worker and back.
    pub(super) fn on_worker<T, F>(
        &mut self,
        make: impl FnOnce(Core) -> F + Send + 'static,
    ) -> Result<T>
    where
        F: Future<Output = (Core, Result<T>)> + 'static,
        T: Send + 'static,
    {
        self.core()?.inner.shared.check_caller()?;
        let core = self.core.take().ok_or_else(Error::closed)?;
        let inner = core.inner.clone();
        let (core, result) = inner.block_on(move || async move { Ok(make(core).await) })?;
        self.core = Some(core);
        result
    }

    /// The value of a key.
    ///
    /// # Errors
    /// As [`TaskTransaction::get`](super::TaskTransaction::get); `Invalid` on a worker.
    pub fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        if let Some(found) = self.core()?.get_inline(table, key, &mut value)? {
            return Ok(found.then_some(value));
        }
        let (table, key) = (table.clone(), key.to_vec());
        self.on_worker(move |mut core| async move {
            let mut value = Vec::new();
            let found = core.get_into(&table, &key, &mut value).await;
            (core, found.map(|found| found.then_some(value)))
        })
    }

    /// Locks a key's row, then reads its value.
    ///
    /// # Errors
    /// As [`TaskTransaction::get_for_update`](super::TaskTransaction::get_for_update); `Invalid` on a worker.
    pub fn get_for_update(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.lock(table, key)?;
        self.get(table, key)
    }

    /// Locks a key's row until the transaction is over.
    ///
    /// # Errors
    /// As [`TaskTransaction::lock`](super::TaskTransaction::lock); `Invalid` on a worker.
    pub fn lock(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        if self.core()?.lock_inline(table, key)? {
            return Ok(());
        }
        let (table, key) = (table.clone(), key.to_vec());
        self.on_worker(move |mut core| async move {
            let outcome = core.lock(&table, &key).await;
            (core, outcome)
        })
    }

    /// Inserts or replaces a record.
    ///
    /// # Errors
    /// As [`TaskTransaction::put`](super::TaskTransaction::put); `Invalid` on a worker.
    pub fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        if self.core()?.put_inline(table, key, value)? {
            return Ok(());
        }
        let (table, key, value) = (table.clone(), key.to_vec(), value.to_vec());
        self.on_worker(move |mut core| async move {
            let outcome = core.put(&table, &key, &value).await;
            (core, outcome)
        })
    }

    /// Inserts a record if there is none of this key; whether it did.
    ///
    /// # Errors
    /// As [`TaskTransaction::insert`](super::TaskTransaction::insert); `Invalid` on a worker.
    pub fn insert(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<bool> {
        if let Some(inserted) = self.core()?.insert_inline(table, key, value)? {
            return Ok(inserted);
        }
        let (table, key, value) = (table.clone(), key.to_vec(), value.to_vec());
        self.on_worker(move |mut core| async move {
            let outcome = core.insert(&table, &key, &value).await;
            (core, outcome)
        })
    }

    /// Replaces a record by another if its value is the one expected, where none stands for no record; whether it did.
    ///
    /// # Errors
    /// As [`TaskTransaction::compare_and_swap`](super::TaskTransaction::compare_and_swap); `Invalid` on a worker.
    pub fn compare_and_swap(
        &mut self,
        table: &Table,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        let (table, key) = (table.clone(), key.to_vec());
        let (expected, new) = (expected.map(<[u8]>::to_vec), new.map(<[u8]>::to_vec));
        self.on_worker(move |mut core| async move {
            let swap = core.compare_and_swap(&table, &key, expected.as_deref(), new.as_deref());
            let outcome = swap.await;
            (core, outcome)
        })
    }

    /// Removes a key's record; whether there was one.
    ///
    /// # Errors
    /// As [`TaskTransaction::delete`](super::TaskTransaction::delete); `Invalid` on a worker.
    pub fn delete(&mut self, table: &Table, key: &[u8]) -> Result<bool> {
        if let Some(deleted) = self.core()?.delete_inline(table, key)? {
            return Ok(deleted);
        }
        let (table, key) = (table.clone(), key.to_vec());
        self.on_worker(move |mut core| async move {
            let outcome = core.delete(&table, &key).await;
            (core, outcome)
        })
    }

    /// Removes all records of a range of keys that the transaction sees; how many.
    ///
    /// # Errors
    /// As [`TaskTransaction::delete_range`](super::TaskTransaction::delete_range); `Invalid` on a worker.
    pub fn delete_range(&mut self, table: &Table, range: impl KeyBounds) -> Result<u64> {
        let (from, to) = bounds(&range)?;
        let table = table.clone();
        self.on_worker(move |mut core| async move {
            let outcome = core.delete_range(&table, from, to, u64::MAX).await;
            (core, outcome)
        })
    }

    /// The records of a range of keys, in order.
    ///
    /// # Errors
    /// `Invalid` if the range ends before it begins.
    pub fn range(&mut self, table: &Table, range: impl KeyBounds) -> Result<TransactionRange<'_>> {
        let (from, to) = bounds(&range)?;
        self.core()?.check(table)?;
        let cursor = Some(RangeCursor::new(table, from, to));
        Ok(TransactionRange { source: Source::Transaction(self), cursor })
    }

    /// Marks this point, to roll back to.
    ///
    /// # Errors
    /// `Closed` if the transaction was lost with its store.
    pub fn savepoint(&mut self) -> Result<Savepoint> {
        Ok(self.core()?.savepoint())
    }

    /// Forgets what was written since a savepoint. Locks stay, and so does the savepoint; later ones are gone.
    ///
    /// # Errors
    /// `Invalid` if the transaction does not have it, or no longer; `Conflict` after a conflict.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.core()?.rollback_to(savepoint)
    }

    /// Makes all writes seen by everybody, at once.
    ///
    /// # Errors
    /// As [`TaskTransaction::commit`](super::TaskTransaction::commit); `Invalid` on a worker.
    pub fn commit(self) -> Result<Commit> {
        self.finish().0
    }

    /// Commits; with it the row on which it met a conflict.
    pub(super) fn finish(mut self) -> (Result<Commit>, Option<super::retry::Contended>) {
        let Some(mut core) = self.core.take() else { return (Err(Error::closed()), None) };
        let contended = core.contended.take();
        (finish(core), contended)
    }

    /// Forgets all writes. The same as dropping it.
    pub fn rollback(self) {}
}

fn finish(mut core: Core) -> Result<Commit> {
    core.inner.shared.check_caller()?;
    if let Some(done) = nothing_to_do(&mut core)? {
        let (waits, seen) = core.seen();
        core.inner.block_to_give(waits, seen)?;
        return Ok(done);
    }
    let inner = core.inner.clone();
    let mut work = Work::new(core)?;
    if work.inline()?
        && let Some(commit) = work.commit()
    {
        return Ok(commit);
    }
    inner.block_on(move || async move { work.complete().await })
}
