//! When commits and reads wait for the log.

/// When a commit returns, and what reads return.
///
/// A commit is seen by others before it is durable. Even so **what a program is given is durable, or was asked for as `Async`**:
///
/// - A commit returns when it survives power loss, and with it all that the transaction has read. One that wrote nothing waits for what it has
///   read, and so does [`Store::transact`](crate::Store::transact) before it returns an error of its closure.
/// - [`Table::get`](crate::Table::get), ranges and reads of snapshots wait until what they found is durable, unless the store's own
///   [`durability`](crate::StoreOptions::durability) is `Async`, or it was opened with
///   [`read_non_durable`](crate::StoreOptions::read_non_durable). Data that is older than the last write of the log costs a comparison.
/// - Reads within a transaction do not wait. Until its commit has returned a power cut may take back what they found.
/// - Records of a sorted load can be read a moment before [`BulkLoader::finish`](crate::BulkLoader::finish) has made them durable.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// use qpair_engine::{Durability, TransactionOptions};
///
/// // Many changes, whose durability is waited for once.
/// let options = TransactionOptions { durability: Durability::Async, ..Default::default() };
/// for i in 0..100u32 {
///     store.transact_with(&options, |tx| tx.put(&table, &i.to_be_bytes(), b"value"))?;
/// }
/// let mut last = store.begin();
/// last.put(&table, b"end", b"of all")?;
/// last.commit()?.wait_durable()?;
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When it survives power loss.
    #[default]
    Sync,
    /// When it survives power loss, and it may wait a little for others to go with it.
    Group,
    /// At once; [`Commit::durable`](crate::Commit::durable) waits for the rest. What was read may not be durable either.
    Async,
}
