//! Committing a transaction: its timestamp, the record in the log, and the changes in the trees.
//! After that every reader may see the commit.
//!
//! Invariants: until the timestamp is taken nothing is changed, and the commit may fail. From then
//! on it runs to its end, even if the task that requested it goes away. If the device prevents
//! that, the store becomes read-only.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use qpair_format::large::Descriptor;
use qpair_format::log::Operation;
use qpair_format::{ErrorKind, Result};

use super::Tx;
use super::fetching::{Fetching, Place, fetch_outside};
use super::options::Isolation;
use super::prepare::{Preparing, Stop, step};
use super::recent::Validating;
use super::state::{TxState, written};
use super::undo::Keep;
use super::write_set::{Item, Write};
use crate::canary::Canary;
use crate::checkpoint::SpaceRetry;
use crate::log::Durability;
use crate::panics::{guarded, guarded_future};
use crate::pool::StallTimeout;
use crate::shared::Shared;
use crate::space::{BarrierGuard, Purpose, Reservation};
use crate::sync::AsyncMutexGuard;
use crate::task::{Context, Worker, check_here, current, flush, run_at_once, spawn_here};
use crate::tree::{
    Change, CursorHint, Lack, Leaf, Put, PutOutcome, Remove, Removed, Sparse, make_reserved_room,
    make_room, merge_later,
};

/// The number of rows whose older values a commit drops, beyond twice the number of its own rows.
const COLLECT_MORE: usize = 16;

/// How often a commit leaves the barrier to load leaves that are not in memory. Memory may be too
/// small for all of them.
const FETCHES_OUTSIDE: u32 = 2;

/// The progress of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Leaves are being loaded into memory.
    Prepare,
    /// The timestamp is taken; the reads are being validated.
    Validate,
    /// Changes are being made.
    Apply,
    /// All changes are made.
    Applied,
    /// The commit is visible to others, or has failed.
    Over,
}

/// A commit under way.
pub(crate) struct Committing {
    /// The time at which the commit was requested.
    begun: Instant,
    core: Option<TxState>,
    phase: Phase,
    timestamp: u64,
    /// The position of each write, from its preparation.
    cursor_hints: Vec<CursorHint>,
    /// Whether the reservation includes leaves that the writes will split.
    is_cut: bool,
    /// The position in the write set, and the number of writes before it.
    cursor: (usize, usize),
    done: usize,
    kept_bytes: u64,
    /// The leaves that were loaded again since the timestamp was taken.
    fetching: Fetching,
    /// Whether the transaction's large values survive power loss.
    is_flushed: bool,
    /// Leaves that became sparse.
    sparse: Sparse,
    /// Whether this is the rest of a commit whose requesting task went away.
    is_rest: bool,
    /// Whether the write applied last met a record.
    pub(crate) found: bool,
    /// The number of completed checkpoints when the commit's pages first had no room even if
    /// nothing were kept for images.
    without_room: Option<u64>,
    /// Whether there was still no room after a checkpoint, which frees every unused page.
    is_hopeless: bool,
    /// The commit's place inside the barrier, from before the first change until after the last
    /// one. Dropping it releases the reservation.
    inside: Option<BarrierGuard>,
    /// The validation of a serializable transaction's reads up to a timestamp.
    validated: Option<Validating>,
    /// Held so that no other commit of this worker comes between this one's timestamp and its
    /// record.
    timestamping: Option<AsyncMutexGuard>,
}

/// Returns an upper bound of the size of a commit's record, in bytes.
fn record_bytes_max(core: &TxState) -> usize {
    /// An upper bound of the record's header, and of each write without its key and value.
    const HEAD_BYTES: usize = 64;
    core.writes.iter().fold(HEAD_BYTES, |bytes, item| {
        bytes + HEAD_BYTES + item.key.len() + written(&item).map_or(0, |(value, _)| value.len())
    })
}

