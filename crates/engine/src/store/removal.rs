//! Removal of the records of a range, in transactions of bounded size.

use std::ops::Bound;

use qpair_format::{ErrorKind, Result};

use super::{Table, TaskStore};
use crate::tx::TransactionOptions;

/// The maximum number of records that one transaction of a removal removes.
const PART_MAX: u64 = 1000;

/// A removal of a range's records in transactions of bounded size.
pub(crate) struct RangeRemoval {
    table: Table,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    deleted: u64,
    /// The maximum number of records that the next transaction removes.
    most: u64,
}

impl RangeRemoval {
    pub(crate) fn new(table: &Table, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Self {
        Self { table: table.clone(), from, to, deleted: 0, most: PART_MAX }
    }

    pub(crate) fn deleted(&self) -> u64 {
        self.deleted
    }

    /// Removes some of the records; returns whether there may be more.
    pub(crate) async fn part(&mut self) -> Result<bool> {
        let inner = self.table.inner();
        let durability = inner.shared.wal.options.durability;
        let options = TransactionOptions { durability, ..TransactionOptions::default() };
        let store = TaskStore::new(inner.clone());
        loop {
            let (table, from, to, most) = (&self.table, &self.from, &self.to, self.most);
            let part = store
                .transact_with(&options, async |tx| {
                    let tree = table.tree();
                    tx.core.delete_range(tree, from.clone(), to.clone(), most).await
                })
                .await;
            match part {
                // A full device has no room for the changes of so many leaves at once, or the keys
                // are long: try with fewer.
                Err(error)
                    if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::TooLarge)
                        && most > 1 =>
                {
                    self.most /= 2;
                }
                part => {
                    let part = part?;
                    self.deleted += part;
                    self.most = (2 * most).min(PART_MAX);
                    return Ok(part == most);
                }
            }
        }
    }
}
