//! The buffer pool: frames, their latches, and the choice of the page that leaves next. See
//! docs/design/buffer-pool.md.
//!
//! A page in memory is reached only through the swizzled reference in its parent, so a page whose
//! children are in memory stays. Replacement is a clock with two hands over all frames. The front
//! hand turns hot frames cooling; the back hand, half of the pool behind, takes those that no
//! thread has touched since. Touching a cooling page makes it hot again with one store; no list is
//! kept.

mod copies;
mod epochs;
mod evict;
mod root;
mod save;
mod stall_timeout;

pub(crate) use copies::Copies;
pub(crate) use epochs::{Checkpoints, Epoch};
pub(crate) use evict::Around;
pub(crate) use root::{Root, Tree};
pub(crate) use stall_timeout::StallTimeout;

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;

use qpair_block::Buffer;
use qpair_memory::locks::Mutex;
use qpair_memory::{ExclusiveFrame, FrameIndex, FrameTable};

use crate::sync::{Ticket, Waiters};

/// The replacement states of a frame, kept in its state byte.
pub(crate) mod state {
    /// The frame is on a free list.
    pub(crate) const FREE: u8 = 0;
    /// The frame has a page in use.
    pub(crate) const HOT: u8 = 1;
    /// The frame has a page that leaves unless it is touched soon.
    pub(crate) const COOLING: u8 = 2;
    /// The frame has a page that never leaves: a root.
    pub(crate) const PINNED: u8 = 3;
    /// The frame is memory for an I/O beside the trees.
    pub(crate) const SCRATCH: u8 = 4;
    /// The frame has a page that could not be read, or was invalid; it leaves at once.
    pub(crate) const BROKEN: u8 = 5;
}

/// The number of lists of waiters; frames are distributed over them.
const WAITER_PARTITIONS: usize = 64;

pub(crate) fn frames_min(workers: usize) -> u64 {
    64.max(32 * workers as u64)
}

/// Returns the number of frames that each worker keeps at hand, by the number of frames in use.
fn local_max(frames: u32, workers: usize) -> usize {
    (frames as usize / (8 * workers)).clamp(4, 256)
}

pub(crate) struct Pool {
    pub(crate) frames: FrameTable,
    free: Mutex<Vec<FrameIndex>>,
    free_count: AtomicUsize,
    /// Free frames that are not used, because the device has no room for the dirty pages of all
    /// frames.
    idle: Mutex<Vec<FrameIndex>>,
    idle_count: AtomicU32,
    workers: usize,
    /// The first frame from which on no memory was taken from the kernel.
    fresh: AtomicU32,
    /// The position of the back hand, counted in frames and never reduced.
    hand: AtomicU64,
    /// The number of frames between the back hand and the front hand.
    cooling_distance: u32,
    /// The number of frames that a worker keeps at hand.
    local_max: AtomicUsize,
    /// The tasks that wait for the I/O of a page that another task began.
    waiters: Box<[Waiters]>,
    pub(crate) evictions: AtomicU64,
    /// Whether parents are found by the hints in frames; see
    /// [`StoreOptions::parent_hints`](crate::StoreOptions).
    parent_hints: bool,
}

impl Pool {
    pub(crate) fn new(frames: FrameTable, workers: usize) -> Self {
        let count = frames.len();
        Self {
            free: Mutex::new((0..count).rev().map(FrameIndex).collect()),
            free_count: AtomicUsize::new(count as usize),
            idle: Mutex::default(),
            idle_count: AtomicU32::new(0),
            workers,
            fresh: AtomicU32::new(0),
            hand: AtomicU64::new(0),
            cooling_distance: (count / 2).max(1),
            local_max: AtomicUsize::new(local_max(count, workers)),
            waiters: (0..WAITER_PARTITIONS).map(|_| Waiters::default()).collect(),
            evictions: AtomicU64::new(0),
            parent_hints: true,
            frames,
        }
    }

