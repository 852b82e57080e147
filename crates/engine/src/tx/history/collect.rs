//! Dropping older values that no snapshot needs, a few with each commit and in each turn of a
//! worker.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use qpair_format::large::Descriptor;

use crate::shared::Shared;
use crate::task::{Worker, current, yield_now};
use crate::tx::versions::RowRef;
use crate::tx::{Tx, slot_here};

/// A commit whose before-images are kept.
#[derive(Debug)]
pub(super) struct Old {
    pub(super) timestamp: u64,
    pub(super) rows: Vec<RowRef>,
    pub(super) bytes: u64,
}

/// The number of runs whose size together is the limit on older values in memory; determines the
/// size of a run.
const RUNS_IN_MEMORY: u64 = 16;

/// The number of lists of rows that a queue keeps for reuse, and the capacity of the largest of
/// them.
const SPARE: usize = 64;
const SPARE_ROWS_MAX: usize = 1024;

/// The commits of one worker, in the order in which they ended.
#[derive(Default)]
pub(in crate::tx) struct Queue {
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

impl Tx {
    /// Queues a commit whose before-images will have to be dropped; leaves an empty list in place
    /// of its rows.
    pub(in crate::tx) fn enqueue_old(
        &self,
        slot: usize,
        timestamp: u64,
        bytes: u64,
        rows: &mut Vec<RowRef>,
    ) {
        self.slots[slot].bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut queue = self.slots[slot].queue.lock();
        let fresh = queue.spare.pop().unwrap_or_default();
        let rows = std::mem::replace(rows, fresh);
        queue.commits.push_back(Old { timestamp, rows, bytes });
    }

    /// Returns the memory that older values take, in bytes.
    pub(crate) fn versions_bytes(&self) -> u64 {
        self.images_bytes() + self.history.memory_bytes()
    }

    /// Returns the memory that older values in the row table take, in bytes.
    fn images_bytes(&self) -> u64 {
        self.slots.iter().map(|slot| slot.bytes.load(Ordering::Relaxed)).sum()
    }

    /// Returns the device space that older values take, as large values and in runs, in bytes.
    pub(crate) fn old_device_bytes(&self) -> u64 {
        self.old_large_bytes.load(Ordering::Relaxed) + self.history.device_bytes()
    }

    /// The limit on device space for old versions. Without history on the device only large values
    /// are kept there; they share the limit of the versions in memory.
    fn old_device_bytes_max(&self) -> u64 {
        match self.history.bytes_max() {
            0 => self.versions_bytes_max,
            bytes_max => bytes_max,
        }
    }

    /// Whether there is room for a run of this size.
    pub(super) fn has_room_for_run(&self, bytes: u64) -> bool {
        self.old_device_bytes() + bytes <= self.history.bytes_max()
    }

    /// Notes that a before-image refers to the pages of a large value that a commit replaces.
    pub(crate) fn note_large(&self, descriptor: &[u8], timestamp: u64) {
        self.old_large_bytes.fetch_add(large_bytes(&self.shared, descriptor), Ordering::Relaxed);
        self.old_large_newest.fetch_max(timestamp, Ordering::Relaxed);
    }

    /// Returns the timestamps of the snapshots in use, in order.
    pub(super) fn snapshots_in_use(&self) -> Vec<u64> {
        let from = self.lost_below.load(Ordering::Acquire);
        let mut timestamps = Vec::new();
        for slot in &self.slots {
            timestamps.extend(slot.open.lock().snapshots.timestamps(from));
        }
        timestamps.sort_unstable();
        timestamps
    }

    /// Whether the oldest images of a slot should move to the device: images take more than half of
    /// the memory for them, and the oldest ones of this slot are settled.
    pub(super) fn wants_spill(&self, slot: usize) -> bool {
        self.due_spill(slot).is_some_and(|timestamp| timestamp <= self.settled())
    }

    /// Returns the oldest commit of a slot whose images should move to the device once it is
    /// settled.
    fn due_spill(&self, slot: usize) -> Option<u64> {
        let room = self.versions_bytes_max.saturating_sub(self.history.memory_bytes());
        // The slot's own counter is read first: if all images take more than half, some slot takes
        // more than its share.
        let own = self.slots[slot].bytes.load(Ordering::Relaxed);
        if own * self.slots.len() as u64 <= room / 2 || self.images_bytes() <= room / 2 {
            return None;
        }
        let oldest = self.look_for_oldest();
        let front = self.slots[slot].queue.lock().commits.front().map(|front| front.timestamp);
        front.filter(|timestamp| *timestamp > oldest && self.history.is_open(oldest))
    }

