//! Preparing a commit's writes: their leaves are in memory and have room, before the commit must not fail any more.

use std::hint::spin_loop;

use super::core::{Core, written};
use super::reach::Reach;
use super::write_set::Item;
use crate::shared::Shared;
use crate::task::{Context, Need, Operation};
use crate::tree::{Leaf, Prepare, Spot, Tree};

/// Tries of a latch that is held before others may run.
const SPINS: u32 = 64;

/// Runs an operation as far as it goes without waiting for more than a latch.
pub(super) fn step<O: Operation>(operation: &mut O, context: Context<'_>) -> Option<O::Output> {
    for _ in 0..SPINS {
        match operation.step(context) {
            Ok(output) => return Some(output),
            Err(Need::Retry | Need::Prefetch) => spin_loop(),
            Err(_) => return None,
        }
    }
    None
}

/// How far a commit's writes are prepared, in the order of their keys.
#[derive(Default)]
pub(super) struct Preparing {
    cursor: (usize, usize),
    /// The tree and the leaf that were prepared last, and bytes that the writes so far will need of it.
    last: Option<(u32, Leaf, usize)>,
    reach: Reach,
}

impl Preparing {
    /// The pages that the writes so far may have to find places for.
    pub(super) fn pages(&self) -> u64 {
        self.reach.pages()
    }

    /// The write that is to be prepared next, and how. `alone`: nothing is known of what others before it need.
    pub(super) fn next<'c>(
        &mut self,
        core: &'c Core,
        alone: bool,
    ) -> Option<(Item<'c>, Prepare<'c>)> {
        let item = core.writes.nth(&mut self.cursor)?;
        let beside = self.beside(item.tree).filter(|_| !alone);
        let value_len = written(&item).map(|(value, _)| value.len());
        let prepare = Prepare::new(item.tree, item.key, value_len).at(item.spot).beside(beside);
        Some((item, prepare))
    }

    /// The leaf prepared last, if it is of this tree, and bytes that the writes so far will need of it.
    fn beside(&self, tree: Tree) -> Option<(Leaf, usize)> {
        self.last.filter(|(of, ..)| *of == tree.id).map(|(_, leaf, bytes)| (leaf, bytes))
    }

    /// The write was prepared, and will make the leaf of its spot fuller by so many bytes.
    pub(super) fn prepared(&mut self, shared: &Shared, item: &Item<'_>, spot: Spot, bytes: usize) {
        let before = self.beside(item.tree).filter(|(of, _)| of.0 == spot.leaf.0);
        let before_bytes = before.map_or(0, |(_, bytes)| bytes);
        self.reach.add(&shared.pool, item.tree, spot.leaf, written(item).is_none());
        self.last = Some((item.tree.id, spot.leaf, before_bytes + bytes));
        self.cursor.1 += 1;
    }

    /// Prepares writes as long as all they need is at hand, and appends where they go; whether that was all of them.
    pub(super) fn go_on(
        &mut self,
        core: &Core,
        spots: &mut Vec<Spot>,
        context: Context<'_>,
    ) -> bool {
        while let Some((item, mut prepare)) = self.next(core, false) {
            // A commit of very many writes must still let others run; who goes on for it here does.
            if context.worker.is_some_and(|worker| worker.charge(false)) {
                return false;
            }
            let Some(Ok((spot, bytes))) = step(&mut prepare, context) else { return false };
            spots.push(spot);
            self.prepared(context.shared, &item, spot, bytes);
        }
        true
    }
}
