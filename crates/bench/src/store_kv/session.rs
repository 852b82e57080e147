//! One client of a store: a task with a transaction.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use qpair::task::{BulkLoader, TaskStore, TaskTable, TaskTransaction};
use qpair::{Error, ErrorKind, Isolation, Result, Table, TransactionOptions};

use crate::kv::{Begin, Direction, KeyRange, KvSession, TableId};

/// The number of commits of a worker's clients, in a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Commits(pub(super) AtomicU64);

/// A client of a [`StoreKv`](super::StoreKv).
pub struct StoreSession {
    store: TaskStore,
    tables: Arc<[Table]>,
    open: Option<TaskTransaction>,
    options: TransactionOptions,
    commits: Arc<[Commits]>,
    worker: usize,
    /// Whether the store is larger than its memory.
    fetches: bool,
    /// The key of a scanned record.
    key: Vec<u8>,
    value: Vec<u8>,
}

impl std::fmt::Debug for StoreSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreSession").field("open", &self.open).finish_non_exhaustive()
    }
}

#[cold]
fn none_open() -> Error {
    Error::new(ErrorKind::Invalid, "no transaction is open")
}

impl StoreSession {
    pub(super) fn new(
        store: TaskStore,
        tables: Arc<[Table]>,
        commits: Arc<[Commits]>,
        worker: usize,
        fetches: bool,
        isolation: Isolation,
    ) -> Self {
        let options = TransactionOptions { isolation, ..TransactionOptions::default() };
        let (key, value) = (Vec::new(), Vec::new());
        Self { store, tables, open: None, options, commits, worker, fetches, key, value }
    }

    /// Returns a table, for operations outside transactions.
    pub(crate) fn table(&self, table: TableId) -> TaskTable {
        self.tables[table.index()].task()
    }

    #[inline]
    fn open(&mut self, table: TableId) -> Result<(&mut TaskTransaction, &Table)> {
        let transaction = self.open.as_mut().ok_or_else(none_open)?;
        Ok((transaction, &self.tables[table.index()]))
    }
}

impl KvSession for StoreSession {
    type Loader<'session> = BulkLoader;

    fn fetches(&self) -> bool {
        self.fetches
    }

    async fn fetch(&mut self, keys: &[(TableId, &[u8])]) -> Result<()> {
        let keys = keys.iter().map(|(table, key)| (&self.tables[table.index()], *key));
        match &mut self.open {
            Some(transaction) => transaction.prefetch(keys).await,
            None => self.store.prefetch(keys).await,
        }
    }

    fn expect(&mut self, keys: &[(TableId, &[u8])]) -> Result<()> {
        let Some(transaction) = &mut self.open else { return Ok(()) };
        let keys = keys.iter().map(|(table, key)| (&self.tables[table.index()], *key));
        transaction.prefetch_cached(keys)
    }

    async fn begin(&mut self, begin: Begin) -> Result<()> {
        // Dropping the open transaction rolls it back, before the next one begins.
        self.open = None;
        self.options.read_only = begin.read_only;
        self.options.durability = begin.durability;
        self.open = Some(self.store.begin_with(&self.options));
        Ok(())
    }

    async fn get_into(&mut self, table: TableId, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let (transaction, table) = self.open(table)?;
        transaction.get_into(table, key, value).await
    }

    async fn get_for_update(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool> {
        value.clear();
        let (transaction, table) = self.open(table)?;
        transaction.get_for_update_into(table, key, value).await
    }

    async fn lock(&mut self, table: TableId, key: &[u8]) -> Result<()> {
        let (transaction, table) = self.open(table)?;
        transaction.lock(table, key).await
    }

    async fn put(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        let (transaction, table) = self.open(table)?;
        transaction.put(table, key, value).await
    }

    async fn insert(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        // The key is known to be new, so there is no need to look it up.
        self.put(table, key, value).await
    }

    async fn delete(&mut self, table: TableId, key: &[u8]) -> Result<bool> {
        let (transaction, table) = self.open(table)?;
        transaction.delete(table, key).await
    }

    async fn scan<F>(
        &mut self,
        table: TableId,
        range: KeyRange<'_>,
        direction: Direction,
        limit: usize,
        mut each: F,
    ) -> Result<()>
    where
        F: FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    {
        let Self { tables, open, key, value, .. } = self;
        let transaction = open.as_mut().ok_or_else(none_open)?;
        let to = if range.to.is_empty() { Bound::Unbounded } else { Bound::Excluded(range.to) };
        let bounds = (Bound::Included(range.from), to);
        let mut records = transaction.range(&tables[table.index()], bounds)?.limit(limit);
        if direction == Direction::Backward {
            records = records.reverse();
        }
        for _ in 0..limit {
            key.clear();
            value.clear();
            if !records.next_into(key, value).await? || each(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }

    async fn commit(&mut self) -> Result<()> {
        let transaction = self.open.take().ok_or_else(none_open)?;
        transaction.commit().await?;
        if !self.options.read_only {
            self.commits[self.worker].0.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn rollback(&mut self) -> Result<()> {
        self.open = None;
        Ok(())
    }

    async fn loader(&mut self, table: TableId) -> Result<BulkLoader> {
        self.open = None;
        self.table(table).bulk_loader().await
    }
}
