//! A worker's share of the pool: frames at hand, eviction when they run low, and tasks that wait
//! for a frame.

use std::task::Poll;

use qpair_format::{Error, ErrorKind};
use qpair_memory::FrameIndex;

use super::{Tag, Worker, tag};
use crate::shared::Shared;

/// The number of turns of a millisecond without any free frame after which the waiting tasks get an
/// error.
const STARVED_MAX: u32 = 2000;
/// The number of such turns if no page can be written any more. Frames then only become free by
/// reads that end, and by tasks that release pages.
const STARVED_READ_ONLY_MAX: u32 = 100;

impl Worker {
    pub(crate) fn take_frame(&self) -> Option<FrameIndex> {
        let mut free = self.free.borrow_mut();
        if free.is_empty() {
            self.shared.pool.take_free((self.shared.pool.local_max() / 2).max(1), &mut free);
        }
        free.pop()
    }

    pub(crate) fn give_frame(&self, frame: FrameIndex) {
        let mut free = self.free.borrow_mut();
        free.push(frame);
        if free.len() > self.shared.pool.local_max() {
            self.shared.pool.give_free(&mut free, self.shared.pool.local_max() / 2);
        }
    }

    /// Parks the running task until a frame for a new page may be free. If pages cannot be written
    /// any more, the task gets an error at once: the free frame could be that of the clean page
    /// which it is about to split, again and again.
    pub(crate) fn wait_for_new_frame(&self) -> Poll<Error> {
        match (self.shared.lifecycle.failure(), self.shared.lifecycle.check_writable()) {
            (Some(_), Err(error)) => Poll::Ready(error),
            _ => self.wait_for_frame(),
        }
    }

    /// Parks the running task until a frame may be free. Returns an error if that is hopeless.
    pub(crate) fn wait_for_frame(&self) -> Poll<Error> {
        if self.is_hopeless() {
            return Poll::Ready(match self.shared.lifecycle.failure() {
                // No page will be written any more, so every waiting task gets the error at once.
                Some(_) => self.shared.lifecycle.check_writable().err().unwrap_or_else(no_memory),
                None => {
                    // The frame that this task gives back may be enough for the others.
                    self.starved.set(0);
                    no_memory()
                }
            });
        }
        let task = self.running.get();
        // A task may have several operations that wait. An entry whose operation is gone would
        // cause a needless eviction.
        if !self.tasks.borrow_mut().set_wants_frame(task, true) {
            self.frame_waiters.borrow_mut().push_back(task);
        }
        Poll::Pending
    }

    /// Whether the worker has waited so long for a free frame that none will come.
    fn is_hopeless(&self) -> bool {
        let turns_max = match self.shared.lifecycle.failure() {
            Some(_) => STARVED_READ_ONLY_MAX,
            None => STARVED_MAX,
        };
        self.starved.get() > turns_max
    }

