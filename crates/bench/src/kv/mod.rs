//! An ordered transactional key-value store, as the workloads see it.
//!
//! Always holds:
//! - A workload names tables by their position in a list of names ([`TableId`]). The store was
//!   opened with that list.
//! - Each client has its own [`KvSession`], which stays on one thread. A session has at most one
//!   transaction at a time.
//! - Methods are async so that a store with tasks can wait in them. A store that blocks returns
//!   futures that are ready at once; [`start_threads`] gives each of its clients a thread, and
//!   [`block_on`] runs the future there.
//! - An operation neither boxes a future nor calls through `dyn`.

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

/// A table: its position in the list of names that the store was opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(pub u8);

impl TableId {
    /// Returns the table's position.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The durability that a commit waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// A commit returns when it survives a loss of power.
    #[default]
    Sync,
    /// As [`Durability::Sync`], awaited together with other commits. A store without group commit
    /// treats it as [`Durability::Sync`].
    Group,
    /// A commit returns when other transactions see it, and is durable some time later.
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
            .ok_or_else(|| format!("'{text}' is not a durability: choose sync, group or async"))
    }
}

/// The options of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Begin {
    /// Whether the transaction only reads. It reads a snapshot and never conflicts.
    pub read_only: bool,
    /// The durability that the commit waits for.
    pub durability: Durability,
}

impl Begin {
    /// Returns the options of a snapshot.
    #[must_use]
    pub fn read_only() -> Self {
        Self { read_only: true, durability: Durability::Async }
    }

    /// Returns the options of a transaction that writes.
    #[must_use]
    pub fn read_write(durability: Durability) -> Self {
        Self { read_only: false, durability }
    }
}

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending, from the least key.
    Forward,
    /// Descending, from the greatest key.
    Backward,
}

/// The keys `from..to`, including `from` and excluding `to`. Both directions scan the same keys.
#[derive(Clone, Copy, Debug)]
pub struct KeyRange<'a> {
    /// The least key; empty: the beginning of the table.
    pub from: &'a [u8],
    /// The first key beyond the range; empty: the end of the table.
    pub to: &'a [u8],
}

impl KeyRange<'_> {
    /// The whole table.
    pub const ALL: KeyRange<'static> = KeyRange { from: &[], to: &[] };
}

/// The counts of a store since it was opened. `None`: the store does not count this.
#[derive(Clone, Copy, Debug, Default)]
pub struct KvStatistics {
    /// Read requests to the device.
    pub device_reads: Option<u64>,
    /// Bytes that read and write requests moved.
    pub device_bytes: Option<u64>,
    /// The number of timed reads, and their total duration in microseconds.
    pub device_reads_timed: Option<(u64, u64)>,
    /// Write requests to the device, of pages and of the log.
    pub device_writes: Option<u64>,
    /// Flushes of the log, or writes that are durable by themselves.
    pub log_flushes: Option<u64>,
    /// Commits that the log made durable.
    pub log_commits: Option<u64>,
    /// Bytes written to the log.
    pub log_bytes: Option<u64>,
    /// The current size of the store on the device in bytes.
    pub store_bytes: Option<u64>,
    /// The breakdown of the workers' time.
    pub cycles: WorkerCycles,
}

impl KvStatistics {
    /// Returns the mean number of commits that a flush of the log made durable.
    #[must_use]
    pub fn commits_per_flush(&self) -> Option<f64> {
        let flushes = self.log_flushes.filter(|flushes| *flushes > 0)?;
        Some(self.log_commits? as f64 / flushes as f64)
    }
}