    /// Returns the oldest commit of a slot whose images are kept, if it is not durable yet.
    fn not_durable(&self, slot: usize) -> Option<u64> {
        let front = self.slots[slot].queue.lock().commits.front().map(|front| front.timestamp);
        front.filter(|timestamp| {
            self.shared.wal.options.enabled && *timestamp > self.shared.wal.durable.horizon()
        })
    }

    /// Returns the timestamp up to which all commits are durable and visible to new snapshots.
    fn settled(&self) -> u64 {
        self.shared.oracle.applied().min(self.shared.wal.durable.horizon())
    }

    /// Takes the oldest settled commits of a slot out of its queue, as many as make a run.
    pub(super) fn take_oldest(&self, slot: usize) -> Vec<Old> {
        let upto = self.settled();
        let mut queue = self.slots[slot].queue.lock();
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

    /// Puts commits back at the front of the queue.
    pub(super) fn put_oldest_back(&self, slot: usize, olds: Vec<Old>) {
        let mut queue = self.slots[slot].queue.lock();
        olds.into_iter().rev().for_each(|old| queue.commits.push_front(old));
    }

    /// Updates the slot after the images of these commits were removed from the row table.
    pub(super) fn forget_oldest(&self, slot: usize, olds: Vec<Old>) {
        let mut queue = self.slots[slot].queue.lock();
        for old in olds {
            self.slots[slot].bytes.fetch_sub(old.bytes, Ordering::Relaxed);
            queue.give(old.rows);
        }
    }

    /// Whether older values are being moved to the device, or from run to run.
    pub(crate) fn is_writing_history(&self) -> bool {
        self.history.is_merging()
            || self.slots.iter().any(|slot| slot.spills.load(Ordering::Acquire))
    }

    /// Whether older values take more than three quarters of the memory for them, and the slot more
    /// than its share of that. The rest is for commits under way.
    pub(in crate::tx) fn is_history_behind(&self, slot: usize) -> bool {
        let most = self.versions_bytes_max / 4 * 3;
        // The slot's own counter is read first, since every commit asks.
        self.slots[slot].bytes.load(Ordering::Relaxed) > most / self.slots.len() as u64
            && self.versions_bytes() > most
    }

    /// Waits, on a worker, until a slot's oldest images are on the device if all images take too
    /// much memory. Otherwise commits that are faster than the device would cost a snapshot that
    /// has room there. The commit has no timestamp yet, and has changed nothing.
    pub(in crate::tx) async fn let_history_pass(self: &Arc<Self>, slot: usize) {
        // Wait only as long as the spill can continue.
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
                    // No snapshot needs these images: they stay until their commits are durable.
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
            // This worker drops the images in its turn.
            yield_now().await;
        }
    }

    /// Waits until a task has moved older values to the device, or from run to run, unless
    /// `is_over`.
    pub(crate) async fn wait_moved(&self, is_over: impl Fn() -> bool) {
        self.moved.woken(is_over).await;
    }

    /// Gives up all snapshots that need older values on the device; returns whether that frees
    /// pages, now or with the next checkpoint.
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
        // Only images of applied commits count: later snapshots do not need these.
        self.lost_below.fetch_max(newest.min(self.shared.oracle.applied()), Ordering::AcqRel);
        let (oldest, settled) = (self.look_for_oldest(), self.settled());
        self.history.forget(oldest);
        for slot in 0..self.slots.len() {
            let mut budget = usize::MAX;
            self.forget_upto(slot, oldest.min(settled), &mut budget);
        }
        runs.is_some() || self.old_device_bytes() < before
    }

    /// Finds the oldest snapshot in use.
    fn look_for_oldest(&self) -> u64 {
        let from = self.lost_below.load(Ordering::Acquire);
        // The bound is read first, then the slots: see `snapshots`.
        let mut oldest = self.shared.oracle.applied();
        for slot in &self.slots {
            if let Some(timestamp) = slot.open.lock().snapshots.oldest(from) {
                oldest = oldest.min(timestamp);
            }
        }
        self.oldest.fetch_max(oldest, Ordering::AcqRel).max(oldest)
    }

    /// Returns the number of commits since the oldest snapshot in use was taken.
    pub(crate) fn oldest_snapshot_age(&self) -> u64 {
        let applied = self.shared.oracle.applied();
        applied.saturating_sub(self.look_for_oldest())
    }

