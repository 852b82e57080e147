//! Removal of due entries of the index of expiry times, with their records.
//!
//! A removal never waits for a row: what a transaction has locked stays until the next removal. So
//! it takes part in no deadlock. The cost follows the number of due entries, whatever else the
//! table has.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use qpair_format::expiry::{decode_entry, definition_key, entries_end, entry_key, expiry_of};
use qpair_format::{ErrorKind, Result};

use super::super::roots::open_tree;
use super::options;
use crate::log::Durability;
use crate::shared::Shared;
use crate::task::run;
use crate::tree::{Batch, Direction, Scan, Tree};
use crate::tx::{Tx, TxState, commit};

/// The maximum number of entries that one transaction removes.
const PART_MAX: usize = 64;

/// Returns the first entries of a part of the index, at most `most`.
pub(super) async fn entries(
    shared: &Shared,
    index: Tree,
    (from, to): (Vec<u8>, Vec<u8>),
    most: usize,
) -> Result<Vec<Vec<u8>>> {
    let (mut from, to) = (Bound::Included(from), Bound::Excluded(to));
    let (mut batch, mut found) = (Batch::default(), Vec::new());
    while found.len() < most {
        let scan = Scan::new(index, Direction::Forward, &from, &to, &mut batch);
        run(shared, scan.limited(most - found.len())).await?;
        found.extend((0..batch.len()).map(|at| batch.entry(at).0.to_vec()));
        match batch.next.take() {
            Some(next) => from = next,
            None => break,
        }
    }
    found.truncate(most);
    Ok(found)
}

/// Removes the due entries of a table, and their records. Returns the number of removed records,
/// and of entries that were left, since their rows are locked.
pub(super) async fn remove_due(tx: &Arc<Tx>, index: Tree, tree: u32) -> Result<(u64, u64)> {
    let shared = &tx.shared;
    let horizon_ms = shared.expiry.horizon_ms();
    if !shared.forest.roots().contains_key(&tree) {
        // The table was dropped: its part of the index is removed as a whole.
        return Ok((0, 0));
    }
    let records = open_tree(shared, tree).await?;
    let (mut removed, mut left, mut most) = (0, 0, PART_MAX);
    let (mut from, to) = (entry_key(tree, 0, &[]), entries_end(tree, horizon_ms));
    loop {
        let due = entries(shared, index, (from.clone(), to.clone()), most).await?;
        let Some(last) = due.last() else { return Ok((removed, left)) };
        if shared.expiry.is_loading(tree) {
            return Ok((removed, left));
        }
        match remove(tx, (index, records), &due, horizon_ms).await {
            Ok((of_part, skipped)) => {
                removed += of_part;
                left += skipped;
            }
            // A full device has no room for the changes of so many leaves at once.
            Err(error)
                if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::TooLarge) && most > 1 =>
            {
                most /= 2;
                continue;
            }
            Err(error) if matches!(error.kind(), ErrorKind::Conflict) => left += due.len() as u64,
            // The table was dropped meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((removed, left)),
            Err(error) => return Err(error),
        }
        // The direct successor of the last entry.
        from = [last, &[0][..]].concat();
    }
}

/// Removes these entries in one transaction, and the records that have expired.
async fn remove(
    tx: &Arc<Tx>,
    (index, records): (Tree, Tree),
    due: &[Vec<u8>],
    horizon_ms: u64,
) -> Result<(u64, u64)> {
    // If the removal is lost in a crash, the entries are still there.
    let mut core = TxState::begin(tx, &options(Durability::Async));
    // All rows are locked before the snapshot is taken, so no commit is newer than the snapshot.
    let mut locked = Vec::with_capacity(due.len());
    for entry in due {
        let Some((_, _, key)) = decode_entry(entry) else { continue };
        core.make_room().await?;
        if core.lock_inline(records, key)? && core.lock_inline(index, entry)? {
            locked.push((entry, key));
        }
    }
    let (mut removed, mut value) = (0, Vec::new());
    for (entry, key) in &locked {
        value.clear();
        // The record may have been put again since, or deleted.
        if core.get_into(records, key, &mut value).await? && expiry_of(&value)? <= horizon_ms {
            core.delete_blindly(records, key).await?;
            removed += 1;
        }
        core.delete_blindly(index, entry).await?;
    }
    commit(core).await?;
    tx.shared.expiry.removed.fetch_add(removed, Ordering::Relaxed);
    Ok((removed, (due.len() - locked.len()) as u64))
}

/// Removes the entries and definitions of tables that were dropped.
pub(super) async fn remove_dropped(tx: &Arc<Tx>, index: Tree) -> Result<()> {
    let shared = &tx.shared;
    for (tree, definition) in shared.expiry.tables() {
        if definition.making || shared.forest.roots().contains_key(&tree) {
            continue;
        }
        let (from, to) = (entry_key(tree, 0, &[]), entries_end(tree, u64::MAX));
        let mut most = PART_MAX;
        loop {
            let found = entries(shared, index, (from.clone(), to.clone()), most).await?;
            let is_last = found.is_empty();
            let mut core = TxState::begin(tx, &options(Durability::Async));
            for entry in &found {
                core.delete_blindly(index, entry).await?;
            }
            if is_last {
                core.delete_blindly(index, &definition_key(tree)).await?;
            }
            match commit(core).await {
                Err(error) if error.kind() == ErrorKind::NoSpace && !is_last && most > 1 => {
                    most /= 2;
                }
                outcome => drop(outcome?),
            }
            if is_last {
                shared.expiry.forget(tree);
                break;
            }
        }
    }
    Ok(())
}