    pub(crate) fn with_parent_hints(self, parent_hints: bool) -> Self {
        Self { parent_hints, ..self }
    }

    #[inline]
    pub(crate) fn local_max(&self) -> usize {
        self.local_max.load(Ordering::Relaxed)
    }

    /// Returns the number of free frames below which workers evict.
    #[inline]
    pub(crate) fn free_low(&self) -> usize {
        self.local_max()
    }

    /// Returns the minimum number of frames: each worker must be able to hold a way down the tree
    /// and make pages beside it.
    pub(crate) fn fewest(&self) -> u32 {
        frames_min(self.workers).min(u64::from(self.frames.len())) as u32
    }

    /// Returns the number of frames that are in use, or free to be used.
    pub(crate) fn active(&self) -> u32 {
        self.frames.len() - self.idle_count.load(Ordering::Relaxed)
    }

    /// Makes up to `count` of these frames and of the free ones idle. Frames that were never used
    /// are taken first.
    pub(crate) fn make_idle(&self, count: usize, frames: &mut Vec<FrameIndex>) {
        let mut idle = self.idle.lock();
        let mut free = self.free.lock();
        let shared = count.min(free.len());
        // The front of the list has frames that never took memory from the kernel.
        idle.extend(free.drain(..shared));
        self.free_count.store(free.len(), Ordering::Relaxed);
        drop(free);
        let own = (count - shared).min(frames.len());
        idle.extend(frames.drain(frames.len() - own..));
        self.note_idle(&idle);
    }

    pub(crate) fn wake_idle(&self, count: usize) {
        let mut idle = self.idle.lock();
        let keep = idle.len().saturating_sub(count);
        let mut woken: Vec<FrameIndex> = idle.drain(keep..).collect();
        self.note_idle(&idle);
        drop(idle);
        self.give_free(&mut woken, 0);
    }

    fn note_idle(&self, idle: &[FrameIndex]) {
        self.idle_count.store(idle.len() as u32, Ordering::Relaxed);
        self.local_max.store(local_max(self.active(), self.workers), Ordering::Relaxed);
    }

    pub(crate) fn free_count(&self) -> usize {
        self.free_count.load(Ordering::Relaxed)
    }

    pub(crate) fn take_free(&self, count: usize, target: &mut Vec<FrameIndex>) {
        let from = target.len();
        let mut free = self.free.lock();
        let keep = free.len().saturating_sub(count);
        target.extend(free.drain(keep..));
        self.free_count.store(free.len(), Ordering::Relaxed);
        drop(free);
        self.take_memory(&target[from..]);
    }

    /// Takes the memory of all frames from the kernel, `part` of `parts` of it.
    ///
    /// # Errors
    /// As [`Arena::prefault`](qpair_memory::Arena::prefault).
    pub(crate) fn prefault(&self, part: usize, parts: usize) -> io::Result<()> {
        let count = self.frames.len();
        self.fresh.store(count, Ordering::Relaxed);
        let begin = |part: usize| (u64::from(count) * part as u64 / parts as u64) as u32;
        self.frames.arena().prefault(begin(part)..begin(part + 1))
    }

    /// Takes memory from the kernel for frames that were never used. The kernel clears the memory,
    /// which takes long, and no thread should wait for a latch meanwhile.
    fn take_memory(&self, frames: &[FrameIndex]) {
        let end = frames.iter().map(|frame| frame.0 + 1).max().unwrap_or(0);
        if end > self.fresh.load(Ordering::Relaxed) {
            let fresh = self.fresh.fetch_max(end, Ordering::Relaxed);
            // If the kernel cannot, the first use of the memory finds out.
            let _ = self.frames.arena().prefault(fresh.min(end)..end);
        }
    }

    pub(crate) fn give_free(&self, source: &mut Vec<FrameIndex>, from: usize) {
        let mut free = self.free.lock();
        free.extend(source.drain(from..));
        self.free_count.store(free.len(), Ordering::Relaxed);
    }