    /// Gives up the oldest snapshot, so that its older values can be dropped; returns `false` if no
    /// snapshot keeps any.
    fn give_up_oldest(&self) -> bool {
        let oldest = self.look_for_oldest();
        if oldest >= self.shared.oracle.applied() {
            return false;
        }
        self.lost_below.fetch_max(oldest + 1, Ordering::AcqRel);
        true
    }

    /// Whether older values take so much memory, or device space, that a snapshot must be given up.
    /// While the device still takes values, the limit on memory is an eighth higher.
    fn is_too_much(&self, oldest: u64) -> bool {
        let more = if self.history.is_open(oldest) { self.versions_bytes_max / 8 } else { 0 };
        self.versions_bytes() > self.versions_bytes_max.saturating_add(more)
            || self.old_device_bytes() > self.old_device_bytes_max()
    }

    /// Drops the before-images of a slot's commits, for up to `budget` rows; returns whether there
    /// were any.
    pub(in crate::tx) fn collect_slot(&self, slot: usize, mut budget: usize) -> bool {
        if self.slots[slot].bytes.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // The pages of large values must not be reused before the commit that replaced them is
        // durable.
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
                // Before a snapshot is given up, all values that no snapshot needs are dropped, in
                // all slots.
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
                // There may now be room on the device for values that other snapshots need.
                self.history.forget(oldest);
            }
            looked = true;
        }
        done
    }

    /// Drops the before-images of a slot's commits up to `upto`, for up to `budget` rows. Returns
    /// whether there were any, and the timestamp of the next commit unless the budget is used up.
    fn forget_upto(&self, slot: usize, upto: u64, budget: &mut usize) -> (bool, Option<u64>) {
        let state = &self.slots[slot];
        let (mut large, mut done, mut next) = (Vec::new(), false, None);
        let mut used: Option<Vec<RowRef>> = None;
        while *budget > 0 {
            let mut queue = state.queue.lock();
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
            state.queue.lock().give(rows);
        }
        self.give_large_back(large);
        (done, next)
    }

    /// Frees the pages of large values that had a before-image, when no reader needs them any more
    /// and their replacement is durable.
    pub(crate) fn give_large_back(&self, large: Vec<Box<[u8]>>) {
        let bytes = large.iter().map(|descriptor| large_bytes(&self.shared, descriptor)).sum();
        self.old_large_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.shared.free_large_once_durable(large);
    }

    /// Drops all before-images when no commit is under way. Snapshots are lost.
    pub(in crate::tx) fn drop_images(&self) {
        self.lost_below.store(u64::MAX, Ordering::Release);
        self.history.forget(u64::MAX);
        let mut large = Vec::new();
        for slot in &self.slots {
            for old in std::mem::take(&mut slot.queue.lock().commits) {
                old.rows.iter().for_each(|row| self.rows.collect(*row, u64::MAX, &mut large));
                slot.bytes.fetch_sub(old.bytes, Ordering::Relaxed);
            }
        }
        // If the log is not flushed, the pages are held until the last checkpoint is durable, whose
        // image does not have them.
        if !self.shared.wal.options.is_unflushed() {
            large.iter().for_each(|descriptor| self.shared.free_large(descriptor));
        }
    }
}

/// Returns the device space of a large value, in bytes.
fn large_bytes(shared: &Shared, descriptor: &[u8]) -> u64 {
    let pages = Descriptor::decode(descriptor, shared.page_bytes).map_or(0, |value| value.pages);
    u64::from(pages) * shared.page_size as u64
}

/// Does a worker's share of dropping older values in its turn, for up to `budget` rows. Returns the
/// slot whose oldest images should move to the device, if there is one: the caller must start
/// [`spill`].
pub(crate) fn collect(tx: &Tx, budget: usize) -> Option<usize> {
    let shared = &tx.shared;
    let slot = slot_here(shared);
    // The first worker also drops the images of commits of other threads.
    let others = (slot == 0).then_some(shared.worker_handles.len());
    // This runs in each turn of each worker, so it checks its own slot only.
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
    /// Whether the caller should start a spill of a slot.
    fn begin_spill(&self, slot: usize) -> bool {
        self.wants_spill(slot) && !self.slots[slot].spills.swap(true, Ordering::AcqRel)
    }
}

/// Moves the oldest images of a slot to the device, as a task of the worker that found it due.
pub(crate) async fn spill(tx: Arc<Tx>, slot: usize) {
    super::spill::spill(&tx, slot).await;
    tx.slots[slot].spills.store(false, Ordering::Release);
    tx.moved.wake_all();
}
