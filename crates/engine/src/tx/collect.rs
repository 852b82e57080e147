//! Forgetting older values that no snapshot needs, a few with each commit and in each turn of a worker.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use qpair_format::large::Descriptor;

use super::rows::RowRef;
use super::{Slot, Tx, history};
use crate::shared::Shared;
use crate::task::{Worker, current, yield_now};

/// A commit whose before-images are kept.
#[derive(Debug)]
pub(in crate::tx) struct Old {
    pub(super) timestamp: u64,
    pub(super) rows: Vec<RowRef>,
    pub(super) bytes: u64,
}

/// Runs that would hold as many older values as memory may: so large each of them is.
const RUNS_IN_MEMORY: u64 = 16;

/// Lists of rows that a queue keeps to be used again, and the longest of them.
const SPARE: usize = 64;
const SPARE_ROWS_MAX: usize = 1024;

/// Commits of one worker, in the order of their ends.
#[derive(Default)]
pub(super) struct Queue {
    commits: VecDeque<Old>,
    spare: Vec<Vec<RowRef>>,
}

impl Queue {
    /// Takes a list back.
    fn give(&mut self, mut rows: Vec<RowRef>) {
        if self.spare.len() < SPARE && rows.capacity() <= SPARE_ROWS_MAX {
            rows.clear();
            self.spare.push(rows);
        }
    }
}

impl Slot {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tx {
    /// Enters a commit whose before-images will have to be forgotten; an empty list is left in place of its rows.
    pub(super) fn enqueue_old(
        &self,
        slot: usize,
        timestamp: u64,
        bytes: u64,
        rows: &mut Vec<RowRef>,
    ) {
        self.slots[slot].bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut queue = self.slots[slot].queue();
        let fresh = queue.spare.pop().unwrap_or_default();
        let rows = std::mem::replace(rows, fresh);
        queue.commits.push_back(Old { timestamp, rows, bytes });
    }

    /// Bytes of memory that older values have.
    pub(crate) fn versions_bytes(&self) -> u64 {
        self.images_bytes() + self.history.memory_bytes()
    }

    /// Those of the row table.
    fn images_bytes(&self) -> u64 {
        self.slots.iter().map(|slot| slot.bytes.load(Ordering::Relaxed)).sum()
    }

    /// Bytes of the device that older values have: on pages of their own, and in runs.
    pub(crate) fn old_device_bytes(&self) -> u64 {
        self.old_large_bytes.load(Ordering::Relaxed) + self.history.device_bytes()
    }

    /// What they may have of it. Where none go to the device, large ones are there all the same, and have what the others may have of memory.
    fn old_device_bytes_max(&self) -> u64 {
        match self.history.bytes_max() {
            0 => self.versions_bytes_max,
            bytes_max => bytes_max,
        }
    }

    /// Whether a run of so many bytes may be written.
    pub(super) fn has_room_for_run(&self, bytes: u64) -> bool {
        self.old_device_bytes() + bytes <= self.history.bytes_max()
    }

    /// An image refers to the pages of a large value from now on that a commit replaces.
    pub(crate) fn note_large(&self, descriptor: &[u8], timestamp: u64) {
        self.old_large_bytes.fetch_add(large_bytes(&self.shared, descriptor), Ordering::Relaxed);
        self.old_large_newest.fetch_max(timestamp, Ordering::Relaxed);
    }

    /// The timestamps of the snapshots in use, in order.
    pub(super) fn snapshots_in_use(&self) -> Vec<u64> {
        let from = self.lost_below.load(Ordering::Acquire);
        let mut timestamps = Vec::new();
        for slot in &self.slots {
            timestamps.extend(slot.open().snapshots.timestamps(from));
        }
        timestamps.sort_unstable();
        timestamps
    }

    /// Whether the oldest images of a slot should go to the device: they have half of the memory for them, and a snapshot keeps them.
    pub(super) fn wants_spill(&self, slot: usize) -> bool {
        self.due_spill(slot).is_some_and(|timestamp| timestamp <= self.settled())
    }