    /// Notes that a page is in use: a cooling page becomes hot again.
    #[inline(always)]
    pub(crate) fn touch(&self, frame: FrameIndex) {
        if self.frames.state(frame) == state::COOLING {
            self.frames.change_state(frame, state::COOLING, state::HOT);
        }
    }

    fn waiters(&self, frame: FrameIndex) -> &Waiters {
        &self.waiters[frame.0 as usize % WAITER_PARTITIONS]
    }

    /// Notes that the future with this ticket waits for the end of the I/O on a frame. Returns
    /// `false` if no I/O is in flight.
    pub(crate) fn wait_for_io(
        &self,
        frame: FrameIndex,
        ticket: &mut Ticket,
        waker: &Waker,
    ) -> bool {
        // In the list before the latch is marked: the end of the I/O looks into the list only if
        // the latch is marked.
        self.waiters(frame).wait(ticket, frame.0.into(), waker);
        let waits = self.frames.add_waiter(frame);
        if !waits {
            ticket.end();
        }
        waits
    }

    /// Opens a frame that was read into, and wakes the tasks that wait for it. Even the memory of a
    /// transfer beside the trees may have waiters: they came by a reference that was true a moment
    /// before.
    pub(crate) fn end_read(&self, page: ExclusiveFrame<'_>) {
        let frame = page.index();
        if page.end_read() {
            self.waiters(frame).wake_at(frame.0.into());
        }
    }

    /// Takes back the memory of a write, and wakes the tasks that wait for it. Returns the frame.
    pub(crate) fn end_write(&self, buffer: Buffer) -> FrameIndex {
        let (frame, waited) = self.frames.end_write(buffer);
        if waited {
            self.waiters(frame).wake_at(frame.0.into());
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use qpair_memory::ArenaOptions;

    use super::*;
    use crate::sync::Wakes;

    /// A regression: each poll once added a waker, and the end of each I/O went through all of
    /// them.
    #[test]
    fn ten_thousand_that_wait_for_pages_have_one_entry_each() {
        const TASKS: usize = 10_000;
        const FRAMES: u32 = 128;
        let frames = FrameTable::new(512, FRAMES, ArenaOptions::ordinary_pages()).unwrap();
        let pool = Pool::new(frames, 1);
        let frame = |task: usize| FrameIndex(task as u32 % FRAMES);
        let reads: Vec<Buffer> = (0..FRAMES)
            .map(|frame| pool.frames.try_exclusive(FrameIndex(frame)).unwrap().begin_read())
            .collect();
        let (wakes, waker) = Wakes::counted();
        let mut tickets: Vec<_> = (0..TASKS).map(|_| Ticket::default()).collect();
        // Every other future shares a task that is woken nine times more.
        for poll in 0..10 {
            for (task, ticket) in tickets.iter_mut().enumerate() {
                if poll == 0 || task % 2 == 0 {
                    assert!(pool.wait_for_io(frame(task), ticket, &waker));
                }
            }
        }
        let waiting = || pool.waiters.iter().map(Waiters::len).sum::<usize>();
        assert_eq!(waiting(), TASKS);
        // These futures give up, or wait for another page.
        tickets.truncate(TASKS - 2);
        assert!(pool.wait_for_io(FrameIndex(1), &mut tickets[0], &waker));
        assert_eq!(waiting(), TASKS - 2);
        for (ended, read) in reads.into_iter().enumerate() {
            let before = (waiting(), wakes.count());
            pool.end_read(pool.frames.end_read(read));
            let woken = before.0 - waiting();
            assert_eq!(wakes.count() - before.1, woken as u32);
            let of_frame = (0..TASKS).filter(|task| frame(*task) == FrameIndex(ended as u32));
            assert!(woken.abs_diff(of_frame.count()) <= 1, "{woken} were woken by {ended}");
        }
        assert_eq!((waiting(), wakes.count()), (0, TASKS as u32 - 2));
    }
}
