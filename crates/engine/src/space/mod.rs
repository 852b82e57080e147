//! The free pages, and the allocation of new ones.
//!
//! A page may be allocated if no bitmap has it: not the one of pages in use now, not the image of
//! the last durable checkpoint, not the image of a checkpoint under way, and no image that a backup
//! holds. The state that a crash would go back to is therefore never overwritten. See
//! docs/design/checkpoints.md.

mod allocation;
mod barrier;
mod fit;
mod front;
mod growth;
mod image;
mod inner;
mod pieces;
mod reservation;

pub(crate) use barrier::{BarrierGuard, CommitBarrier};
pub(crate) use reservation::Reservation;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use qpair_block::BlockDevice;
use qpair_format::bitmap::Bitmap;
use qpair_format::image::RECORD_PAGES;
use qpair_format::place::PAGES_MAX;
use qpair_format::{Error, Result};
use qpair_memory::locks::Mutex;

use inner::Inner;

use crate::sync::Waiters;

/// The number of bytes that may always be kept for the last checkpoint.
const RETAINED_BYTES_MIN: u64 = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A new page. Refused while the space is needed to write out the pages in memory.
    New,
    Log,
    /// A segment that a log always keeps. A store that was closed on a full device has only the
    /// free pages that new pages left.
    FirstLog,
    /// A new place for a page that leaves memory.
    Eviction,
    /// A new place for a page that leaves memory, where no image has its present place, so that the
    /// present place becomes free.
    EvictionAgain,
    /// A new place for a page that a checkpoint writes, or a page of the checkpoint itself.
    Checkpoint,
}

/// Returns the number of pages that must stay free when a new page gets its place, by the number of
/// pages that may have to be written out.
fn left_by_new(written_out: u64) -> u64 {
    written_out + written_out * 3 / 4
}

/// Returns the number of pages that may have to be written out with `frames` frames, and with
/// `more` pages in use. Pages of logs never count.
fn written_out_of(inner: &Inner, more: u64, frames: u64) -> u64 {
    (inner.used.saturating_sub(inner.log) + more).min(frames) + 32
}

/// Returns the number of pages that must stay free, beside the reserved ones, when an evicted page
/// gets its place.
fn reserve_of_eviction(written_out: u64) -> u64 {
    written_out + written_out / 2
}

/// Returns the number of pages that must stay free, beside the reserved ones, when a log gets its
/// first segment. That is less than for evictions, since a store that was filled and closed may be
/// opened again with more tables, whose pages need frames.
fn reserve_of_first_log(written_out: u64) -> u64 {
    written_out + written_out * 3 / 8
}

#[derive(Debug)]
pub(crate) struct Space {
    device: Arc<dyn BlockDevice>,
    page_size: u64,
    /// The number of bytes of a page that hold content.
    pub(crate) page_bytes: usize,
    /// The number of frames of the pool that may have pages, and so the number of pages that may
    /// have to be written out.
    frames: AtomicU64,
    /// The maximum number of pages in a run of a large value.
    pub(crate) run_pages_max: u64,
    /// The number of pages that the device has room for. Changed under the lock; read without.
    capacity: AtomicU64,
    /// Whether allocations may use all free pages, because recovery needs them.
    urgent: AtomicBool,
    /// Whether a page could not leave memory, because no space was free.
    squeezed: AtomicBool,
    /// Whether little space is left, so that the device should grow.
    low: AtomicBool,
    /// The number of pages that the last refused request lacked, free ones or ones in a row.
    short: AtomicU64,
    /// Whether a commit that has its timestamp found no frame, so that it may use more of the
    /// reserve.
    starved: AtomicBool,
    /// The barrier; commits inside it have pages reserved.
    barrier: Arc<CommitBarrier>,
    /// The number of frames whose pages may still need a place in the checkpoint under way.
    unsaved: AtomicU64,
    /// The size of the device, in pages, up to which the next checkpoint's description has its run
    /// already. A device that was full before a run was found has none.
    described: AtomicU64,
    /// The page before which a checkpoint's description must end while pages move to the front.
    front: AtomicU64,
    /// Held by a thread that grows or shrinks the device without need, so that not both happen at
    /// once.
    resizing: Mutex<()>,
    inner: Mutex<Inner>,
    /// A close that waits for the tasks that have entered.
    left: Waiters,
}

pub(crate) struct Shares {
    pub(crate) capacity: u64,
    pub(crate) free: u64,
    /// Pages of log segments; an estimate that is rather too low.
    pub(crate) log: u64,
    /// Free pages that only the pages in memory may take.
    pub(crate) reserve: u64,
    /// Pages that are not in use, and are kept for the state that a crash would go back to, or for
    /// a backup.
    pub(crate) retained: u64,
}

impl Shares {
    pub(crate) fn used(&self) -> u64 {
        self.capacity - self.free - self.retained
    }
}