    /// The oldest commit of a slot whose images should go to the device, which they may once it is settled.
    fn due_spill(&self, slot: usize) -> Option<u64> {
        let room = self.versions_bytes_max.saturating_sub(self.history.memory_bytes());
        // Its own line first: if all have more than half, one has more than its share.
        let own = self.slots[slot].bytes.load(Ordering::Relaxed);
        if own * self.slots.len() as u64 <= room / 2 || self.images_bytes() <= room / 2 {
            return None;
        }
        let oldest = self.look_for_oldest();
        let front = self.slots[slot].queue().commits.front().map(|front| front.timestamp);
        front.filter(|timestamp| *timestamp > oldest && self.history.is_open(oldest))
    }

    /// The oldest commit of a slot whose images are kept, if it does not survive a crash yet.
    fn not_durable(&self, slot: usize) -> Option<u64> {
        let front = self.slots[slot].queue().commits.front().map(|front| front.timestamp);
        front.filter(|timestamp| {
            self.shared.wal.options.enabled && *timestamp > self.shared.wal.durable.horizon()
        })
    }

    /// A snapshot taken now sees all commits up to this one, and these survive a crash.
    fn settled(&self) -> u64 {
        self.shared.oracle.applied().min(self.shared.wal.durable.horizon())
    }

    /// Takes the oldest commits of a slot out of its queue whose images may go to the device, as many as make a run.
    pub(super) fn take_oldest(&self, slot: usize) -> Vec<Old> {
        let upto = self.settled();
        let mut queue = self.slots[slot].queue();
        let (mut olds, mut bytes) = (Vec::new(), 0);
        while bytes <= self.versions_bytes_max / RUNS_IN_MEMORY
            && queue.commits.front().is_some_and(|front| front.timestamp <= upto)
        {
            let old = queue.commits.pop_front();
            bytes += old.as_ref().map_or(0, |old| old.bytes);
            olds.extend(old);
        }
        olds
    }

    /// Puts them back.
    pub(super) fn put_oldest_back(&self, slot: usize, olds: Vec<Old>) {
        let mut queue = self.slots[slot].queue();
        olds.into_iter().rev().for_each(|old| queue.commits.push_front(old));
    }

    /// Their images are gone from the row table.
    pub(super) fn forget_oldest(&self, slot: usize, olds: Vec<Old>) {
        let mut queue = self.slots[slot].queue();
        for old in olds {
            self.slots[slot].bytes.fetch_sub(old.bytes, Ordering::Relaxed);
            queue.give(old.rows);
        }
    }

    /// Whether older values are on their way to the device, or from run to run.
    pub(crate) fn is_writing_history(&self) -> bool {
        self.history.is_merging()
            || self.slots.iter().any(|slot| slot.spills.load(Ordering::Acquire))
    }

    /// Whether older values have three quarters of the memory for them, and a slot its share of that: the rest is for commits under way.
    pub(super) fn is_history_behind(&self, slot: usize) -> bool {
        let most = self.versions_bytes_max / 4 * 3;
        // Its own line first: all commits ask.
        self.slots[slot].bytes.load(Ordering::Relaxed) > most / self.slots.len() as u64
            && self.versions_bytes() > most
    }

    /// Waits, on a worker, until a slot's oldest images are on the device if all images use too much memory: a commit that makes them faster
    /// than the device takes them would cost a snapshot that has room there. The commit has no timestamp yet, and has changed nothing.
    pub(super) async fn let_history_pass(self: &Arc<Self>, slot: usize) {
        // As long as a spill goes on.
        let is_open =
            || self.shared.lifecycle.failure().is_none() && !self.shared.oracle.is_closed();
        let spills = || self.slots[slot].spills.load(Ordering::Acquire);
        while self.is_history_behind(slot) && is_open() {
            if spills() {
                self.wait_moved(|| !spills() || !is_open()).await;
                continue;
            }
            let there = match self.due_spill(slot) {
                None => match self.not_durable(slot) {
                    // They are there for no snapshot, but until their commits survive a crash.
                    Some(timestamp) => Worker::wait_durable(timestamp).await,
                    None => return,
                },
                Some(timestamp)
                    if self.shared.wal.options.enabled
                        && timestamp > self.shared.wal.durable.horizon() =>
                {
                    Worker::wait_durable(timestamp).await
                }
                Some(_) if self.begin_spill(slot) => {
                    current(|worker| worker.spawn_own(spill(self.clone(), slot)));
                    continue;
                }
                Some(timestamp) => self.shared.oracle.wait_applied(timestamp).await,
            };
            if there.is_err() {
                return;
            }
            // They are forgotten in this worker's turn.
            yield_now().await;
        }
    }

