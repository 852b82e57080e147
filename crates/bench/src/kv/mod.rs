//! Any ordered transactional key-value store, as the workloads see it.
//!
//! What always holds:
//! - A workload names tables by their place in a list of names ([`TableId`]); the store was opened with that list.
//! - Each client has a [`KvSession`] of its own, which never changes threads. It has at most one transaction at a time.
//! - Methods are async so that a store with tasks can wait in them. A store that blocks answers with futures that are
//!   ready at once; [`start_threads`] gives each of its clients a thread, and [`block_on`] runs the future there.
//! - Nothing is boxed and nothing is `dyn` on the way of an operation.

mod clients;
mod error;
mod loader;
mod memory;

use std::fmt;
use std::future::Future;
use std::ops::ControlFlow;
use std::str::FromStr;

use qpair::unstable::WorkerCycles;

pub use clients::{Clients, block_on, start_threads};
pub use error::{KvError, KvResult};
pub use loader::TransactionLoader;
pub use memory::{MemoryKv, MemorySession};

/// A table: its place in the list of names that the store was opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(pub u8);

impl TableId {
    /// The table's place.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// What a commit waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// It returns when it survives a loss of power.
    #[default]
    Sync,
    /// The same, awaited together with others. A store without such a thing does as for [`Durability::Sync`].
    Group,
    /// It returns when others see it; durable some time later.
    Async,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sync => "sync",
            Self::Group => "group",
            Self::Async => "async",
        })
    }
}

impl From<Durability> for qpair::Durability {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::Sync => Self::Sync,
            Durability::Group => Self::Group,
            Durability::Async => Self::Async,
        }
    }
}

impl FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Sync, Self::Group, Self::Async]
            .into_iter()
            .find(|durability| durability.to_string() == text)
            .ok_or_else(|| format!("'{text}' is no durability: sync, group, async"))
    }
}

/// What a transaction is begun with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Begin {
    /// It will only read, at one point of time: a snapshot. Nothing it does conflicts.
    pub read_only: bool,
    /// What its commit waits for.
    pub durability: Durability,
}

impl Begin {
    /// A snapshot.
    #[must_use]
    pub fn read_only() -> Self {
        Self { read_only: true, durability: Durability::Async }
    }

    /// A transaction that writes.
    #[must_use]
    pub fn read_write(durability: Durability) -> Self {
        Self { read_only: false, durability }
    }
}

/// Which way a scan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the least key on.
    Forward,
    /// From the greatest key on.
    Backward,
}

/// The keys `from..to`: `from` is in it, `to` is not. Both directions scan the same keys.
#[derive(Clone, Copy, Debug)]
pub struct KeyRange<'a> {
    /// The least key. Empty: from the table's beginning.
    pub from: &'a [u8],
    /// The first key beyond. Empty: to the table's end.
    pub to: &'a [u8],
}

impl KeyRange<'_> {
    /// The whole table.
    pub const ALL: KeyRange<'static> = KeyRange { from: &[], to: &[] };
}

/// What a store counted since it was opened. `None`: it does not know.
#[derive(Clone, Copy, Debug, Default)]
pub struct KvStatistics {
    /// Requests that read the device.
    pub device_reads: Option<u64>,
    /// Bytes that these and those moved.
    pub device_bytes: Option<u64>,
    /// Reads that were timed, and how long they took together, microseconds.
    pub device_reads_timed: Option<(u64, u64)>,
    /// Requests that wrote it, of pages and of the log.
    pub device_writes: Option<u64>,
    /// Flushes of the log, or writes that are durable by themselves.
    pub log_flushes: Option<u64>,
    /// Commits that the log made durable.
    pub log_commits: Option<u64>,
    /// Bytes written to the log.
    pub log_bytes: Option<u64>,
    /// Bytes the store takes on the device now.
    pub store_bytes: Option<u64>,
    /// Where its workers' time went.
    pub cycles: WorkerCycles,
}

impl KvStatistics {
    /// Commits that a flush of the log made durable, on average.
    #[must_use]
    pub fn commits_per_flush(&self) -> Option<f64> {
        let flushes = self.log_flushes.filter(|flushes| *flushes > 0)?;
        Some(self.log_commits? as f64 / flushes as f64)
    }
}

