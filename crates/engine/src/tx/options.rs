//! How a transaction runs, and what its commit gives.

use std::time::Duration;

use crate::log::Durability;

/// What a transaction must not notice of others.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// use qpair_engine::{Isolation, TransactionOptions};
///
/// // What was read is as it was at the commit too, or the transaction runs again.
/// let options = TransactionOptions { isolation: Isolation::Serializable, ..Default::default() };
/// store.transact_with(&options, |tx| match tx.get(&table, b"on call")? {
///     None => tx.put(&table, b"on call", b"ada"),
///     Some(_) => Ok(()),
/// })?;
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// It sees the store as it was at one point, and its own writes; of two that write the same key at the same time one
    /// gets `Conflict`. Two that each read what the other writes may both commit (write skew).
    #[default]
    Snapshot,
    /// All such transactions together do what they would have done one after the other, in the order of their commits.
    /// What was read is kept until the commit, and validated; it counts against the bytes of the transaction.
    Serializable,
}

/// How a transaction runs.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// use std::time::Duration;
/// use qpair_engine::TransactionOptions;
///
/// let options = TransactionOptions {
///     lock_timeout: Some(Duration::from_millis(50)),
///     name: Some("nightly job".to_owned()),
///     ..Default::default()
/// };
/// let mut tx = store.begin_with(&options);
/// tx.put(&table, b"k", b"v")?;
/// tx.commit()?;
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TransactionOptions {
    /// What it must not notice of others.
    pub isolation: Isolation,
    /// When its commit returns, and whether what it has read is durable then.
    pub durability: Durability,
    /// It only reads; writes are refused.
    pub read_only: bool,
    /// Bytes that it may gather to write, and to compare if it is serializable; large values, which go to the device at once, count as
    /// what leads to them. 0: what the store's options say.
    pub write_set_bytes_max: usize,
    /// How long it waits for a row that another transaction has locked: the call ends with `TimedOut` then, the transaction goes on as if it
    /// had not been made (a `delete_range` may have removed the first part: a savepoint before it takes that back), and
    /// [`Store::transact`](crate::Store::transact) does not run it again. None: what the store's options say.
    pub lock_timeout: Option<Duration>,
    /// How often [`Store::transact`](crate::Store::transact) runs it, if it meets conflicts each time; 100 by default. An attempt that lost
    /// on a row on which none before it had lost does not count: the next one locks that row first. 1: it runs once.
    pub attempts_max: u32,
    /// A name for it, to be found by in [`Store::transactions`](crate::Store::transactions) and in errors.
    pub name: Option<String>,
}

impl Default for TransactionOptions {
    fn default() -> Self {
        Self {
            isolation: Isolation::Snapshot,
            durability: Durability::Sync,
            read_only: false,
            write_set_bytes_max: 0,
            lock_timeout: None,
            attempts_max: 100,
            name: None,
        }
    }
}
