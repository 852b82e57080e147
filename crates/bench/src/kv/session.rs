//! A store, the sessions of its clients, and the loaders of its tables.

use std::future::Future;
use std::ops::ControlFlow;

use qpair::Result;

use super::system::System;
use super::transaction::{Begin, Direction, KeyRange, TableId};

/// A store. Clones are cheap and refer to the same store.
pub trait Kv: System<Session: KvSession> + Clone {
    /// Describes the store and how it was opened in a few words, for reports.
    fn describe(&self) -> String;
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
    fn fetch(&mut self, keys: &[(TableId, &[u8])]) -> impl Future<Output = Result<()>> {
        let _ = keys;
        std::future::ready(Ok(()))
    }

    /// Announces the keys that the open transaction will read next, in this order. This is a hint
    /// for stores that can bring all of them into the processor's caches at the same time.
    fn expect(&mut self, keys: &[(TableId, &[u8])]) -> Result<()> {
        let _ = keys;
        Ok(())
    }

    /// Begins a transaction. A transaction that is still open is rolled back.
    fn begin(&mut self, begin: Begin) -> impl Future<Output = Result<()>>;

    /// Reads a key into `value` and returns whether it exists. `value` is empty if it does not.
    fn get_into(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> impl Future<Output = Result<bool>>;

    /// As [`KvSession::get_into`], for a key that will be written. A store with locks locks the key
    /// first, even if it does not exist. Before the first read of a transaction, this waits instead
    /// of conflicting.
    fn get_for_update(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> impl Future<Output = Result<bool>>;

    /// Locks a key ahead of time and reads nothing. A transaction that locks all hot keys before
    /// its first read delays no other transaction later. Stores without locks do nothing.
    fn lock(&mut self, table: TableId, key: &[u8]) -> impl Future<Output = Result<()>> {
        let _ = (table, key);
        std::future::ready(Ok(()))
    }

    /// Inserts or replaces a record.
    fn put(&mut self, table: TableId, key: &[u8], value: &[u8])
    -> impl Future<Output = Result<()>>;

    /// Inserts a record whose key the caller knows to be new. A store may do this more cheaply than
    /// `put`, and need not notice that the key exists.
    fn insert(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &[u8],
    ) -> impl Future<Output = Result<()>>;

    /// Removes a record, and returns whether it existed.
    fn delete(&mut self, table: TableId, key: &[u8]) -> impl Future<Output = Result<bool>>;

    /// Passes the records of a range to `each` in order, at most `limit` of them, until it breaks.
    /// The scan sees the transaction's own writes.
    fn scan<F>(
        &mut self,
        table: TableId,
        range: KeyRange<'_>,
        direction: Direction,
        limit: usize,
        each: F,
    ) -> impl Future<Output = Result<()>>
    where
        F: FnMut(&[u8], &[u8]) -> ControlFlow<()>;

    /// Commits the transaction. After an error none of its changes are stored, unless the error
    /// concerns durability.
    fn commit(&mut self) -> impl Future<Output = Result<()>>;

    /// Rolls the open transaction back. Without an open transaction this does nothing.
    fn rollback(&mut self) -> impl Future<Output = Result<()>>;

    /// Begins to fill an empty table with ascending keys. No transaction may be open.
    fn loader(&mut self, table: TableId) -> impl Future<Output = Result<Self::Loader<'_>>>;
}

/// Fills an empty table.
pub trait KvLoader {
    /// Adds a record. Its key must be greater than the previous one.
    fn push(&mut self, key: &[u8], value: &[u8]) -> impl Future<Output = Result<()>>;

    /// Ends the load. The records are stored only after this.
    fn finish(self) -> impl Future<Output = Result<()>>;

    /// Abandons the load. The records pushed so far may be stored or not.
    fn abandon(self) -> impl Future<Output = ()>;
}
