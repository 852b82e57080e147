//! The common interface of the three peers: ordered tables of byte strings, and blocking sessions
//! with transactions over them.
//!
//! A session belongs to the thread that made it, and has at most one transaction at a time.
//! Dropping a session rolls its transaction back.

use std::path::{Path, PathBuf};

use crate::error::Result;

#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder of the store; created if it does not exist.
    pub path: PathBuf,
    /// The tables of the store; created if they do not exist.
    pub tables: Vec<String>,
    /// Memory for everything that is kept of the store, in bytes.
    pub memory_bytes: u64,
    /// Bytes of a block or a leaf, for peers that let it be chosen.
    pub page_bytes: u64,
    /// Whether the store has a log. Without a log, a commit is durable only once a checkpoint has
    /// written it.
    pub log: bool,
    /// The number of threads that compact and evict.
    pub background_threads: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// Whether the transaction only reads, in a snapshot.
    pub read_only: bool,
    /// Whether the commit returns only when it survives a loss of power.
    pub sync: bool,
}

/// A range of records to visit, and the direction.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// The smallest key. Empty: from the table's beginning.
    pub from: &'a [u8],
    /// The first key after the range. Empty: to the table's end.
    pub to: &'a [u8],
    /// Whether the visit goes backward, from the greatest key to the least.
    pub backward: bool,
}

/// A visitor of records, which takes the key and the value. It returns `false` to stop.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> bool + 'a;

/// An open store of a peer. Clones refer to the same store; dropping the last one closes it.
pub trait Engine: Clone + Send + Sync + Sized + 'static {
    type Session: Session + 'static;

    /// The peer's name on a command line.
    const NAME: &'static str;

    /// Opens the store, or creates it.
    ///
    /// # Errors
    /// Returns the peer's error, or an error if the store was created with other tables.
    fn open(settings: &Settings) -> Result<Self>;

    /// Begins a session.
    ///
    /// # Errors
    /// Returns the peer's error.
    fn session(&self) -> Result<Self::Session>;

    /// Writes data that is only in the log or in memory to its place, as closing would.
    ///
    /// # Errors
    /// Returns the peer's error.
    fn checkpoint(&self) -> Result<()>;

    /// Returns the settings in the peer's words, for reports.
    fn settings(&self) -> &str;

    fn path(&self) -> &Path;

    /// Returns the number of log flushes since the store was opened, or `None` if the peer does not
    /// count them.
    fn log_flushes(&self) -> Option<u64> {
        None
    }
}

/// A client's session with a store of a peer. Transactions have snapshot isolation, or better.
///
/// Tables are named by their place in [`Settings::tables`]. Each operation fails if no transaction
/// is open.
pub trait Session {
    /// Whether a transaction fails at once when it conflicts with another one, even while the other
    /// is still open. The client should then wait a moment before it tries again.
    const NEVER_WAITS: bool = false;

    /// Begins a transaction. No transaction may be open.
    ///
    /// # Errors
    /// Returns the peer's error.
    fn begin(&mut self, start: Start) -> Result<()>;

    fn is_open(&self) -> bool;

    /// Reads the value of a key into `value`. Returns `false`, with an empty `value`, if the key
    /// does not exist.
    ///
    /// # Errors
    /// Returns the peer's error.
    fn get(&mut self, table: u8, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Reads like [`Session::get`], and keeps other transactions from changing the key until this
    /// transaction ends.
    ///
    /// # Errors
    /// Returns the peer's error.
    fn get_for_update(&mut self, table: u8, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Waits for the lock of a key, without reading anything. Peers without such locks do nothing.
    ///
    /// # Errors
    /// Returns the peer's error.
    fn lock(&mut self, table: u8, key: &[u8]) -> Result<()> {
        let _ = (table, key);
        Ok(())
    }

    /// Inserts a record, or replaces its value.
    ///
    /// # Errors
    /// Returns the peer's error.
    fn put(&mut self, table: u8, key: &[u8], value: &[u8]) -> Result<()>;

    /// Deletes a key. Returns whether it existed.
    ///
    /// # Errors
    /// Returns the peer's error.
    fn delete(&mut self, table: u8, key: &[u8]) -> Result<bool>;

    /// Visits the records of a range in the order of their keys, or in reverse order.
    ///
    /// # Errors
    /// Returns the peer's error.
    fn scan(&mut self, table: u8, span: Span<'_>, visit: &mut Visit<'_>) -> Result<()>;

    /// Commits. No transaction is open afterwards, whatever the outcome.
    ///
    /// # Errors
    /// Returns the peer's error. The store then has none of the transaction's changes.
    fn commit(&mut self) -> Result<()>;

    /// Rolls back the open transaction, if there is one.
    ///
    /// # Errors
    /// Returns the peer's error.
    fn rollback(&mut self) -> Result<()>;
}

impl Span<'_> {
    /// Whether a key that was reached going forward is beyond the end, or, going backward, before
    /// the beginning.
    #[must_use]
    pub(crate) fn is_left_by(&self, key: &[u8]) -> bool {
        if self.backward { key < self.from } else { !self.to.is_empty() && key >= self.to }
    }
}