/// Appends the record of a commit to the worker's log. If the commit was given up after it had its
/// timestamp, the record has no writes.
fn append(
    core: &TxState,
    timestamp: impl FnOnce() -> Result<u64>,
    given_up: &Cell<bool>,
) -> Result<u64> {
    current(|worker| {
        let bytes_max = record_bytes_max(core);
        let timestamp = worker.append_commit(bytes_max, timestamp, |record| {
            if given_up.get() {
                return;
            }
            for Item { tree, key, write, .. } in core.writes.iter() {
                let tree = tree.id;
                record.push(match write {
                    Write::Inline(value) => Operation::Put { tree, key, value },
                    Write::Large(descriptor) => Operation::PutLarge {
                        tree,
                        key,
                        descriptor: descriptor.try_into().unwrap_or_default(),
                    },
                    Write::Delete => Operation::Delete { tree, key },
                });
            }
        })?;
        if core.durability == Durability::Sync {
            worker.pump_log();
        }
        Ok(timestamp)
    })
    .unwrap_or_else(|| match core.shared().wal.options.enabled {
        true => {
            Err(qpair_format::Error::new(ErrorKind::Invalid, "a commit can only run on a worker"))
        }
        false => Ok(0),
    })
}

/// Waits until all commits up to this timestamp survive power loss.
pub(crate) async fn wait_durable(shared: &Shared, timestamp: u64) -> Result<()> {
    if !shared.wal.options.enabled {
        return match shared.lifecycle.failure() {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        };
    }
    Worker::wait_durable(timestamp).await
}

impl Committing {
    /// Begins the commit of a transaction that has writes.
    pub(crate) fn new(mut core: TxState) -> Result<Self> {
        core.tx.incarnation.begin_change()?;
        core.info.committing.store(1, Ordering::Relaxed);
        Ok(Self {
            begun: Instant::now(),
            cursor_hints: {
                let mut cursor_hints = std::mem::take(&mut core.cursor_hints);
                cursor_hints.reserve(core.writes.len());
                cursor_hints
            },
            core: Some(core),
            phase: Phase::Prepare,
            timestamp: 0,
            is_cut: false,
            cursor: (0, 0),
            done: 0,
            kept_bytes: 0,
            fetching: Fetching::default(),
            is_flushed: false,
            sparse: Sparse::default(),
            is_rest: false,
            found: false,
            without_room: None,
            is_hopeless: false,
            inside: None,
            validated: None,
            timestamping: None,
        })
    }

    /// Continues the commit from its present phase to its end.
    pub(crate) async fn complete(&mut self) -> Result<u64> {
        let Some(core) = &self.core else { return Err(qpair_format::Error::closed()) };
        let tx = core.tx.clone();
        let outcome = guarded_future(&tx.shared, self.phases(&tx)).await;
        if outcome.is_err() {
            // Either nothing was changed, or the store is read-only: the commit ends here.
            self.phase = Phase::Over;
        }
        self.inside = None;
        self.timestamping = None;
        outcome?;
        let durability = self.core.as_ref().map_or(Durability::Sync, |core| core.durability);
        if durability != Durability::Async {
            wait_durable(&tx.shared, self.timestamp).await?;
            if let Some(core) = &self.core {
                tx.shared.counters.of(core.slot).count_durable(self.begun.elapsed());
            }
        }
        Ok(self.timestamp)
    }

    async fn phases(&mut self, tx: &Arc<Tx>) -> Result<()> {
        let shared = &tx.shared;
        if self.phase == Phase::Prepare {
            // Once, not for each attempt: an attempt that finds no space causes checkpoints.
            check_here(shared)?;
            Worker::let_log_pass(shared).await?;
            SpaceRetry::tried(shared, async || {
                let Err(error) = self.begin(tx).await else { return Ok(Ok(())) };
                // Nothing is changed yet. A checkpoint would wait for commits inside the barrier.
                (self.inside, self.timestamping) = (None, None);
                match error.kind() == ErrorKind::NoSpace && self.is_hopeless {
                    true => Ok(Err(error)),
                    false => Err(error),
                }
            })
            .await??;
        }
        if self.phase == Phase::Validate {
            self.validate(tx).await?;
        }
        let mut stall_timeout = StallTimeout::default();
        while self.phase == Phase::Apply {
            let all = current(|worker| self.apply_now(tx, Some(worker)));
            let outcome = match all.unwrap_or(Ok(Stop::Turn)) {
                Ok(Stop::Over) => break,
                Ok(stop) => {
                    if let (Stop::Away, Some(core)) = (stop, &self.core) {
                        self.fetching.go_on(shared, core, (self.cursor, self.done)).await;
                    }
                    self.apply_one(tx).await
                }
                Err(error) => Err(error),
            };
            match outcome {
                Err(error) if shared.waits_on(&error, &mut stall_timeout) => {}
                Err(error) => return Err(self.fail(shared, error)),
                Ok(()) => {}
            }
        }
        if self.phase == Phase::Applied {
            // A checkpoint waits for commits that change pages, and not for commits that wait for
            // others.
            self.inside = None;
            shared.oracle.wait_applied(self.timestamp).await?;
            self.finish(tx);
        }
        Ok(())
    }

