//! The changes of a commit in the trees, and its end.

use qpair_format::large::Descriptor;
use qpair_format::{Error, Result};

use super::prepare::{Stop, step};
use super::progress::{Phase, Progress};
use super::undo::Keep;
use crate::canary::Canary;
use crate::shared::Shared;
use crate::task::{Context, run_at_once};
use crate::tree::{
    Change, Leaf, Put, PutOutcome, Remove, Removed, Sparse, make_reserved_room, merge_later,
};
use crate::tx::Tx;
use crate::tx::transaction::{Item, LargeValue, TxState, Write, written};

/// The number of rows whose older values a commit drops, beyond twice the number of its own rows.
const COLLECT_MORE: usize = 16;

impl Progress {
    /// Makes changes as long as everything they need is in memory.
    pub(super) fn apply_now(&mut self, tx: &Tx, context: Context<'_>) -> Stop {
        context.shared.planted.strike(Canary::PanicInCommit);
        if self.spilled.as_ref().is_some_and(|of| of.windows.is_open()) {
            return Stop::Window;
        }
        // The leaf that was changed last. Other writes to it were prepared at its previous version.
        let mut last: Option<(u32, Leaf)> = None;
        while let Some(item) = self.core.writes.nth(&mut self.cursor) {
            let prepared = self.cursor_hints.get(self.done).copied();
            let near = last.filter(|(tree, _)| *tree == item.tree.id).map(|(_, leaf)| leaf);
            let cursor_hint =
                prepared.filter(|cursor_hint| near.is_none_or(|near| near.0 != cursor_hint.leaf.0));
            let change = Change { timestamp: self.timestamp, undo: Keep { tx, row: item.row } };
            let kept_bytes = match written(&item) {
                Some((value, large)) => {
                    let mut put = Put::new(item.tree, item.key, value, large, change)
                        .at(cursor_hint)
                        .near(near);
                    match step(&mut put, context) {
                        Some(PutOutcome::Done { replaced, kept_bytes, leaf }) => {
                            self.found = replaced;
                            last = Some((item.tree.id, leaf));
                            kept_bytes
                        }
                        Some(PutOutcome::Full { .. }) => return Stop::Turn,
                        None => return Stop::Away,
                    }
                }
                None => {
                    let mut remove = Remove::new(item.tree, item.key, change).at(cursor_hint);
                    let Some(removed) = step(&mut remove, context) else {
                        return Stop::Away;
                    };
                    note_removed(&mut self.sparse, &mut self.found, &item, &removed);
                    removed.kept_bytes
                }
            };
            self.kept_bytes += kept_bytes as u64;
            self.cursor.1 += 1;
            self.done += 1;
        }
        if let Some(of) = &mut self.spilled {
            of.referred.extend(referred(&self.core));
            if !of.windows.is_over() {
                return Stop::Window;
            }
        }
        self.applied(tx);
        Stop::Over
    }

    /// Makes the next change, and waits for the pages that it needs.
    pub(super) async fn apply_one(&mut self, tx: &Tx) -> Result<()> {
        let shared = &tx.shared;
        let Some(item) = self.core.writes.nth(&mut self.cursor) else { return Ok(()) };
        let change = Change { timestamp: self.timestamp, undo: Keep { tx, row: item.row } };
        let kept_bytes = match written(&item) {
            Some((value, large)) => loop {
                match run_at_once(shared, Put::new(item.tree, item.key, value, large, change))
                    .await?
                {
                    PutOutcome::Done { replaced, kept_bytes, .. } => {
                        self.found = replaced;
                        break kept_bytes;
                    }
                    PutOutcome::Full { needed_bytes } => {
                        // This split was expected, or other commits took the room that was made.
                        // The timestamp is taken, so the split must not fail for lack of space: its
                        // pages were reserved, or are a few of those kept free.
                        let cut = self.is_cut;
                        make_reserved_room(shared, item.tree, item.key, needed_bytes, cut).await?;
                    }
                }
            },
            None => {
                let removed = run_at_once(shared, Remove::new(item.tree, item.key, change)).await?;
                note_removed(&mut self.sparse, &mut self.found, &item, &removed);
                removed.kept_bytes
            }
        };
        self.kept_bytes += kept_bytes as u64;
        self.cursor.1 += 1;
        self.done += 1;
        Ok(())
    }

    /// Ends the commit's changes, after all of them were made in the trees.
    fn applied(&mut self, tx: &Tx) {
        let shared = &tx.shared;
        let core = &mut self.core;
        if !core.large.is_empty() {
            let mut referred: Vec<u64> = match &mut self.spilled {
                Some(of) => std::mem::take(&mut of.referred),
                None => referred(core).collect(),
            };
            referred.sort_unstable();
            // The transaction itself has overwritten the other large values.
            for large in core.large.drain(..) {
                if referred.binary_search(&large.page_id()).is_ok() {
                    large.keep();
                }
            }
        }
        self.phase = Phase::Applied;
        if core.has_spilled() {
            tx.recent.note_missing(self.timestamp);
        } else {
            let keys = core.writes.iter().map(|item| (item.tree.id, item.key));
            tx.recent.note(self.timestamp, &shared.oracle, keys);
        }
        shared.oracle.end_commit(self.timestamp);
    }

    /// Releases the transaction's resources once every reader sees the commit, and queues its
    /// before-images for collection.
    pub(super) fn finish(&mut self, tx: &Tx) {
        let (shared, core) = (&tx.shared, &mut self.core);
        self.phase = Phase::Over;
        shared.counters.of(core.slot).count_commit();
        core.end();
        let budget = 2 * core.locks.len() + COLLECT_MORE;
        if self.kept_bytes > 0 {
            tx.enqueue_old(core.slot, self.timestamp, self.kept_bytes, &mut core.locks);
        }
        if let Some(of) = self.spilled.take() {
            of.image_runs.iter().for_each(|run| drop(run.settle(Vec::new())));
            tx.history.begin_merge(&core.tx);
        }
        merge_later(shared, &mut self.sparse);
        core.cursor_hints = std::mem::take(&mut self.cursor_hints);
        tx.collect_slot(core.slot, budget);
    }

    /// Fails the store, since the commit is made in part and cannot be completed.
    pub(super) fn fail(&mut self, shared: &Shared, error: Error) -> Error {
        shared.fail(error.clone());
        shared.oracle.fail(error.clone());
        self.phase = Phase::Over;
        self.keep_large();
        error
    }

    /// Keeps the pages of all large values, since a leaf may refer to them.
    pub(super) fn keep_large(&mut self) {
        self.core.large.drain(..).for_each(LargeValue::keep);
    }
}

/// Returns the first pages of the large values among the writes in memory.
fn referred(core: &TxState) -> impl Iterator<Item = u64> + '_ {
    core.writes.iter().filter_map(|item| match item.write {
        Write::Large(descriptor) => Descriptor::first_page(descriptor),
        _ => None,
    })
}

fn note_removed(sparse: &mut Sparse, found: &mut bool, item: &Item<'_>, removed: &Removed) {
    *found = removed.found;
    if let Some(leaf) = removed.sparse {
        sparse.note(item.tree, item.key, leaf);
    }
}
