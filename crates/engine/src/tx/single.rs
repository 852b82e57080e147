//! Changes by themselves: transactions of one write, which read nothing and so need no snapshot.

use std::sync::Arc;

use super::commit::Work;
use super::core::Core;
use super::options::TransactionOptions;
use crate::error::Result;
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

/// [`put`] on a caller's thread; `None` if it would have to wait, and nothing was done.
pub(crate) fn put_inline(table: &Table, key: &[u8], value: &[u8]) -> Result<Option<bool>> {
    if table.inner().shared.log.enabled {
        // The log is a worker's.
        return Ok(None);
    }
    let mut core = begin(table.inner());
    if !core.put_inline(table, key, value)? {
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