    /// Waits until a task has taken older values to the device, or from run to run; not if `is_over`.
    pub(crate) async fn wait_moved(&self, is_over: impl Fn() -> bool) {
        self.moved.woken(is_over).await;
    }

    /// Gives up all snapshots that need older values on the device; whether that frees pages, now or with the next checkpoint.
    pub(crate) fn give_history_up(&self) -> bool {
        let (before, runs) = (self.old_device_bytes(), self.history.newest());
        let newest_large = match self.old_large_bytes.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.old_large_newest.load(Ordering::Relaxed),
        };
        let newest = runs.unwrap_or(0).max(newest_large);
        if newest == 0 {
            return false;
        }
        // Images of applied commits count: no snapshot is taken below those commits any more.
        self.lost_below.fetch_max(newest.min(self.shared.oracle.applied()), Ordering::AcqRel);
        let (oldest, settled) = (self.look_for_oldest(), self.settled());
        self.history.forget(oldest);
        for slot in 0..self.slots.len() {
            let mut budget = usize::MAX;
            self.forget_upto(slot, oldest.min(settled), &mut budget);
        }
        runs.is_some() || self.old_device_bytes() < before
    }

    /// Looks for the oldest snapshot in use.
    fn look_for_oldest(&self) -> u64 {
        let from = self.lost_below.load(Ordering::Acquire);
        // First the bound, then the slots: see `snapshots`.
        let mut oldest = self.shared.oracle.applied();
        for slot in &self.slots {
            if let Some(timestamp) = slot.open().snapshots.oldest(from) {
                oldest = oldest.min(timestamp);
            }
        }
        self.oldest.fetch_max(oldest, Ordering::AcqRel).max(oldest)
    }

    /// Commits since the oldest snapshot in use was taken.
    pub(crate) fn oldest_snapshot_age(&self) -> u64 {
        let applied = self.shared.oracle.applied();
        applied.saturating_sub(self.look_for_oldest())
    }

    /// Gives the oldest snapshot up, so that what it keeps can go; `false` if no snapshot keeps anything.
    fn give_up_oldest(&self) -> bool {
        let oldest = self.look_for_oldest();
        if oldest >= self.shared.oracle.applied() {
            return false;
        }
        self.lost_below.fetch_max(oldest + 1, Ordering::AcqRel);
        true
    }

    /// Whether older values have so much of memory, or of the device, that a snapshot must go. What the device still takes is on its way
    /// there: it is given an eighth more meanwhile.
    fn is_too_much(&self, oldest: u64) -> bool {
        let more = if self.history.is_open(oldest) { self.versions_bytes_max / 8 } else { 0 };
        self.versions_bytes() > self.versions_bytes_max.saturating_add(more)
            || self.old_device_bytes() > self.old_device_bytes_max()
    }

    /// Forgets what the commits of a slot replaced, for up to `budget` rows; whether it did anything.
    pub(super) fn collect_slot(&self, slot: usize, mut budget: usize) -> bool {
        if self.slots[slot].bytes.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // The pages of large values must not be used again before the commit that replaced them survives a crash.
        let durable = self.settled();
        let mut oldest = self.oldest.load(Ordering::Acquire);
        let (mut looked, mut done) = (false, false);
        loop {
            let (forgot, next) = self.forget_upto(slot, oldest.min(durable), &mut budget);
            done |= forgot;
            if next.is_none_or(|next| next > durable) {
                break;
            }
            if looked {
                if !self.is_too_much(oldest) {
                    break;
                }
                // Before a snapshot is given up, everything goes that no snapshot needs, whichever slot has it.
                let upto = oldest.min(durable);
                let mut all = 0..self.slots.len();
                if all.any(|other| self.forget_upto(other, upto, &mut budget).0) {
                    done = true;
                    continue;
                }
                if !self.give_up_oldest() {
                    break;
                }
            }
            oldest = self.look_for_oldest();
            if looked {
                // On the device there may be room now for what the others need.
                self.history.forget(oldest);
            }
            looked = true;
        }
        done
    }

