//! The common interface of the three peers: ordered tables of byte strings, and blocking sessions
//! with transactions over them.
//!
//! A session belongs to the thread that made it, and has at most one transaction at a time.
//! Dropping a session rolls its transaction back.

use std::path::{Path, PathBuf};

use crate::error::Result;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder of the store; created if it does not exist.
    pub path: PathBuf,
    /// The tables of the store; created if they do not exist.
    pub tables: Vec<String>,
    /// Memory for everything that is kept of the store, bytes.
    pub memory_bytes: u64,
    /// Bytes of a block or of a leaf, where the peer lets that be chosen.
    pub page_bytes: u64,
    /// Whether there is a log. Without one no commit is durable, but for what a checkpoint wrote.
    pub log: bool,
    /// Threads that compact and evict.
    pub background_threads: u32,
}

/// How a transaction is begun.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// Whether the transaction only reads, in a snapshot.
    pub read_only: bool,
    /// Whether the commit returns only when it survives a loss of power.
    pub sync: bool,
}

/// Records to visit.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// The least key. Empty: from the table's beginning.
    pub from: &'a [u8],
    /// The first key beyond. Empty: to the table's end.
    pub to: &'a [u8],
    /// From the greatest key on.
    pub backward: bool,
}

/// A visitor of records, which takes the key and the value. It returns `false` to stop.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> bool + 'a;

/// A store of a peer, open. Clones are the same store; the last one closes it.
pub trait Engine: Clone + Send + Sync + Sized + 'static {
    /// A client's way to it.
    type Session: Session + 'static;

    /// The peer's name on a command line.
    const NAME: &'static str;

    /// Opens the store, or makes it.
    ///
    /// # Errors
    /// Returns the peer's error, or an error if the store was created with other tables.
    fn open(settings: &Settings) -> Result<Self>;

    /// A session.
    ///
    /// # Errors
    /// Returns the peer's error.
    fn session(&self) -> Result<Self::Session>;

    /// Writes what is only in the log or in memory to its place, as closing would.
    ///
    /// # Errors
    /// Returns the peer's error.
    fn checkpoint(&self) -> Result<()>;

    /// The settings in the peer's words, for reports.
    fn settings(&self) -> &str;

    /// The store's folder.
    fn path(&self) -> &Path;

    /// Flushes of the log since it was opened, where the peer counts them.
    fn log_flushes(&self) -> Option<u64> {
        None
    }
}

/// A client's way to a store of a peer. Transactions are at snapshot isolation, or better.
///
/// Tables are named by their place in [`Settings::tables`]. Each operation fails if no transaction
/// is open.
pub trait Session {
    /// A transaction that meets another's change fails at once, also while the other is still under
    /// way: before it is tried again the client had better wait a moment.
    const NEVER_WAITS: bool = false;

    /// Begins a transaction. None is open.
    ///
    /// # Errors
    /// Returns the peer's error.
    fn begin(&mut self, start: Start) -> Result<()>;

    /// Whether a transaction is open.
    fn is_open(&self) -> bool;

    /// Replaces `value` by what is found: by nothing, and the answer is `false`, if the key is not
    /// there.
    ///
    /// # Errors
    /// Returns the peer's error.
    fn get(&mut self, table: u8, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// The same, and no other transaction changes the key until this transaction ends.
    ///
    /// # Errors
    /// Returns the peer's error.
    fn get_for_update(&mut self, table: u8, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Waits for the key's lock, and reads nothing. Peers without such locks do nothing.
    ///
    /// # Errors
    /// Returns the peer's error.
    fn lock(&mut self, table: u8, key: &[u8]) -> Result<()> {
        let _ = (table, key);
        Ok(())
    }

    /// Inserts or replaces.
    ///
    /// # Errors
    /// Returns the peer's error.
    fn put(&mut self, table: u8, key: &[u8], value: &[u8]) -> Result<()>;

    /// Deletes the key; whether it was there.
    ///
    /// # Errors
    /// Returns the peer's error.
    fn delete(&mut self, table: u8, key: &[u8]) -> Result<bool>;

    /// Visits records in order, or against it.
    ///
    /// # Errors
    /// Returns the peer's error.
    fn scan(&mut self, table: u8, span: Span<'_>, visit: &mut Visit<'_>) -> Result<()>;

    /// Commits. No transaction is open afterwards, whatever the outcome.
    ///
    /// # Errors
    /// Returns the peer's error. The store then has none of the transaction's changes.
    fn commit(&mut self) -> Result<()>;

    /// Rolls back, if a transaction is open.
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
