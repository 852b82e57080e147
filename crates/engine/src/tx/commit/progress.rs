//! The progress of a commit, from its leaves to its end.
//!
//! Two steps, [`Progress::begin_now`] and [`Progress::end_now`], get as far as they can without
//! waiting. A task takes a step, waits for what it needs, and takes the step again. A caller's
//! thread takes each once.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Instant;

use qpair_format::{ErrorKind, Result};

use super::fetching::{Fetching, fetch_outside};
use super::prepare::{Preparing, Stop};
use super::record::{append, expect, wait_durable};
use super::windows::SpilledCommit;
use crate::canary::Canary;
use crate::checkpoint::{SpaceRetry, no_place};
use crate::log::Durability;
use crate::panics::{guarded, guarded_future};
use crate::pool::StallTimeout;
use crate::shared::Shared;
use crate::space::{BarrierGuard, Purpose, Reservation};
use crate::sync::{AsyncMutexGuard, Ticket};
use crate::task::{Context, Worker, check_here, current, flush, run_at_once};
use crate::tree::{CursorHint, Lack, Sparse, make_room};
use crate::tx::Tx;
use crate::tx::transaction::{Isolation, TxState};

/// How often a commit leaves the barrier to load leaves that are not in memory. Memory may be too
/// small for all of them.
const FETCHES_OUTSIDE: u32 = 2;

/// The part of a commit that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Leaves are being loaded into memory.
    Prepare,
    /// All leaves are in memory and have room, and the places for the changes are reserved.
    Ready,
    /// The timestamp is taken; the reads are being validated.
    Validate,
    /// Changes are being made.
    Apply,
    /// All changes are made.
    Applied,
    /// The commit is visible to others, or has failed.
    Over,
}

/// The result of a commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Committed {
    pub(crate) timestamp: u64,
    /// Whether the last write met a record.
    pub(crate) found: bool,
}

/// The state of a commit.
pub(super) struct Progress {
    /// The time at which the commit was requested.
    begun: Instant,
    pub(super) core: TxState,
    pub(super) phase: Phase,
    pub(super) timestamp: u64,
    /// The position of each write, from its preparation.
    pub(super) cursor_hints: Vec<CursorHint>,
    /// Whether the reservation includes leaves that the writes will split.
    pub(super) is_cut: bool,
    /// The position in the write set, and the number of writes before it.
    pub(super) cursor: (usize, usize),
    pub(super) done: usize,
    pub(super) kept_bytes: u64,
    /// The leaves that were loaded again since the timestamp was taken.
    pub(super) fetching: Fetching,
    /// Whether the transaction's large values survive power loss.
    is_flushed: bool,
    /// Leaves that became sparse.
    pub(super) sparse: Sparse,
    /// Whether the write applied last met a record.
    pub(super) found: bool,
    /// The number of completed checkpoints when the commit first found no room for its pages, even
    /// without the pages kept for images.
    without_room: Option<u64>,
    /// Whether there was still no room after a checkpoint, which frees every unused page.
    is_hopeless: bool,
    /// The commit's place inside the barrier, from before the first change until after the last
    /// one. Dropping it releases the reservation.
    pub(super) inside: Option<BarrierGuard>,
    /// The timestamp up to which a serializable transaction's reads are validated.
    pub(super) validated: Option<u64>,
    /// The part of a commit whose writes are on the device; `None` if all writes are in memory.
    pub(super) spilled: Option<Box<SpilledCommit>>,
    /// Held so that no other commit of this worker comes between this one's timestamp and its
    /// record.
    pub(super) timestamping: Option<AsyncMutexGuard>,
}