    /// Does everything up to taking the timestamp; it may still fail.
    async fn begin(&mut self, tx: &Arc<Tx>) -> Result<()> {
        let shared = &tx.shared;
        // A worker of another store may have the same number.
        check_here(shared)?;
        if self.isolation() == Isolation::Serializable && self.validated.is_none() {
            self.validate_before(tx).await?;
        }
        let Some(core) = &self.core else { return Err(qpair_format::Error::closed()) };
        if !core.large.is_empty()
            && shared.wal.options.enabled
            && !self.is_flushed
            && !shared.planted.is(Canary::LargeBeforeFlush)
        {
            // The record refers to the pages of large values, so these must be durable first.
            flush(shared).await?;
            self.is_flushed = true;
        }
        let mut outside = FETCHES_OUTSIDE;
        let reserved = loop {
            let Some(core) = &self.core else { return Err(qpair_format::Error::closed()) };
            if self.inside.is_none() {
                tx.let_history_pass(core.slot).await;
                self.inside = Some(core.tx.incarnation.clone().begin_commit().await?);
            }
            // No commit prepares leaves of a tree that is being emptied.
            core.check_tables()?;
            let from = match self.prepare(shared, outside > 0).await? {
                Ok(reserved) => break reserved,
                Err(from) => from,
            };
            // Otherwise a checkpoint, and every commit after it, would wait for these reads.
            (self.inside, outside) = (None, outside - 1);
            if let Some(core) = &self.core {
                fetch_outside(shared, core, from).await;
            }
        };
        self.is_cut = reserved.made > 0;
        if let Some(inside) = &mut self.inside
            && let Err(refused) = shared.space.reserve_places(inside, reserved)
        {
            if !shared.space.could_reserve(reserved, shared.pool.fewest()) {
                let completed = shared.checkpointing.epochs.completed.load(Ordering::Relaxed);
                self.is_hopeless = *self.without_room.get_or_insert(completed) != completed;
            }
            return Err(refused);
        }
        let timestamping = &shared.wal.timestamping[current(|worker| worker.number).unwrap_or(0)];
        if self.isolation() == Isolation::Serializable {
            self.timestamping = Some(timestamping.enter().await);
        } else if timestamping.is_held() {
            drop(timestamping.enter().await);
        }
        self.take_timestamp()
    }

    /// Commits on a caller's thread, as far as possible without waiting; returns `false` if the
    /// commit must continue on a worker.
    pub(crate) fn inline(&mut self) -> Result<bool> {
        let Some(core) = &self.core else { return Ok(false) };
        let tx = core.tx.clone();
        guarded(&tx.shared, || self.go_on_inline(&tx))
    }

    fn go_on_inline(&mut self, tx: &Arc<Tx>) -> Result<bool> {
        let shared = &tx.shared;
        let Some(core) = &self.core else { return Ok(false) };
        if core.isolation == Isolation::Serializable
            || shared.wal.options.enabled
            || !shared.wal.has_begun()
            || tx.is_history_behind(core.slot)
        {
            return Ok(false);
        }
        match shared.checkpointing.barrier.try_enter() {
            Some(entered) => self.inside = Some(entered?),
            None => return Ok(false),
        }
        let context = Context { shared, worker: None, interleave: false };
        let mut preparing = Preparing::default();
        if shared.lifecycle.has_ended()
            || shared.lifecycle.panicked().is_some()
            || preparing.go_on(core, &mut self.cursor_hints, context) != Stop::Over
        {
            self.cursor_hints.clear();
            return Ok(false);
        }
        if let Some(inside) = &mut self.inside
            && shared.space.reserve_places(inside, preparing.reservation()).is_err()
        {
            self.cursor_hints.clear();
            return Ok(false);
        }
        self.is_cut = preparing.reservation().made > 0;
        self.take_timestamp()?;
        match self.apply_now(tx, None) {
            Ok(Stop::Over) if shared.oracle.applied() >= self.timestamp => {
                self.finish(tx);
                Ok(true)
            }
            Ok(_) => Ok(false),
            Err(error) => Err(self.fail(shared, error)),
        }
    }

