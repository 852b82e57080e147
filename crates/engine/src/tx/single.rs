//! Changes by themselves: transactions of one write, which read nothing and so need no snapshot.

use std::ops::Bound;
use std::sync::Arc;

use super::commit::Work;
use super::core::Core;
use super::options::TransactionOptions;
use super::task::TaskStore;
use crate::error::{ErrorKind, Result};
use crate::page::key_len_max;
use crate::store::{StoreInner, Table};

/// Puts a record; whether one was replaced.
pub(crate) async fn put(table: &Table, key: &[u8], value: &[u8]) -> Result<bool> {
    let mut core = begin(table.inner());
    core.put(table, key, value).await?;
    let mut work = Work::new(core)?;
    work.complete().await?;
    Ok(work.found)
}

/// Removes a record; whether there was one.
pub(crate) async fn delete(table: &Table, key: &[u8]) -> Result<bool> {
    if key.len() > key_len_max(table.inner().shared.page_size) {
        return Ok(false);
    }
    let mut core = begin(table.inner());
    core.delete_blindly(table, key).await?;
    let mut work = Work::new(core)?;
    work.complete().await?;
    Ok(work.found)
}

/// Most records of one transaction of a removal.
const PART_MAX: u64 = 1000;

/// The removal of a range's records in transactions of bounded size.
pub(crate) struct RangeRemoval {
    table: Table,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    deleted: u64,
    /// Records of the next transaction at most.
    most: u64,
}

impl RangeRemoval {
    pub(crate) fn new(table: &Table, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Self {
        Self { table: table.clone(), from, to, deleted: 0, most: PART_MAX }
    }

    /// How many are gone.
    pub(crate) fn deleted(&self) -> u64 {
        self.deleted
    }

    /// Removes some of them; whether there may be more.
    pub(crate) async fn part(&mut self) -> Result<bool> {
        let inner = self.table.inner();
        let durability = inner.shared.log.durability;
        let options = TransactionOptions { durability, ..TransactionOptions::default() };
        let store = TaskStore::new(inner.clone());
        loop {
            let (table, from, to, most) = (&self.table, &self.from, &self.to, self.most);
            let part = store
                .transact_with(&options, async |tx| {
                    tx.core.delete_range(table, from.clone(), to.clone(), most).await
                })
                .await;
            match part {
                // A full device has no places for so many leaves at once, or the keys are long: fewer may go.
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

/// [`put`] on a caller's thread; `None` if it would have to wait, and nothing was done.
pub(crate) fn put_inline(table: &Table, key: &[u8], value: &[u8]) -> Result<Option<bool>> {
    if table.inner().shared.log.enabled {
        // The log is a worker's.
        return Ok(None);
    }
    let mut core = begin(table.inner());
    if !core.put_inline(table, key, value)? {
        // It is tried again elsewhere: no transaction that was rolled back.
        core.end();
        return Ok(None);
    }
    let mut work = Work::new(core)?;
    if work.inline()? {
        return Ok(Some(work.found));
    }
    let inner = table.inner().clone();
    inner.block_on(move || async move {
        work.complete().await?;
        Ok(Some(work.found))
    })
}

fn begin(inner: &Arc<StoreInner>) -> Core {
    let durability = inner.shared.log.durability;
    Core::begin(inner, &TransactionOptions { durability, ..TransactionOptions::default() })
}
