//! Options of a transaction.

use std::time::Duration;

use crate::log::Durability;

/// The isolation of a transaction from others.
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
    /// A transaction sees the store as of one point, and its own writes. Of two concurrent
    /// transactions that write the same key, one gets `Conflict`. Two that each read what the other
    /// writes may both commit (write skew).
    #[default]
    Snapshot,
    /// All serializable transactions have the same effect as if they had run one after the other,
    /// in the order of their commits. Reads are recorded until the commit, which validates them;
    /// they count against the transaction's limit on bytes.
    Serializable,
}

/// Options of a transaction.
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
    /// The isolation from other transactions.
    pub isolation: Isolation,
    /// When the commit returns, and whether the data that was read is durable then.
    pub durability: Durability,
    /// Whether the transaction only reads; writes are refused then.
    pub read_only: bool,
    /// Limit on the memory for the transaction's writes and locked rows, and for the reads of a
    /// serializable transaction, in bytes. Writes beyond it go to the device, where each keeps
    /// about 8 bytes of this memory in use; reads do not. Large values go to the device at once, so
    /// only their descriptors count. 0: the limit of the store's options.
    pub write_set_bytes_max: usize,
    /// How long a call waits for a row that another transaction has locked, before it fails with
    /// `TimedOut`. The transaction then continues as without the call, except that a `delete_range`
    /// may have removed the first part of its range; roll back to an earlier savepoint to undo
    /// that. [`Store::transact`](crate::Store::transact) does not run the transaction again.
    /// `None`: the limit of the store's options.
    pub lock_timeout: Option<Duration>,
    /// How often [`Store::transact`](crate::Store::transact) runs the transaction if each attempt
    /// meets a conflict. Default: 100. An attempt does not count if it met a conflict on a row on
    /// which no earlier attempt had; the next attempt locks that row first. With 1 there is only
    /// one attempt.
    pub attempts_max: u32,
    /// The name of the transaction in [`Store::transactions`](crate::Store::transactions) and in
    /// errors.
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