    /// Returns the timestamp of the commit, once it is taken.
    pub(crate) fn timestamp(&self) -> u64 {
        self.timestamp
    }

    /// Loads the leaves of all writes into memory, and makes room in them. Returns the reservation
    /// for the pages that the commit may need new places for; or, if `may_leave`, the first write
    /// whose leaf is not in memory, to load leaves outside of the barrier.
    async fn prepare(
        &mut self,
        shared: &Shared,
        may_leave: bool,
    ) -> Result<Result<Reservation, Place>> {
        let Some(core) = &self.core else { return Err(qpair_format::Error::closed()) };
        self.cursor_hints.clear();
        let (mut preparing, mut fetching) = (Preparing::default(), Fetching::default());
        loop {
            let stop =
                current(|worker| preparing.go_on(core, &mut self.cursor_hints, worker.context()));
            if stop == Some(Stop::Away) {
                let from = (preparing.cursor(), self.cursor_hints.len());
                if may_leave {
                    return Ok(Err(from));
                }
                fetching.go_on(shared, core, from).await;
            }
            let mut was_split = false;
            loop {
                let Some((item, prepare)) = preparing.next(core, was_split) else {
                    return Ok(Ok(preparing.reservation()));
                };
                match run_at_once(shared, prepare).await? {
                    Ok(prepared) => {
                        self.cursor_hints.push(prepared.cursor_hint);
                        preparing.prepared(shared, &item, prepared, was_split);
                        break;
                    }
                    Err(Lack { needed_bytes, beside }) => {
                        make_room(shared, item.tree, item.key, needed_bytes, Purpose::New).await?;
                        was_split |= beside;
                    }
                }
            }
        }
    }

    fn isolation(&self) -> Isolation {
        self.core.as_ref().map_or(Isolation::Snapshot, |core| core.isolation)
    }

    /// Takes the timestamp. Appends the record, unless reads must be validated first.
    fn take_timestamp(&mut self) -> Result<()> {
        let Some(core) = &self.core else { return Ok(()) };
        let shared = core.shared();
        shared.lifecycle.check_writable()?;
        let clock = &shared.oracle;
        if core.isolation == Isolation::Serializable {
            let bytes_max = record_bytes_max(core);
            current(|worker| worker.expect_commit(bytes_max)).unwrap_or(Ok(()))?;
            self.timestamp = clock.begin_commit().inspect_err(|_| {
                // The commit will never come, and a close would wait for it.
                current(|worker| worker.expect_no_commit());
            })?;
            self.phase = Phase::Validate;
            return Ok(());
        }
        // A commit with a later timestamp than the drop of a table sees that the table was dropped.
        let (given_up, mut there) = (Cell::new(false), Ok(()));
        let mut begin = || {
            let timestamp = clock.begin_commit()?;
            there = core.check_tables();
            given_up.set(there.is_err());
            Ok(timestamp)
        };
        self.timestamp = match shared.wal.options.enabled {
            true => append(core, begin, &given_up)?,
            false => begin()?,
        };
        if let Err(error) = there {
            clock.end_commit(self.timestamp);
            self.phase = Phase::Over;
            return Err(error);
        }
        self.phase = Phase::Apply;
        Ok(())
    }

