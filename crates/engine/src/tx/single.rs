//! Changes by themselves: transactions of one write, which read nothing and so need no snapshot.

use std::sync::Arc;

use qpair_format::Result;
use qpair_format::page::key_len_max;

use super::Tx;
use super::commit::Committing;
use super::options::TransactionOptions;
use super::state::TxState;
use crate::tree::Tree;

/// Puts a record; whether one was replaced.
pub(crate) async fn put(tx: &Arc<Tx>, tree: Tree, key: &[u8], value: &[u8]) -> Result<bool> {
    let mut core = begin(tx);
    core.put(tree, key, value).await?;
    let mut committing = Committing::new(core)?;
    committing.complete().await?;
    Ok(committing.found)
}

/// Removes a record; whether there was one.
pub(crate) async fn delete(tx: &Arc<Tx>, tree: Tree, key: &[u8]) -> Result<bool> {
    if key.len() > key_len_max(tx.shared.page_size) {
        return Ok(false);
    }
    let mut core = begin(tx);
    core.delete_blindly(tree, key).await?;
    let mut committing = Committing::new(core)?;
    committing.complete().await?;
    Ok(committing.found)
}

/// How far [`put_inline`] came.
pub(crate) enum Inline {
    /// It would have to wait, and nothing was done.
    Nothing,
    /// It goes on on a worker.
    Begun(Box<Committing>),
    /// It is done; whether a record was replaced.
    Done(bool),
}

/// [`put`] on a caller's thread, as far as it goes without waiting.
pub(crate) fn put_inline(tx: &Arc<Tx>, tree: Tree, key: &[u8], value: &[u8]) -> Result<Inline> {
    if tx.shared.wal.options.enabled {
        // The log is a worker's.
        return Ok(Inline::Nothing);
    }
    let mut core = begin(tx);
    if !core.put_inline(tree, key, value)? {
        // It is tried again elsewhere: no transaction that was rolled back.
        core.end();
        return Ok(Inline::Nothing);
    }
    let mut committing = Committing::new(core)?;
    Ok(if committing.inline()? {
        Inline::Done(committing.found)
    } else {
        Inline::Begun(Box::new(committing))
    })
}

fn begin(tx: &Arc<Tx>) -> TxState {
    let durability = tx.shared.wal.options.durability;
    TxState::begin(tx, &TransactionOptions { durability, ..TransactionOptions::default() })
}