impl Progress {
    /// Inlined, so that the state is built where it stays.
    #[inline(always)]
    pub(super) fn new(mut core: TxState) -> Self {
        core.info.committing.store(1, Ordering::Relaxed);
        Self {
            begun: Instant::now(),
            cursor_hints: {
                let mut cursor_hints = std::mem::take(&mut core.cursor_hints);
                cursor_hints.reserve(core.writes.len());
                cursor_hints
            },
            core,
            phase: Phase::Prepare,
            timestamp: 0,
            is_cut: false,
            cursor: (0, 0),
            done: 0,
            kept_bytes: 0,
            fetching: Fetching::default(),
            is_flushed: false,
            sparse: Sparse::default(),
            found: false,
            without_room: None,
            is_hopeless: false,
            inside: None,
            validated: None,
            spilled: None,
            timestamping: None,
        }
    }

    /// Whether the timestamp is taken, and the commit has not ended.
    pub(super) fn must_end(&self) -> bool {
        matches!(self.phase, Phase::Validate | Phase::Apply | Phase::Applied)
    }

    /// Continues the commit from its present phase to its end.
    pub(super) async fn complete(&mut self) -> Result<Committed> {
        let tx = self.core.tx.clone();
        let outcome = guarded_future(&tx.shared, self.phases(&tx)).await;
        if outcome.is_err() {
            // Either nothing was changed, or the store is read-only: the commit ends here.
            self.phase = Phase::Over;
        }
        self.inside = None;
        self.timestamping = None;
        outcome?;
        if self.core.durability != Durability::Async {
            wait_durable(&tx.shared, self.timestamp).await?;
            tx.shared.counters.of(self.core.slot).count_durable(self.begun.elapsed());
        }
        Ok(self.committed())
    }

    /// Commits on a caller's thread, as far as possible without waiting; returns `None` if the
    /// commit must continue on a worker.
    pub(super) fn inline(&mut self) -> Result<Option<Committed>> {
        let tx = self.core.tx.clone();
        let is_over = guarded(&tx.shared, || self.phases_now(&tx))?;
        Ok(is_over.then(|| self.committed()))
    }

    fn committed(&self) -> Committed {
        Committed { timestamp: self.timestamp, found: self.found }
    }