impl Space {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, page_size: usize, frames: u32) -> Self {
        let mut inner = Inner::default();
        inner.take(0, RECORD_PAGES);
        let capacity = (device.size_bytes() / page_size as u64).min(PAGES_MAX);
        Self {
            device,
            page_size: page_size as u64,
            page_bytes: page_size,
            frames: u64::from(frames).into(),
            run_pages_max: u64::MAX,
            capacity: capacity.into(),
            urgent: AtomicBool::new(false),
            squeezed: AtomicBool::new(false),
            low: AtomicBool::new(false),
            short: AtomicU64::new(0),
            starved: AtomicBool::new(false),
            barrier: Arc::default(),
            unsaved: AtomicU64::new(0),
            described: AtomicU64::new(u64::MAX),
            front: AtomicU64::new(u64::MAX),
            resizing: Mutex::default(),
            inner: Mutex::new(inner),
            left: Waiters::default(),
        }
    }

    /// Loads the pages that the last checkpoint has in use.
    pub(crate) fn load(&self, image: Bitmap) {
        let mut inner = self.inner.lock();
        inner.linked = image.clone();
        inner.linked.change(0, RECORD_PAGES, true);
        inner.used = inner.linked.count();
        // The record's pages are in use without being in the image.
        inner.taken = inner.used;
        inner.durable = image;
    }

    /// Allows allocations to use all free pages from now on, or stops that.
    pub(crate) fn set_urgent(&self, urgent: bool) {
        self.urgent.store(urgent, Ordering::Relaxed);
    }

    /// Whether allocations may use all free pages, without a reserve.
    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent.load(Ordering::Relaxed)
    }

    /// Whether a page could not leave memory since the last checkpoint, because no space was free.
    pub(crate) fn is_squeezed(&self) -> bool {
        self.squeezed.load(Ordering::Relaxed)
    }

    pub(crate) fn short(&self) -> u64 {
        self.short.load(Ordering::Relaxed)
    }

    fn note_short(&self, pages: u64) {
        self.short.store(pages, Ordering::Relaxed);
    }

    /// Drops the reserve for pages that the checkpoint under way has not looked at.
    pub(crate) fn keep_nothing_for_unsaved(&self) {
        self.unsaved.store(0, Ordering::Relaxed);
    }

    /// Notes that the checkpoint under way has looked at `frames` more frames.
    pub(crate) fn saved(&self, frames: u64) {
        let less = |unsaved: u64| Some(unsaved.saturating_sub(frames));
        let _ = self.unsaved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Whether the free pages may soon be too few for a checkpoint, at the present size of the
    /// device.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short_of(&self.inner.lock())
    }

    fn is_short_of(&self, inner: &Inner) -> bool {
        inner.free(self.capacity()) < 2 * self.written_out(inner)
    }

    /// Makes sure that enough pages are free for the pages in memory, and beside them as many as
    /// the logs have, since a store must have room for more than its logs.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(crate) fn keep_beside_logs(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        let needed = inner.used.min(self.frames()) + 32;
        match inner.free(self.capacity()) < needed {
            true => self.grow(&mut inner, needed, Purpose::Log),
            false => Ok(()),
        }
    }

    /// Makes sure that changes may begin: that as many pages are free as allocations of new pages
    /// leave, or on a full device as the first segments of logs leave.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(crate) fn make_room_for_changes(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        let written_out = self.written_out(&inner);
        let needed = left_by_new(written_out);
        if inner.free(self.capacity()) >= needed
            || self.grow(&mut inner, needed, Purpose::Log).is_ok()
        {
            return Ok(());
        }
        let needed = reserve_of_first_log(written_out);
        match inner.free(self.capacity()) < needed {
            true => self.grow(&mut inner, needed, Purpose::Log),
            false => Ok(()),
        }
    }

    /// Returns the maximum number of pages that may have to be written out, for each of which a
    /// checkpoint must find a place. Pages of logs never count.
    fn written_out(&self, inner: &Inner) -> u64 {
        self.written_out_with(inner, 0)
    }

    /// Returns the maximum number of pages that may have to be written out with `more` pages in
    /// use.
    fn written_out_with(&self, inner: &Inner, more: u64) -> u64 {
        written_out_of(inner, more, self.frames())
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Returns the number of pages in use, and of pages that are free to be handed out.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let inner = self.inner.lock();
        (inner.used, inner.free(self.capacity()))
    }

    /// Returns the number of pages that are not in use now, and are kept for the state that a crash
    /// would go back to, or for a backup.
    pub(crate) fn retained(&self) -> u64 {
        let inner = self.inner.lock();
        inner.taken - inner.used
    }

    /// Returns the number of pages by their use, all at the same moment, because the device may
    /// grow and shrink meanwhile.
    pub(crate) fn shares(&self) -> Shares {
        let inner = self.inner.lock();
        let capacity = self.capacity().max(inner.taken);
        let free = inner.free(capacity);
        Shares {
            capacity,
            free,
            log: inner.log,
            reserve: self.reserve_of(&inner, 0, Purpose::New).min(free),
            retained: inner.taken - inner.used,
        }
    }

    /// Returns the number of pages that are not in use now, whether they may be handed out or not.
    pub(crate) fn unused(&self) -> u64 {
        self.capacity().saturating_sub(self.inner.lock().used)
    }

    /// Notes that the next checkpoint's description has its run, as long as the store has at most
    /// `pages` pages.
    pub(crate) fn set_described(&self, pages: u64) {
        self.described.store(pages, Ordering::Relaxed);
    }

    /// Whether a checkpoint should be made: because many pages are kept only for the last one, or
    /// because the description of the next one has no run yet and may still find one.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        if self.capacity() > self.described.load(Ordering::Relaxed) {
            return true;
        }
        let inner = self.inner.lock();
        // Pages that backups and readers hold come free with no checkpoint.
        let retained = (inner.taken - inner.used).saturating_sub(inner.kept);
        retained > (inner.used / 4).max(RETAINED_BYTES_MIN / self.page_size)
    }

    #[cfg(test)]
    pub(crate) fn is_used(&self, page_id: u64) -> bool {
        self.inner.lock().is_used(page_id)
    }

    /// Returns a copy of the bitmap of pages that are in use now and belong to the trees.
    pub(crate) fn linked(&self) -> Bitmap {
        self.inner.lock().linked.clone()
    }

    /// Notes that the caller is about to allocate pages, and to refer to them or give them back. A
    /// close waits for [`Space::leave`].
    ///
    /// # Errors
    /// `Closed` if the store is being closed.
    pub(crate) fn enter(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        if inner.closing {
            return Err(Error::closed());
        }
        inner.pending += 1;
        Ok(())
    }

    /// Ends the work that [`Space::enter`] began.
    pub(crate) fn leave(&self) {
        let is_last = {
            let mut inner = self.inner.lock();
            inner.pending -= 1;
            inner.pending == 0 && inner.closing
        };
        if is_last {
            self.left.wake_all();
        }
    }

    /// Waits until every task that entered has left; after [`Space::begin_closing`].
    pub(crate) async fn wait_until_left(&self) {
        while self.inner.lock().pending > 0 {
            self.left.woken(|| self.inner.lock().pending == 0).await;
        }
    }

    /// Calls [`Space::enter`] and [`Space::allocate`].
    pub(crate) fn reserve(&self, count: u64, purpose: Purpose) -> Result<u64> {
        self.enter()?;
        self.allocate(count, purpose).inspect_err(|_| self.leave())
    }

    /// Calls [`Space::enter`] and [`Space::allocate_unlinked`] for a caller that has entered
    /// already. A close waits for such a caller, and does not refuse it.
    pub(crate) fn reserve_more_unlinked(&self, count: u64) -> Result<u64> {
        let start = self.allocate_unlinked(count, Purpose::New)?;
        self.inner.lock().pending += 1;
        Ok(start)
    }

    /// Lets no task enter from now on.
    pub(crate) fn begin_closing(&self) {
        self.inner.lock().closing = true;
    }

    /// Allocates pages that nothing refers to yet. They belong to no checkpoint until
    /// [`Space::link`].
    ///
    /// # Errors
    /// As [`Space::allocate`].
    pub(crate) fn allocate_unlinked(&self, count: u64, purpose: Purpose) -> Result<u64> {
        let mut inner = self.inner.lock();
        let start = self.allocate_locked(&mut inner, count, purpose)?;
        inner.unlink(start, count);
        if matches!(purpose, Purpose::Log | Purpose::FirstLog) {
            inner.log += count;
        }
        Ok(start)
    }

    /// Notes that the trees refer to these pages now.
    pub(crate) fn link(&self, start: u64, count: u64) {
        self.inner.lock().link(start, count);
    }

    /// Notes that the trees no longer refer to these pages, which are not free yet.
    pub(crate) fn unlink(&self, start: u64, count: u64) {
        self.inner.lock().unlink(start, count);
    }

    /// Takes pages that recovery found in use, and that belong to no checkpoint. Returns whether
    /// all were free.
    pub(crate) fn claim_unlinked(&self, start: u64, count: u64) -> bool {
        let mut inner = self.inner.lock();
        let whole = start.checked_add(count).is_some_and(|end| {
            end <= self.capacity() && (start..end).all(|page_id| !inner.is_taken(page_id))
        });
        if whole {
            inner.take(start, count);
            inner.unlink(start, count);
        }
        whole
    }

    pub(crate) fn free(&self, start: u64, count: u64) {
        self.inner.lock().give(start, count);
    }

    pub(crate) fn free_log(&self, start: u64, count: u64) {
        let mut inner = self.inner.lock();
        inner.give(start, count);
        // Recovery claims segments that were never counted.
        inner.log = inner.log.saturating_sub(count);
    }
}

#[cfg(test)]
mod tests;