/// A store. Cheap to clone; clones are the same store.
pub trait Kv: Clone + Send + Sync + 'static {
    /// What a client works with.
    type Session: KvSession + 'static;

    /// The store's name and how it was opened, in a few words, for reports.
    fn describe(&self) -> String;

    /// Starts clients `0..clients`, and returns at once. Each gets its number and a session, and runs where the store
    /// runs its clients: tasks on workers, or a thread for each ([`start_threads`]).
    ///
    /// # Errors
    /// If threads or sessions cannot be had.
    fn start<F, Fut, T>(&self, clients: usize, client: F) -> KvResult<Clients<T>>
    where
        F: Fn(usize, Self::Session) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = KvResult<T>> + 'static,
        T: Send + 'static;

    /// What it counted since it was opened.
    ///
    /// # Errors
    /// What the store says.
    fn statistics(&self) -> KvResult<KvStatistics>;
}

/// One client's way to the store.
///
/// Reads and writes belong to the transaction that was begun last. After an error of any kind the transaction is to be
/// ended with [`KvSession::rollback`]; after `Conflict` it may then be tried again from its beginning.
pub trait KvSession {
    /// Fills a table; see [`KvSession::loader`].
    type Loader<'session>: KvLoader
    where
        Self: 'session;

    /// Whether [`KvSession::fetch`] does something that is of use: not where all of the store may be in memory.
    fn fetches(&self) -> bool {
        false
    }

    /// Brings the pages of keys into memory. An open transaction will read them next, in this order: called before its first read and its
    /// first lock, it holds no other transaction up while it waits for the device. Stores whose clients are threads do nothing.
    fn fetch(&mut self, keys: &[(TableId, &[u8])]) -> impl Future<Output = KvResult<()>> {
        let _ = keys;
        std::future::ready(Ok(()))
    }

    /// Says which keys the open transaction will read next, in this order: a hint, for stores that can bring them into the
    /// processor's caches all at the same time.
    fn expect(&mut self, keys: &[(TableId, &[u8])]) -> KvResult<()> {
        let _ = keys;
        Ok(())
    }

    /// Begins a transaction. One that was left open is rolled back.
    fn begin(&mut self, begin: Begin) -> impl Future<Output = KvResult<()>>;

    /// Reads a key: `value` is replaced by what is found, and empty if the answer is `false`.
    fn get_into(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> impl Future<Output = KvResult<bool>>;

    /// As [`KvSession::get_into`], for a key that will be written: takes the key's lock first where the store has such
    /// locks, also if there is no such key. Before the first read of a transaction it does not conflict, it waits.
    fn get_for_update(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> impl Future<Output = KvResult<bool>>;

    /// Takes a key's lock ahead of time, where the store has such locks, and reads nothing: a transaction that takes
    /// the locks of all hot keys before its first read is in no other transaction's way later. Stores without locks do nothing.
    fn lock(&mut self, table: TableId, key: &[u8]) -> impl Future<Output = KvResult<()>> {
        let _ = (table, key);
        std::future::ready(Ok(()))
    }

    /// Inserts or replaces a record.
    fn put(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &[u8],
    ) -> impl Future<Output = KvResult<()>>;

    /// Adds a record whose key the caller knows to be new. A store may take a cheaper way than for `put`, and need not
    /// notice that the key was there.
    fn insert(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &[u8],
    ) -> impl Future<Output = KvResult<()>>;

    /// Removes a record; whether there was one.
    fn delete(&mut self, table: TableId, key: &[u8]) -> impl Future<Output = KvResult<bool>>;

    /// Hands the records of a range to `each` in order, at most `limit` of them, until it breaks. What the transaction
    /// wrote itself is seen.
    fn scan<F>(
        &mut self,
        table: TableId,
        range: KeyRange<'_>,
        direction: Direction,
        limit: usize,
        each: F,
    ) -> impl Future<Output = KvResult<()>>
    where
        F: FnMut(&[u8], &[u8]) -> ControlFlow<()>;

    /// Commits. After an error nothing of the transaction is there, unless the error was one of durability.
    fn commit(&mut self) -> impl Future<Output = KvResult<()>>;

    /// Ends the transaction without a trace; nothing happens if there is none.
    fn rollback(&mut self) -> impl Future<Output = KvResult<()>>;

    /// Begins to fill a table that is empty, by keys that ascend. No transaction may be open. A store without a sorted
    /// load of its own uses [`TransactionLoader`].
    fn loader(&mut self, table: TableId) -> impl Future<Output = KvResult<Self::Loader<'_>>>;
}

/// Fills an empty table.
pub trait KvLoader {
    /// Adds a record; its key is greater than the one before.
    fn push(&mut self, key: &[u8], value: &[u8]) -> impl Future<Output = KvResult<()>>;

    /// Ends the load; only then the records count.
    fn finish(self) -> impl Future<Output = KvResult<()>>;

    /// Gives the load up. What was pushed may be there or not.
    fn abandon(self) -> impl Future<Output = ()>;
}
