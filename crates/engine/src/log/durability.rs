//! The durability of commits and reads: when they wait for the log.

/// Selects when a commit returns, and what reads return.
///
/// Other transactions see a commit before it is durable. Even so, **data that a program is given is
/// durable, unless the program asked for `Async`**:
///
/// - A commit returns when it survives power loss, and with it everything that the transaction has
///   read. A transaction that wrote nothing waits for the data that it has read, and so does
///   [`Store::transact`](crate::Store::transact) before it returns an error of its closure.
/// - [`Table::get`](crate::Table::get), ranges and reads of snapshots wait until the data that they
///   found is durable, unless the store's own [`durability`](crate::StoreOptions::durability) is
///   `Async`, or the store was opened with
///   [`read_non_durable`](crate::StoreOptions::read_non_durable). For data that is older than the
///   last write of the log this costs one comparison.
/// - Reads within a transaction do not wait. Until the transaction's commit has returned, a power
///   cut may undo the commits that they found.
/// - Records of a sorted load can be read a moment before
///   [`BulkLoader::finish`](crate::BulkLoader::finish) has made them durable.
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
    /// The commit returns when it survives power loss.
    #[default]
    Sync,
    /// The commit returns when it survives power loss, and may wait a little so that one write
    /// serves several commits.
    Group,
    /// The commit returns at once; [`Commit::durable`](crate::Commit::durable) waits until it is
    /// durable. The data that it read may not be durable either.
    Async,
}