    /// Validates the reads of a serializable transaction before the timestamp is taken. All later
    /// commits wait for a commit that has its timestamp, and this may read ranges of any length.
    async fn validate_before(&mut self, tx: &Tx) -> Result<()> {
        let shared = &tx.shared;
        let Some(core) = &mut self.core else { return Ok(()) };
        let Some(snapshot) = core.snapshot else { return Ok(()) };
        let validating = tx.recent.begin(&shared.oracle);
        shared.oracle.wait_applied(validating.since).await?;
        if !shared.planted.is(Canary::UncheckedReads) {
            let validated = core.reads.validate(tx, snapshot, validating.since + 1).await;
            validated.and_then(|()| core.check_snapshot(snapshot)).inspect_err(|error| {
                if error.kind() == ErrorKind::Conflict {
                    shared.counters.of(core.slot).count_conflict();
                }
            })?;
        }
        self.validated = Some(validating);
        Ok(())
    }

    /// Validates the reads again, up to the timestamp.
    async fn validate(&mut self, tx: &Tx) -> Result<()> {
        let shared = &tx.shared;
        // All earlier commits must be visible in the trees and the row table.
        shared.oracle.wait_applied(self.timestamp - 1).await?;
        let timestamp = self.timestamp;
        let validated = self.validated.take();
        let Some(core) = &mut self.core else { return Ok(()) };
        let outcome = match (core.snapshot, validated) {
            (Some(snapshot), Some(validated)) if !shared.planted.is(Canary::UncheckedReads) => {
                let since = validated.since;
                let same = match validated.changed(timestamp) {
                    Some(changed) => core.reads.validate_with(tx, &changed, since, timestamp),
                    None => core.reads.validate(tx, since, timestamp).await,
                };
                same.and_then(|()| core.check_snapshot(snapshot))
            }
            _ => Ok(()),
        };
        let outcome = outcome.and_then(|()| core.check_tables());
        let appended = append(core, || Ok(timestamp), &Cell::new(outcome.is_err()));
        self.timestamping = None;
        if let Err(error) = appended {
            return Err(self.fail(shared, error));
        }
        if let Err(error) = outcome {
            if error.kind() == ErrorKind::Conflict {
                shared.counters.of(core.slot).count_conflict();
            }
            shared.oracle.end_commit(timestamp);
            self.phase = Phase::Over;
            return Err(error);
        }
        self.phase = Phase::Apply;
        Ok(())
    }

    /// Makes changes as long as everything they need is in memory.
    fn apply_now(&mut self, tx: &Tx, worker: Option<&std::rc::Rc<Worker>>) -> Result<Stop> {
        let shared = &tx.shared;
        let worker = worker.map(|worker| &**worker);
        let context = Context { shared, worker, interleave: false };
        shared.planted.strike(Canary::PanicInCommit);
        let Some(core) = &mut self.core else { return Ok(Stop::Turn) };
        // The leaf that was changed last. Other writes to it were prepared at its previous version.
        let mut last: Option<(u32, Leaf)> = None;
        while let Some(item) = core.writes.nth(&mut self.cursor) {
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
                        Some(PutOutcome::Full { .. }) => return Ok(Stop::Turn),
                        None => return Ok(Stop::Away),
                    }
                }
                None => {
                    let mut remove = Remove::new(item.tree, item.key, change).at(cursor_hint);
                    let Some(removed) = step(&mut remove, context) else {
                        return Ok(Stop::Away);
                    };
                    note_removed(&mut self.sparse, &mut self.found, &item, &removed);
                    removed.kept_bytes
                }
            };
            self.kept_bytes += kept_bytes as u64;
            self.cursor.1 += 1;
            self.done += 1;
        }
        self.applied(tx);
        Ok(Stop::Over)
    }

    /// Makes the next change, and waits for the pages that it needs.
    async fn apply_one(&mut self, tx: &Tx) -> Result<()> {
        let shared = &tx.shared;
        let Some(core) = &self.core else { return Ok(()) };
        let Some(item) = core.writes.nth(&mut self.cursor) else { return Ok(()) };
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
                        // This split was expected, or others took the room that was made. The
                        // timestamp is taken, so it must not fail for want of space: its pages were
                        // reserved, or are a few of those kept free.
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
        let Some(core) = &mut self.core else { return };
        if !core.large.is_empty() {
            let mut referred: Vec<u64> = core
                .writes
                .iter()
                .filter_map(|item| match item.write {
                    Write::Large(descriptor) => Descriptor::first_page(descriptor),
                    _ => None,
                })
                .collect();
            referred.sort_unstable();
            // The transaction itself has overwritten the other values.
            for large in core.large.drain(..) {
                if referred.binary_search(&large.page_id()).is_ok() {
                    large.keep();
                }
            }
        }
        self.phase = Phase::Applied;
        let keys = core.writes.iter().map(|item| (item.tree.id, item.key));
        tx.recent.note(self.timestamp, keys);
        shared.oracle.end_commit(self.timestamp);
    }

    /// Releases the transaction's resources once every reader sees the commit, and queues its
    /// before-images for collection.
    fn finish(&mut self, tx: &Tx) {
        let shared = &tx.shared;
        let Some(core) = &mut self.core else { return };
        self.phase = Phase::Over;
        shared.counters.of(core.slot).count_commit();
        core.end();
        let budget = 2 * core.locks.len() + COLLECT_MORE;
        if self.kept_bytes > 0 {
            tx.enqueue_old(core.slot, self.timestamp, self.kept_bytes, &mut core.locks);
        }
        merge_later(shared, &mut self.sparse);
        core.cursor_hints = std::mem::take(&mut self.cursor_hints);
        tx.collect_slot(core.slot, budget);
    }

    /// Fails the store, since the commit is made in part and cannot be completed.
    fn fail(&mut self, shared: &Shared, error: qpair_format::Error) -> qpair_format::Error {
        shared.fail(error.clone());
        shared.oracle.fail(error.clone());
        self.phase = Phase::Over;
        if let Some(core) = &mut self.core {
            // A leaf may refer to the pages of the large values.
            core.large.drain(..).for_each(super::large::LargeValue::keep);
        }
        error
    }
}

