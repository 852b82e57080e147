//! Emptying a dropped table.

use std::ops::Bound;
use std::sync::Arc;

use qpair_format::page::Node;
use qpair_format::{Error, ErrorKind, Result};
use qpair_memory::Blocked;

use super::roots::give_root;
use crate::shared::Shared;
use crate::task::{Context, Descent, Need, Operation, astray, run};
use crate::tree::{
    Batch, Change, Direction, Merge, Merged, NoUndo, Remove, Scan, Tree, merge_sparse,
};

/// The number of records removed between two looks at the barrier.
const EMPTY_BATCH: usize = 256;

/// Removes all records of a dropped tree, and then its root. Ends early when the barrier is shut.
pub(super) async fn empty(shared: &Arc<Shared>, tree: Tree) -> Result<()> {
    let (mut from, to) = (Bound::Unbounded, Bound::Unbounded);
    let mut batch = Batch::default();
    // Whether pages were removed since the first leaf was last looked at.
    let mut fewer = false;
    {
        // From here on, commits that may prepare or merge leaves of the tree have ended, and later
        // ones see that it was dropped.
        let _alone = shared.checkpointing.alone.enter().await;
        shared.close_barrier().await?;
        shared.checkpointing.barrier.open();
    }
    loop {
        let _inside = shared.checkpointing.barrier.enter().await?;
        run(shared, Scan::new(tree, Direction::Forward, &from, &to, &mut batch)).await?;
        if batch.len() == 0 {
            if merge_levels(shared, tree, &from).await? {
                fewer = true;
                continue;
            }
            // An empty leaf stays while its neighbour is full, since a merged page would have a
            // shorter common prefix. It can be merged once the neighbour is empty too.
            match (batch.next.take(), &from) {
                (Some(next), _) => from = next,
                (None, Bound::Unbounded) => {
                    return run(shared, DropRoot { tree, descent: Descent::default() }).await;
                }
                (None, _) if !std::mem::take(&mut fewer) => {
                    let what = format!("tree {} has empty pages that cannot be merged", tree.id);
                    return Err(Error::new(ErrorKind::Corrupt, what));
                }
                (None, _) => from = Bound::Unbounded,
            }
            continue;
        }
        fewer = true;
        let change = Change { timestamp: shared.oracle.applied(), undo: NoUndo };
        for index in 0..batch.len().min(EMPTY_BATCH) {
            let key = batch.entry(index).0.to_vec();
            let removed = run(shared, Remove::new(tree, &key, change)).await?;
            if !removed.found {
                // No other task removes records: the tree does not lead to the leaf that has the
                // key.
                return Err(astray());
            }
            if removed.sparse.is_some() {
                merge_sparse(shared, tree, &key).await?;
            }
        }
    }
}

/// Merges, on each level, the page that covers the beginning of a range with a neighbour, where
/// possible; returns whether any page was merged.
async fn merge_levels(shared: &Shared, tree: Tree, from: &Bound<Vec<u8>>) -> Result<bool> {
    /// A limit above the number of levels of any tree.
    const LEVELS: u8 = 32;
    let key = match from {
        Bound::Unbounded => Vec::new(),
        Bound::Included(key) => key.clone(),
        Bound::Excluded(key) => [key, &[0][..]].concat(),
    };
    let mut merged = false;
    for level in 0..LEVELS {
        merged |= run(shared, Merge::new(tree, &key, level)).await? != Merged::Nothing;
    }
    Ok(merged)
}

/// Frees the root of an empty tree, and its frame. Operations with a handle of the tree notice when
/// they reach it.
struct DropRoot {
    tree: Tree,
    descent: Descent,
}

impl Operation for DropRoot {
    type Output = ();

    fn step(&mut self, context: Context<'_>) -> Result<(), Need> {
        let Some(worker) = context.worker else { return Err(Need::Worker) };
        let (shared, root) = (context.shared, self.tree.root);
        let page = shared.pool.frames.try_exclusive(root).map_err(|blocked| match blocked {
            Blocked::InFlight => Need::Io(root),
            Blocked::Contended => Need::Retry,
        })?;
        let node = Node::new(page.bytes());
        if !node.is_leaf() || node.count() > 0 {
            // Pages below the root would be lost.
            return Err(Need::Sound);
        }
        // The image under way lists the tree, so it needs the root's old content.
        context.begin_change(&page)?;
        if shared.forget_root(self.tree) {
            give_root(shared, self.tree, page);
            worker.give_frame(root);
        }
        shared.forest.note_dropping(self.tree.id, false);
        Ok(())
    }

    fn descent(&mut self) -> &mut Descent {
        &mut self.descent
    }
}
