//! Making pages free that follow one another, where a device is full of pages that do not: those between them move.
//!
//! - What can move are pages of trees: one that is dirty gets a new place by the next checkpoint. Large values, and all else that no way down a
//!   tree leads to, stay. What stays is found by looking, and known until it is given back.
//! - A row is free once a checkpoint is durable that has none of it.

use std::sync::Arc;

use super::sweep::checkpoint;
use crate::error::{ErrorKind, Result};
use crate::page::{Node, damage, own_place, words_of};
use crate::shared::{Root, Shared};
use crate::store::{open_tree, read_unchecked};
use crate::task::{current, run, spawn_here};
use crate::tree::{Stir, Tree};

/// Places for a row that are looked at.
const TRIES: u32 = 256;
/// Checkpoints for each of them: a page may have been loaded and left again, without a change, between two.
const CHECKPOINTS: usize = 3;

/// The row that is being made, until it is free or given up.
struct Making<'a>(&'a Shared);

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.0.space.end_row();
    }
}

/// Makes `count` pages in a row free, if as many are free apart from each other; whether it did. The gate must not be entered.
///
/// # Errors
/// What the device says, and damage on the way.
pub(crate) async fn make_row(shared: &Shared, count: u64) -> Result<bool> {
    let Some(own) = current(|worker| worker.shared_arc()) else { return Ok(false) };
    // To its end, even if who waits for it goes away: half of it is of no use.
    spawn_here(shared, move || async move { make(&own, count).await }).await?
}

async fn make(shared: &Arc<Shared>, count: u64) -> Result<bool> {
    let _alone = shared.row.enter().await;
    if !shared.space.could_have(count) {
        return Ok(false);
    }
    // After this each page's bytes are in its place, and what only the image before had is free.
    checkpoint(shared, false).await?;
    for _ in 0..TRIES {
        let Some(start) = shared.space.find_row(count) else { break };
        if shared.is_closing() || !shared.space.begin_row(start..start + count) {
            break;
        }
        let _making = Making(shared);
        for _ in 0..CHECKPOINTS {
            if shared.space.is_row_free() {
                return Ok(true);
            }
            if !move_others(shared).await? {
                break;
            }
            checkpoint(shared, false).await?;
        }
        if shared.space.is_row_free() {
            return Ok(true);
        }
        shared.space.note_fixed(&shared.space.others_in_row());
    }
    Ok(false)
}

/// A page of a tree, as it says itself.
struct Found {
    page_id: u64,
    tree_id: u32,
    level: u8,
    key: Vec<u8>,
}

/// Makes all pages move that are in the way; `false` if some cannot, which are noted.
async fn move_others(shared: &Arc<Shared>) -> Result<bool> {
    let (mut found, mut fixed) = (Vec::new(), Vec::new());
    for page_id in shared.space.others_in_row() {
        let page = read_unchecked(shared, page_id).await?;
        if damage(&page, own_place(&page, page_id)).is_some() {
            // It has a new owner, that was not written yet, and moves when it is.
            continue;
        }
        let words = words_of(&page);
        let node = Node::new(words.as_slice().into());
        if node.fault().is_some() {
            fixed.push(page_id);
            continue;
        }
        let mut key = Vec::new();
        node.lower_fence(&mut key);
        found.push(Found { page_id, tree_id: node.tree_id(), level: node.level(), key });
    }
    shared.space.note_fixed(&fixed);
    if !fixed.is_empty() {
        return Ok(false);
    }
    for Found { page_id, tree_id, level, key } in found {
        let root = shared.roots().get(&tree_id).copied();
        let tree = match root {
            Some(Root::Open(root)) => Tree { id: tree_id, root },
            Some(Root::Closed(_)) => match open_tree(shared, tree_id).await {
                Err(error) if error.kind() == ErrorKind::NoMemory => return Ok(false),
                opened => opened?,
            },
            // What an older tree had here is another's by now.
            None => continue,
        };
        match run(shared, Stir::new(tree, &key, level, page_id)).await {
            // The table was dropped meanwhile: its pages go anyway.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            outcome => outcome?,
        }
    }
    Ok(true)
}