/// A store. Clones are cheap and refer to the same store.
pub trait Kv: Clone + Send + Sync + 'static {
    /// The session of a client.
    type Session: KvSession + 'static;

    /// Describes the store and how it was opened in a few words, for reports.
    fn describe(&self) -> String;

    /// Starts clients `0..clients`, and returns at once. Each client gets its number and a session,
    /// and runs where the store runs its clients: in tasks on workers, or on a thread for each
    /// client ([`start_threads`]).
    ///
    /// # Errors
    /// An error if threads or sessions cannot be created.
    fn start<F, Fut, T>(&self, clients: usize, client: F) -> KvResult<Clients<T>>
    where
        F: Fn(usize, Self::Session) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = KvResult<T>> + 'static,
        T: Send + 'static;

    /// Returns the counts since the store was opened.
    ///
    /// # Errors
    /// Errors of the store.
    fn statistics(&self) -> KvResult<KvStatistics>;
}

/// A client's session with the store.
///
/// Reads and writes belong to the transaction that was begun last. After any error the transaction
/// must be ended with [`KvSession::rollback`]; after `Conflict` it may then be tried again from its
/// beginning.
pub trait KvSession {
    /// The loader of a table; see [`KvSession::loader`].
    type Loader<'session>: KvLoader
    where
        Self: 'session;

    /// Whether [`KvSession::fetch`] is useful. It is not if all of the store may be in memory.
    fn fetches(&self) -> bool {
        false
    }

    /// Brings the pages of keys into memory. An open transaction will read these keys next, in this
    /// order. Called before the transaction's first read and first lock, it delays no other
    /// transaction while it waits for the device. Stores whose clients are threads do nothing.
    fn fetch(&mut self, keys: &[(TableId, &[u8])]) -> impl Future<Output = KvResult<()>> {
        let _ = keys;
        std::future::ready(Ok(()))
    }

    /// Announces the keys that the open transaction will read next, in this order. This is a hint
    /// for stores that can bring all of them into the processor's caches at the same time.
    fn expect(&mut self, keys: &[(TableId, &[u8])]) -> KvResult<()> {
        let _ = keys;
        Ok(())
    }

    /// Begins a transaction. A transaction that is still open is rolled back.
    fn begin(&mut self, begin: Begin) -> impl Future<Output = KvResult<()>>;

    /// Reads a key into `value` and returns whether it exists. `value` is empty if it does not.
    fn get_into(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> impl Future<Output = KvResult<bool>>;

    /// As [`KvSession::get_into`], for a key that will be written. A store with locks locks the key
    /// first, even if it does not exist. Before the first read of a transaction, this waits instead
    /// of conflicting.
    fn get_for_update(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> impl Future<Output = KvResult<bool>>;

    /// Locks a key ahead of time and reads nothing. A transaction that locks all hot keys before
    /// its first read delays no other transaction later. Stores without locks do nothing.
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

    /// Inserts a record whose key the caller knows to be new. A store may do this more cheaply than
    /// `put`, and need not notice that the key exists.
    fn insert(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &[u8],
    ) -> impl Future<Output = KvResult<()>>;

    /// Removes a record, and returns whether it existed.
    fn delete(&mut self, table: TableId, key: &[u8]) -> impl Future<Output = KvResult<bool>>;

    /// Passes the records of a range to `each` in order, at most `limit` of them, until it breaks.
    /// The scan sees the transaction's own writes.
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

    /// Commits the transaction. After an error none of its changes are stored, unless the error
    /// concerns durability.
    fn commit(&mut self) -> impl Future<Output = KvResult<()>>;

    /// Rolls the open transaction back. Without an open transaction this does nothing.
    fn rollback(&mut self) -> impl Future<Output = KvResult<()>>;

    /// Begins to fill an empty table with ascending keys. No transaction may be open. A store
    /// without a sorted load of its own uses [`TransactionLoader`].
    fn loader(&mut self, table: TableId) -> impl Future<Output = KvResult<Self::Loader<'_>>>;
}

/// Fills an empty table.
pub trait KvLoader {
    /// Adds a record. Its key must be greater than the previous one.
    fn push(&mut self, key: &[u8], value: &[u8]) -> impl Future<Output = KvResult<()>>;

    /// Ends the load. The records are stored only after this.
    fn finish(self) -> impl Future<Output = KvResult<()>>;

    /// Abandons the load. The records pushed so far may be stored or not.
    fn abandon(self) -> impl Future<Output = ()>;
}