    async fn phases(&mut self, tx: &Arc<Tx>) -> Result<()> {
        let shared = &tx.shared;
        if self.phase == Phase::Prepare {
            // The check comes once, and not before each attempt: an attempt that finds no space
            // causes checkpoints.
            check_here(shared)?;
            Worker::let_log_pass(shared).await?;
            if self.core.has_spilled() {
                tx.incarnation.note_commit_parts()?;
                Box::pin(self.core.spill_rest()).await?;
            }
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
        loop {
            let stop = current(|worker| self.end_now(tx, Some(worker)));
            match stop.unwrap_or_else(|| self.end_now(tx, None)) {
                Stop::Over => return Ok(()),
                Stop::Window => {
                    if let Err(error) = self.begin_part(tx).await {
                        return Err(self.fail(shared, error));
                    }
                }
                Stop::Earlier => shared.oracle.wait_applied(self.timestamp).await?,
                stop => {
                    if stop == Stop::Away {
                        self.fetching.go_on(shared, &self.core, (self.cursor, self.done)).await;
                    }
                    if let Err(error) = self.apply_one(tx).await
                        && !shared.waits_on(&error, &mut stall_timeout)
                    {
                        return Err(self.fail(shared, error));
                    }
                }
            }
        }
    }

    /// Does everything up to taking the timestamp; it may still fail.
    async fn begin(&mut self, tx: &Arc<Tx>) -> Result<()> {
        let shared = &tx.shared;
        // A worker of another store may have the same number.
        check_here(shared)?;
        let is_serializable = self.core.isolation == Isolation::Serializable;
        let record_is_later = self.record_is_later();
        if is_serializable && self.validated.is_none() {
            self.validate_before(tx).await?;
        }
        if !self.core.large.is_empty()
            && shared.wal.options.enabled
            && !self.is_flushed
            && !shared.planted.is(Canary::LargeBeforeFlush)
        {
            // The record refers to the pages of large values, so those pages must be durable first.
            flush(shared).await?;
            self.is_flushed = true;
        }
        // Of writes on the device, only those of the window are known.
        let mut outside = if self.core.has_spilled() { 0 } else { FETCHES_OUTSIDE };
        let (mut preparing, mut fetching) = self.enter(tx).await?;
        loop {
            let stop = current(|worker| self.begin_now(tx, &mut preparing, Some(worker)));
            let Some(stop) = stop else { return check_here(shared) };
            match stop? {
                Stop::Over => return Ok(()),
                Stop::Order => {
                    let number = current(|worker| worker.number).unwrap_or(0);
                    let entered = shared.wal.timestamping[number].enter().await;
                    self.timestamping = record_is_later.then_some(entered);
                    continue;
                }
                Stop::Away => {
                    let from = (preparing.cursor(), self.cursor_hints.len());
                    if outside > 0 {
                        // If the commit stayed inside, a checkpoint and every commit after it would
                        // wait for these reads.
                        (self.inside, outside) = (None, outside - 1);
                        fetch_outside(shared, &self.core, from).await;
                        (preparing, fetching) = self.enter(tx).await?;
                        continue;
                    }
                    let loaded = async {
                        fetching.go_on(shared, &self.core, from).await;
                        Ok(())
                    };
                    unless_in_the_way(shared, loaded).await?;
                }
                Stop::Window => {
                    unless_in_the_way(shared, self.next_window(shared, None)).await?;
                    preparing.begin_window();
                    fetching = Fetching::default();
                    continue;
                }
                Stop::Turn | Stop::Earlier => {}
            }
            unless_in_the_way(shared, self.prepare_one(shared, &mut preparing)).await?;
        }
    }

    /// Enters the barrier, unless the commit is inside already, to prepare the writes.
    async fn enter(&mut self, tx: &Arc<Tx>) -> Result<(Preparing, Fetching)> {
        if self.inside.is_none() {
            tx.let_history_pass(self.core.slot).await;
            self.inside = Some(tx.incarnation.begin_commit().await?);
        }
        // No commit prepares leaves of a tree that is being emptied.
        self.core.check_tables()?;
        self.phase = Phase::Prepare;
        self.cursor_hints.clear();
        self.begin_windows();
        Ok(Default::default())
    }

    /// Like [`Progress::phases`], as far as possible without waiting; returns `false` if the commit
    /// is not at its end.
    fn phases_now(&mut self, tx: &Arc<Tx>) -> Result<bool> {
        let shared = &tx.shared;
        if self.core.isolation == Isolation::Serializable
            || shared.wal.options.enabled
            || !shared.wal.has_begun()
            || tx.is_history_behind(self.core.slot)
            || self.core.has_spilled()
        {
            return Ok(false);
        }
        match shared.checkpointing.barrier.try_enter() {
            Some(entered) => self.inside = Some(entered?),
            None => return Ok(false),
        }
        if shared.lifecycle.has_ended() || shared.lifecycle.panicked().is_some() {
            return Ok(false);
        }
        match self.begin_now(tx, &mut Preparing::default(), None) {
            Ok(Stop::Over) => Ok(self.end_now(tx, None) == Stop::Over),
            // A worker tries again.
            Err(error) if self.phase > Phase::Prepare => Err(error),
            _ => Ok(false),
        }
    }

    /// Prepares the writes inside the barrier and takes the timestamp, as far as possible without
    /// waiting.
    fn begin_now(
        &mut self,
        tx: &Tx,
        preparing: &mut Preparing,
        worker: Option<&Worker>,
    ) -> Result<Stop> {
        let shared = &*tx.shared;
        if self.phase == Phase::Prepare {
            let context = Context { shared, worker, interleave: false };
            let stop = preparing.go_on(&self.core, &mut self.cursor_hints, context);
            if stop != Stop::Over {
                return Ok(stop);
            }
            if self.has_windows() {
                return Ok(Stop::Window);
            }
            self.reserve(shared, preparing.reservation())?;
            self.phase = Phase::Ready;
        }
        if let Some(worker) = worker
            && self.timestamping.is_none()
            && (self.record_is_later() || shared.wal.timestamping[worker.number].is_held())
        {
            return Ok(Stop::Order);
        }
        self.take_timestamp()?;
        Ok(Stop::Over)
    }

    /// Makes the changes and ends the commit, as far as possible without waiting.
    fn end_now(&mut self, tx: &Tx, worker: Option<&Worker>) -> Stop {
        let shared = &*tx.shared;
        if self.phase == Phase::Apply {
            let stop = self.apply_now(tx, Context { shared, worker, interleave: false });
            if stop != Stop::Over {
                return stop;
            }
        }
        if self.phase == Phase::Applied {
            // A checkpoint waits for commits that change pages, and not for commits that wait for
            // others.
            self.inside = None;
            if shared.oracle.applied() < self.timestamp {
                return Stop::Earlier;
            }
            self.finish(tx);
        }
        Stop::Over
    }

    /// Prepares the next write, and waits for the pages that it needs.
    async fn prepare_one(&mut self, shared: &Shared, preparing: &mut Preparing) -> Result<()> {
        let mut was_split = false;
        while let Some((item, prepare)) = preparing.next(&self.core, was_split) {
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
        Ok(())
    }

    /// Reserves places for the pages that the commit may need new places for.
    fn reserve(&mut self, shared: &Shared, reserved: Reservation) -> Result<()> {
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
        Ok(())
    }

    /// Takes the timestamp. Appends the record, unless reads must be validated first.
    fn take_timestamp(&mut self) -> Result<()> {
        let core = &self.core;
        let shared = core.shared();
        shared.lifecycle.check_writable()?;
        let clock = &shared.oracle;
        if core.isolation == Isolation::Serializable {
            expect(core)?;
            self.timestamp = clock.begin_commit().inspect_err(|_| {
                // The commit will never come, and a close would wait for it.
                current(|worker| worker.expect_no_commit());
            })?;
            self.phase = Phase::Validate;
            return Ok(());
        }
        // A commit with a later timestamp than the drop of a table sees that the table was dropped.
        let (given_up, mut there) = (Cell::new(false), Ok(()));
        if core.has_spilled() {
            expect(core)?;
        }
        let mut begin = || {
            let timestamp = clock.begin_commit()?;
            there = core.check_tables();
            given_up.set(there.is_err());
            Ok(timestamp)
        };
        self.timestamp = match shared.wal.options.enabled && !core.has_spilled() {
            true => append(core, begin, &given_up)?,
            false => begin().inspect_err(|_| {
                current(|worker| worker.expect_no_commit());
            })?,
        };
        if let Err(error) = there {
            if core.has_spilled() {
                append(core, || Ok(self.timestamp), &Cell::new(true))?;
            }
            clock.end_commit(self.timestamp);
            self.phase = Phase::Over;
            return Err(error);
        }
        self.phase = Phase::Apply;
        self.begin_windows();
        Ok(())
    }
}

/// Waits for what a commit without a timestamp needs inside the barrier. Ends with an error once
/// that is in the way of a checkpoint: only the checkpoint gives the pages in memory places to go
/// to, and it waits until the commit is outside.
async fn unless_in_the_way(shared: &Shared, wait: impl Future<Output = Result<()>>) -> Result<()> {
    let (mut wait, mut ticket) = (pin!(wait), Ticket::default());
    poll_fn(|context| {
        let outcome = wait.as_mut().poll(context);
        if outcome.is_pending()
            && shared.checkpointing.barrier.is_awaited(&mut ticket, context.waker())
            && shared.space.is_squeezed()
        {
            return Poll::Ready(Err(no_place()));
        }
        outcome
    })
    .await
}
