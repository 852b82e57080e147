//! Preparing a commit's writes: their leaves are in memory and have room before the point from
//! which the commit must not fail.

use std::hint::spin_loop;

use super::reach::Reach;
use crate::shared::Shared;
use crate::space::Reservation;
use crate::task::{Context, Need, Operation};
use crate::tree::{Beside, CursorHint, Prepare, Prepared, Tree};
use crate::tx::transaction::{Item, TxState, written};

/// The number of attempts to get a latch before others may run.
const SPINS: u32 = 64;

/// Runs an operation, as far as possible without waiting for more than a latch.
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

/// The reason why a step of a commit stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Everything is done.
    Over,
    /// Other tasks should run, or the next write's leaf has no room: the commit continues write by
    /// write.
    Turn,
    /// The next write's leaf is not in memory, or is being changed.
    Away,
    /// Another commit of the worker has its timestamp, and no record yet.
    Order,
    /// Commits with earlier timestamps are not applied yet.
    Earlier,
    /// The next window of the writes on the device is needed.
    Window,
}

/// The progress of preparing a commit's writes, in the order of their keys.
#[derive(Default)]
pub(super) struct Preparing {
    cursor: (usize, usize),
    /// The tree and the leaf that were prepared last, and the space that the writes so far will
    /// need there.
    last: Option<(u32, Beside)>,
    reach: Reach,
}

impl Preparing {
    /// Continues with another window of writes.
    pub(super) fn begin_window(&mut self) {
        self.cursor = (0, 0);
    }

    /// Returns the position of the next write in the write set.
    pub(super) fn cursor(&self) -> (usize, usize) {
        self.cursor
    }

    /// Returns the reservation for the pages that the writes so far may need new places for.
    pub(super) fn reservation(&self) -> Reservation {
        self.reach.reservation()
    }

    /// Returns the write to prepare next, and the operation that prepares it. `was_split`: the
    /// commit has split the leaf of the previous writes meanwhile.
    pub(super) fn next<'c>(
        &mut self,
        core: &'c TxState,
        was_split: bool,
    ) -> Option<(Item<'c>, Prepare<'c>)> {
        let item = core.writes.nth(&mut self.cursor)?;
        let beside = self.beside(item.tree).map(|beside| Beside { was_split, ..beside });
        let value_len = written(&item).map(|(value, _)| value.len());
        let prepare =
            Prepare::new(item.tree, item.key, value_len).at(item.cursor_hint).beside(beside);
        Some((item, prepare))
    }

    /// Returns the leaf prepared last, if it is of this tree.
    fn beside(&self, tree: Tree) -> Option<Beside> {
        self.last.filter(|(of, _)| *of == tree.id).map(|(_, beside)| beside)
    }

    /// Notes that a write was prepared.
    pub(super) fn prepared(
        &mut self,
        shared: &Shared,
        item: &Item<'_>,
        Prepared { cursor_hint, bytes, cut }: Prepared,
        was_split: bool,
    ) {
        let before = self.beside(item.tree);
        // The earlier writes count for both halves of a split leaf, since it is not tracked which
        // half they are in.
        let before = before.filter(|beside| was_split || beside.leaf.0 == cursor_hint.leaf.0);
        self.reach.add(&shared.pool, item.tree, cursor_hint.leaf, was_split);
        if cut.is_some() {
            self.reach.add_new(shared.page_bytes, item.key.len());
        }
        let before = cut.unwrap_or_else(|| before.map_or(0, |beside| beside.bytes));
        let bytes_all = before + bytes as isize;
        let beside = Beside {
            leaf: cursor_hint.leaf,
            bytes: bytes_all,
            last_bytes: bytes,
            was_split: false,
        };
        self.last = Some((item.tree.id, beside));
        self.cursor.1 += 1;
    }

    /// Prepares writes as long as their leaves are in memory and have room, and appends the
    /// positions.
    pub(super) fn go_on(
        &mut self,
        core: &TxState,
        cursor_hints: &mut Vec<CursorHint>,
        context: Context<'_>,
    ) -> Stop {
        while let Some((item, mut prepare)) = self.next(core, false) {
            // A commit of very many writes must let other tasks run, so each write counts against
            // the task's budget.
            if context.worker.is_some_and(|worker| worker.spend_budget(false)) {
                return Stop::Turn;
            }
            let prepared = match step(&mut prepare, context) {
                Some(Ok(prepared)) => prepared,
                Some(Err(_)) => return Stop::Turn,
                None => return Stop::Away,
            };
            cursor_hints.push(prepared.cursor_hint);
            self.prepared(context.shared, &item, prepared, false);
        }
        Stop::Over
    }
}
