//! A common interface to a store for threads and tasks. A thread's calls return futures that are
//! ready at once.

use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use qpair_engine::{
    Result, Savepoint, Snapshot, Store, Table, TaskSnapshot, TaskStore, TaskTransaction,
    Transaction, TransactionOptions,
};

pub(crate) type Record = (Vec<u8>, Vec<u8>);

pub(crate) trait Reads {
    async fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Returns the records of a range in the order of their keys. If `reverse`, the range is read
    /// from its end.
    async fn range(
        &mut self,
        table: &Table,
        keys: Range<Vec<u8>>,
        reverse: bool,
    ) -> Result<Vec<Record>>;
}

pub(crate) trait Writes: Reads + Sized {
    async fn get_for_update(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>>;
    async fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()>;
    async fn delete(&mut self, table: &Table, key: &[u8]) -> Result<bool>;
    async fn delete_range(&mut self, table: &Table, keys: Range<Vec<u8>>) -> Result<u64>;
    fn set_savepoint(&mut self) -> Result<Savepoint>;
    fn back_to(&mut self, savepoint: &Savepoint) -> Result<()>;
    async fn end(self) -> Result<()>;
    fn give_up(self);
}

pub(crate) trait Session {
    type Transaction: Writes;
    type Snapshot: Reads;

    fn begin(&self, options: &TransactionOptions) -> Self::Transaction;
    fn snapshot(&self) -> Result<Self::Snapshot>;
    async fn pause(&self);
}

/// A session of a thread that is not a worker.
pub(crate) struct Threads<'s>(pub(crate) &'s Store);

/// Returns the result of a future that is ready at once: the calls of a thread.
///
/// # Panics
/// Panics if the future is not ready.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("the calls of a thread block, and are ready then"),
    }
}

/// Sorts records by ascending key.
fn in_order(mut records: Vec<Record>, reverse: bool) -> Vec<Record> {
    if reverse {
        records.reverse();
    }
    records
}

impl Session for Threads<'_> {
    type Transaction = Transaction;
    type Snapshot = Snapshot;

    fn begin(&self, options: &TransactionOptions) -> Transaction {
        self.0.begin_with(options)
    }

    fn snapshot(&self) -> Result<Snapshot> {
        self.0.snapshot()
    }

    async fn pause(&self) {
        std::thread::yield_now();
    }
}

impl Reads for Snapshot {
    async fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Snapshot::get(self, table, key)
    }

    async fn range(
        &mut self,
        table: &Table,
        keys: Range<Vec<u8>>,
        reverse: bool,
    ) -> Result<Vec<Record>> {
        let range = Snapshot::range(self, table, keys)?;
        let records = if reverse { range.rev().collect::<Result<_>>() } else { range.collect() };
        Ok(in_order(records?, reverse))
    }
}

impl Reads for Transaction {
    async fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Transaction::get(self, table, key)
    }

    async fn range(
        &mut self,
        table: &Table,
        keys: Range<Vec<u8>>,
        reverse: bool,
    ) -> Result<Vec<Record>> {
        let range = Transaction::range(self, table, keys)?;
        let records = if reverse { range.rev().collect::<Result<_>>() } else { range.collect() };
        Ok(in_order(records?, reverse))
    }
}

impl Writes for Transaction {
    async fn get_for_update(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Transaction::get_for_update(self, table, key)
    }

    async fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        Transaction::put(self, table, key, value)
    }

    async fn delete(&mut self, table: &Table, key: &[u8]) -> Result<bool> {
        Transaction::delete(self, table, key)
    }

    async fn delete_range(&mut self, table: &Table, keys: Range<Vec<u8>>) -> Result<u64> {
        Transaction::delete_range(self, table, keys)
    }

    fn set_savepoint(&mut self) -> Result<Savepoint> {
        self.savepoint()
    }

    fn back_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.rollback_to(savepoint)
    }

    async fn end(self) -> Result<()> {
        self.commit().map(drop)
    }

    fn give_up(self) {
        self.rollback();
    }
}

impl Session for TaskStore {
    type Transaction = TaskTransaction;
    type Snapshot = TaskSnapshot;

    fn begin(&self, options: &TransactionOptions) -> TaskTransaction {
        self.begin_with(options)
    }

    fn snapshot(&self) -> Result<TaskSnapshot> {
        TaskStore::snapshot(self)
    }

    async fn pause(&self) {
        qpair_engine::yield_now().await;
    }
}

async fn collect(
    range: qpair_engine::TaskTransactionRange<'_>,
    reverse: bool,
) -> Result<Vec<Record>> {
    let mut range = if reverse { range.reverse() } else { range };
    let mut records = Vec::new();
    while let Some(record) = range.next().await? {
        records.push(record);
    }
    Ok(in_order(records, reverse))
}

impl Reads for TaskSnapshot {
    async fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        TaskSnapshot::get(self, table, key).await
    }

    async fn range(
        &mut self,
        table: &Table,
        keys: Range<Vec<u8>>,
        reverse: bool,
    ) -> Result<Vec<Record>> {
        collect(TaskSnapshot::range(self, table, keys)?, reverse).await
    }
}

impl Reads for TaskTransaction {
    async fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        TaskTransaction::get(self, table, key).await
    }

    async fn range(
        &mut self,
        table: &Table,
        keys: Range<Vec<u8>>,
        reverse: bool,
    ) -> Result<Vec<Record>> {
        collect(TaskTransaction::range(self, table, keys)?, reverse).await
    }
}

impl Writes for TaskTransaction {
    async fn get_for_update(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        TaskTransaction::get_for_update(self, table, key).await
    }

    async fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        TaskTransaction::put(self, table, key, value).await
    }

    async fn delete(&mut self, table: &Table, key: &[u8]) -> Result<bool> {
        TaskTransaction::delete(self, table, key).await
    }

    async fn delete_range(&mut self, table: &Table, keys: Range<Vec<u8>>) -> Result<u64> {
        TaskTransaction::delete_range(self, table, keys).await
    }

    fn set_savepoint(&mut self) -> Result<Savepoint> {
        Ok(self.savepoint())
    }

    fn back_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.rollback_to(savepoint)
    }

    async fn end(self) -> Result<()> {
        self.commit().await.map(drop)
    }

    fn give_up(self) {
        self.rollback();
    }
}
