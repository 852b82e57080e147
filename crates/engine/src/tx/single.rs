//! Changes by themselves: transactions of one write, which read nothing and so need no snapshot.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use super::commit::Work;
use super::core::Core;
use super::options::TransactionOptions;
use super::task::TaskStore;
use crate::error::{Error, ErrorKind, Result};
use crate::page::key_len_max;
use crate::panics::of_program;
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

/// Removes the records of a range in transactions of bounded size; how many. `progress` is told how many after each, and may break it
/// off.
pub(crate) async fn delete_range(
    table: &Table,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    progress: impl Fn(u64) -> ControlFlow<()>,
) -> Result<u64> {
    /// Most records of one transaction.
    const PART_MAX: u64 = 1000;
    let durability = table.inner().shared.log.durability;
    let options = TransactionOptions { durability, ..TransactionOptions::default() };
    let store = TaskStore::new(table.inner().clone());
    let (mut deleted, mut most) = (0, PART_MAX);
    loop {
        let (from, to) = (&from, &to);
        let part = store
            .transact_with(&options, async |tx| {
                tx.core.delete_range(table, from.clone(), to.clone(), most).await
            })
            .await;
        let part = match part {
            // A full device has no places for so many leaves at once, or the keys are long: fewer may go.
            Err(error)
                if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::TooLarge) && most > 1 =>
            {
                most /= 2;
                continue;
            }
            part => part?,
        };
        deleted += part;
        let goes_on = of_program(|| progress(deleted)).is_continue();
        if part < most {
            return Ok(deleted);
        }
        most = (2 * most).min(PART_MAX);
        if !goes_on {
            return Err(Error::new(
                ErrorKind::Interrupted,
                "the removal of a range was broken off",
            ));
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