fn note_removed(sparse: &mut Sparse, found: &mut bool, item: &Item<'_>, removed: &Removed) {
    *found = removed.found;
    if let Some(leaf) = removed.sparse {
        sparse.note(item.tree, item.key, leaf);
    }
}

impl Drop for Committing {
    fn drop(&mut self) {
        // If the rest is dropped too, there are no workers left: the store ended without being
        // closed.
        if self.is_rest || !matches!(self.phase, Phase::Validate | Phase::Apply | Phase::Applied) {
            return;
        }
        // The requesting task went away after the timestamp was taken: another task completes the
        // commit.
        let Some(mut core) = self.core.take() else { return };
        let tx = core.tx.clone();
        if tx.shared.lifecycle.panicked().is_some() {
            // No task continues after a panic. A leaf may refer to the pages of the large values.
            core.large.drain(..).for_each(super::large::LargeValue::keep);
            return;
        }
        let mut rest = Self {
            core: Some(core),
            cursor_hints: std::mem::take(&mut self.cursor_hints),
            sparse: std::mem::take(&mut self.sparse),
            is_rest: true,
            inside: self.inside.take(),
            validated: self.validated.take(),
            timestamping: self.timestamping.take(),
            ..*self
        };
        // The task runs on the worker whose log waits for this timestamp, since the commit was
        // dropped there.
        spawn_here(&tx.shared, move || async move {
            // The requesting task has ended. A failure has made the store read-only, and later
            // calls return it.
            let _ = rest.complete().await;
        });
    }
}

/// Commits a transaction, in a task; returns its timestamp.
pub(crate) async fn commit(mut core: TxState) -> Result<u64> {
    if let Some(done) = nothing_to_do(&mut core)? {
        let (waits, seen) = core.seen();
        core.tx.shared.wait_to_give(waits, seen).await?;
        return Ok(done);
    }
    Committing::new(core)?.complete().await
}

/// Ends a transaction without writes and returns its timestamp; returns `None` if there are writes.
/// The data that it has read may not be durable yet.
pub(crate) fn nothing_to_do(core: &mut TxState) -> Result<Option<u64>> {
    if let Some(doomed) = &core.doomed {
        return Err(doomed.clone());
    }
    if !core.writes.is_empty() {
        return Ok(None);
    }
    let timestamp = core.snapshot.unwrap_or_else(|| core.shared().oracle.applied());
    core.end();
    Ok(Some(timestamp))
}