    /// Evicts pages when frames run low, and wakes the tasks that wait for a frame.
    pub(super) fn make_frames_free(&self) {
        let pool = &self.shared.pool;
        let waiting = self.frame_waiters.borrow().len();
        let at_hand = self.free.borrow().len();
        if waiting == 0 && at_hand + pool.free_count() >= pool.free_low() {
            self.starved.set(0);
            return;
        }
        let pending = self.write_backs.get() as usize;
        let wanted = (pool.local_max() / 2).max(1);
        // A page that the front hand passes now is taken in a later turn at the earliest.
        // Otherwise, in a small pool, one call would take pages that were just read, before the
        // waiting tasks have run.
        let budget = (wanted * 16).max(512).min(pool.frames.len() as usize / 2);
        let mut writes = Vec::new();
        let mut freed = std::mem::take(&mut *self.free.borrow_mut());
        let before = freed.len();
        // As many writes in flight as the pool can spare; reads must find room on the device too.
        let may_write = self.shared.lifecycle.failure().is_none() && pending < pool.local_max();
        // Read the phase once: a write is counted in the phase that its tag names.
        let phase = self.shared.checkpointing.epochs.phase();
        let write_tag = tag(Tag::WriteBack, phase);
        pool.sweep(
            self.shared.around(),
            wanted,
            budget,
            may_write.then_some(write_tag),
            &mut freed,
            &mut writes,
        );
        if self.shared.space.is_squeezed() && self.shared.lifecycle.failure().is_none() {
            // After a checkpoint, pages that were written for its image can leave without new
            // space, and the pages that only the previous checkpoint needs are free.
            self.begin_checkpoint();
            self.shared.checkpointing.barrier.give_way();
        }
        let made = freed.len() - before;
        *self.free.borrow_mut() = freed;
        self.write_backs.set(self.write_backs.get() + writes.len() as u32);
        // A checkpoint past its instant completes without a frame, whichever worker runs it, and
        // then pages may leave.
        let progress = made > 0
            || !writes.is_empty()
            || self.channel.borrow().in_flight() > 0
            || (waiting > 0
                && self.shared.lifecycle.failure().is_none()
                && self.shared.space.has_image());
        if !writes.is_empty() && self.shared.space.wants_checkpoint() {
            self.begin_checkpoint();
        }
        for request in writes {
            self.begin_transfer_in(phase);
            self.submit(request);
        }
        if self.free.borrow().len() > 2 * pool.local_max() {
            pool.give_free(&mut self.free.borrow_mut(), pool.local_max());
        }
        self.starved.set(match waiting {
            _ if progress => 0,
            // A task that got the error, and lets others run before it asks again, must get the
            // error again.
            0 if self.has_ready() => self.starved.get(),
            0 => 0,
            _ => self.starved.get() + 1,
        });
        let hopeless = self.is_hopeless();
        let available = self.free.borrow().len() + pool.free_count();
        let wake = if hopeless { waiting } else { waiting.min(available) };
        for _ in 0..wake {
            let Some(task) = self.frame_waiters.borrow_mut().pop_front() else { break };
            self.tasks.borrow_mut().set_wants_frame(task, false);
            self.make_ready(task);
        }
    }

    pub(crate) fn give_frames_back(&self) {
        self.shared.pool.give_free(&mut self.free.borrow_mut(), 0);
    }

    /// Makes up to `count` frames idle: free ones, those at hand here, and those of clean pages
    /// that the clock's hands find now. Returns how many frames the hands passed.
    pub(crate) fn make_frames_idle(&self, count: usize) -> usize {
        /// The number of frames that the hands pass in one turn.
        const TURN_FRAMES: usize = 512;
        let pool = &self.shared.pool;
        let mut freed = std::mem::take(&mut *self.free.borrow_mut());
        let before = pool.active();
        pool.make_idle(count, &mut freed);
        let missing = count.saturating_sub(before.saturating_sub(pool.active()) as usize);
        let mut passed = 0;
        if missing > 0 {
            let around = self.shared.around();
            passed = pool.sweep(around, missing, TURN_FRAMES, None, &mut freed, &mut Vec::new());
            pool.make_idle(missing, &mut freed);
        }
        *self.free.borrow_mut() = freed;
        passed
    }

    /// Removes pages that could not be loaded from their parents.
    pub(super) fn drop_broken(&self) {
        if self.broken.borrow().is_empty() {
            return;
        }
        let mut broken = std::mem::take(&mut *self.broken.borrow_mut());
        broken.retain(|frame| match self.shared.pool.drop_broken(*frame) {
            Some(true) => {
                self.give_frame(*frame);
                false
            }
            Some(false) => false,
            None => true,
        });
        self.broken.borrow_mut().append(&mut broken);
    }
}

/// Latches a free frame. No operation uses it, but the clock or the checkpoint writer may hold its
/// latch for a moment.
pub(crate) fn latch_free(shared: &Shared, frame: FrameIndex) -> qpair_memory::ExclusiveFrame<'_> {
    loop {
        if let Ok(page) = shared.pool.frames.try_exclusive(frame) {
            return page;
        }
        std::hint::spin_loop();
    }
}

fn no_memory() -> Error {
    Error::with_hint(
        ErrorKind::NoMemory,
        "no page can be evicted: every frame is in use; each open table pins one frame",
        "give the store more memory, run fewer tasks at once, or open fewer tables",
    )
}