    /// Forgets what the commits of a slot up to this one replaced, for up to `budget` rows; whether there were any, and the timestamp of the
    /// next one unless the budget is used up.
    fn forget_upto(&self, slot: usize, upto: u64, budget: &mut usize) -> (bool, Option<u64>) {
        let state = &self.slots[slot];
        let (mut large, mut done, mut next) = (Vec::new(), false, None);
        let mut used: Option<Vec<RowRef>> = None;
        while *budget > 0 {
            let mut queue = state.queue();
            used.take().into_iter().for_each(|rows| queue.give(rows));
            next = queue.commits.front().map(|front| front.timestamp).filter(|next| *next > upto);
            if next.is_some() {
                break;
            }
            let Some(old) = queue.commits.pop_front() else { break };
            drop(queue);
            for row in &old.rows {
                self.rows.collect(*row, upto, &mut large);
            }
            state.bytes.fetch_sub(old.bytes, Ordering::Relaxed);
            *budget = budget.saturating_sub(old.rows.len());
            used = Some(old.rows);
            done = true;
        }
        if let Some(rows) = used {
            state.queue().give(rows);
        }
        self.give_large_back(large);
        (done, next)
    }

    /// Gives the pages of large values back of which there was an image, that no reader needs any more, and whose replacement is durable.
    pub(crate) fn give_large_back(&self, large: Vec<Box<[u8]>>) {
        let bytes = large.iter().map(|descriptor| large_bytes(&self.shared, descriptor)).sum();
        self.old_large_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.shared.free_large_once_durable(large);
    }

    /// Forgets everything, when the store is being closed and no commit is under way: snapshots are lost.
    pub(crate) fn collect_all(&self) {
        self.lost_below.store(u64::MAX, Ordering::Release);
        self.history.forget(u64::MAX);
        let mut large = Vec::new();
        for slot in &self.slots {
            for old in std::mem::take(&mut slot.queue().commits) {
                old.rows.iter().for_each(|row| self.rows.collect(*row, u64::MAX, &mut large));
                slot.bytes.fetch_sub(old.bytes, Ordering::Relaxed);
            }
        }
        // If the log was not flushed they are held until the last checkpoint counts, which has them in no image.
        if !self.shared.wal.options.is_unflushed() {
            large.iter().for_each(|descriptor| self.shared.free_large(descriptor));
        }
        self.large.free_all(&self.shared);
    }
}

/// Bytes of the device that a large value has.
fn large_bytes(shared: &Shared, descriptor: &[u8]) -> u64 {
    let pages = Descriptor::decode(descriptor, shared.page_size).map_or(0, |value| value.pages);
    u64::from(pages) * shared.page_size as u64
}

/// A worker's share of forgetting, for its turn: up to `budget` rows. The slot whose oldest images should go to the device, if there is
/// one: [`spill`] is to be started.
pub(crate) fn collect(tx: &Tx, budget: usize) -> Option<usize> {
    let shared = &tx.shared;
    let slot = super::slot_here(shared);
    // The first worker also forgets what other threads have committed.
    let others = (slot == 0).then_some(shared.worker_handles.len());
    // In each turn of each worker: of its own, not of all.
    let has = |slot: usize| tx.slots[slot].bytes.load(Ordering::Relaxed) > 0;
    if !has(slot) && !others.is_some_and(has) && tx.history.memory_bytes() == 0 {
        return None;
    }
    if tx.history.newest().is_some() {
        tx.history.forget(tx.look_for_oldest());
    }
    if tx.collect_slot(slot, budget) {
        return None;
    }
    if others.is_some_and(|slot| tx.collect_slot(slot, budget)) {
        return None;
    }
    [Some(slot), others].into_iter().flatten().find(|slot| tx.begin_spill(*slot))
}

impl Tx {
    /// Whether a spill of a slot is to be started, by the caller.
    fn begin_spill(&self, slot: usize) -> bool {
        self.wants_spill(slot) && !self.slots[slot].spills.swap(true, Ordering::AcqRel)
    }
}

/// Takes the oldest images of a slot to the device, as a task of the worker that found that it should be done.
pub(crate) async fn spill(tx: Arc<Tx>, slot: usize) {
    history::spill(&tx, slot).await;
    tx.slots[slot].spills.store(false, Ordering::Release);
    tx.moved.wake_all();
}
