//! Single changes: transactions of one write, which read nothing and so need no snapshot.

use std::sync::Arc;

use qpair_format::Result;
use qpair_format::page::KEY_LEN_MAX;

use super::committing::Committing;
use crate::tree::Tree;
use crate::tx::Tx;
use crate::tx::transaction::{TransactionOptions, TxState};

/// Puts a record; returns whether one was replaced.
pub(crate) async fn put(tx: &Arc<Tx>, tree: Tree, key: &[u8], value: &[u8]) -> Result<bool> {
    let mut core = begin(tx);
    if tree.codec.expires() || tree.is_long(key) {
        // The record that is met may have expired, or is one of a group.
        let there = core.replace(tree, key, value).await?;
        tx.incarnation.begin_change()?;
        return Committing::new(core).complete().await.map(|_| there);
    }
    core.put(tree, key, value).await?;
    tx.incarnation.begin_change()?;
    Ok(Committing::new(core).complete().await?.found)
}

/// Removes a record; returns whether there was one.
pub(crate) async fn delete(tx: &Arc<Tx>, tree: Tree, key: &[u8]) -> Result<bool> {
    if key.len() > KEY_LEN_MAX || tree.codec.expires() && tree.is_long(key) {
        return Ok(false);
    }
    let mut core = begin(tx);
    if tree.codec.expires() || tree.is_long(key) {
        let there = core.delete(tree, key).await?;
        return super::commit(core).await.map(|_| there);
    }
    core.delete_blindly(tree, key).await?;
    tx.incarnation.begin_change()?;
    Ok(Committing::new(core).complete().await?.found)
}

/// The progress of [`put_inline`].
pub(crate) enum Inline {
    /// Nothing was done, since the put would have to wait.
    Nothing,
    /// The commit has begun, and must be completed on a worker.
    Begun(Box<Committing>),
    /// The put is complete; the value says whether a record was replaced.
    Done(bool),
}

/// Like [`put`], on a caller's thread, as far as possible without waiting.
pub(crate) fn put_inline(tx: &Arc<Tx>, tree: Tree, key: &[u8], value: &[u8]) -> Result<Inline> {
    if tx.shared.wal.options.enabled || tree.codec.expires() {
        // Only workers have logs, and may read from the device.
        return Ok(Inline::Nothing);
    }
    let mut core = begin(tx);
    if !core.put_inline(tree, key, value)? {
        // The put is tried again elsewhere, so this does not count as a rollback.
        core.end();
        return Ok(Inline::Nothing);
    }
    tx.incarnation.begin_change()?;
    let mut committing = Committing::new(core);
    Ok(match committing.inline()? {
        Some(done) => Inline::Done(done.found),
        None => Inline::Begun(Box::new(committing)),
    })
}

fn begin(tx: &Arc<Tx>) -> TxState {
    let durability = tx.shared.wal.options.durability;
    TxState::begin(tx, &TransactionOptions { durability, ..TransactionOptions::default() })
}
