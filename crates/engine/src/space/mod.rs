//! Which pages are free, and where new ones come from.
//!
//! A page may be handed out if no bitmap has it: not the one of pages in use now, not the image of the last durable
//! checkpoint, not the image of a checkpoint under way, and no image that a backup holds on to. So what a crash would go
//! back to is never written over. See docs/design/checkpoints.md.

mod bitmap;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use qpair_block::BlockDevice;

use crate::checkpoint::{Gate, GateGuard};
use crate::error::{Error, ErrorKind, Result};
pub(crate) use bitmap::Bitmap;

/// Least and most bytes by which the device is made larger at once; between them a sixteenth of its size, or a quarter while
/// that is little.
const GROWTH_BYTES_MIN: u64 = 1 << 20;
const GROWTH_BYTES_MAX: u64 = 1 << 30;
const GROWTH_BYTES_LITTLE: u64 = 64 << 20;

/// Most bytes by which the device is made larger for pages in a row where enough are free, apart from each other; least is
/// [`GROWTH_BYTES_MIN`], between them a 64th of its size.
const ROW_GROWTH_BYTES_MAX: u64 = 64 << 20;

/// As many bytes may always be kept for the last checkpoint.
const RETAINED_BYTES_MIN: u64 = 64 << 20;

/// Pages that hold the two checkpoint records; never handed out.
pub(crate) const RECORD_PAGES: u64 = 2;

/// Who asks for pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Something new: refused while there is still space to write what is in memory out.
    New,
    /// A segment of the log.
    Log,
    /// A new place for a page that leaves memory.
    Eviction,
    /// The same, where no image has the place that the page is at: that one comes free.
    EvictionAgain,
    /// A new place for a page that a checkpoint writes, or what belongs to the checkpoint itself.
    Checkpoint,
}

/// Pages that stay free when something new was given its place, by how many may have to be written out.
fn left_by_new(written_out: u64) -> u64 {
    written_out + written_out * 3 / 4
}

/// The allocator of pages.
#[derive(Debug)]
pub(crate) struct Space {
    device: Arc<dyn BlockDevice>,
    page_size: u64,
    /// Frames of the pool: so many pages may have to be written out.
    frames: u64,
    /// Pages that the device has room for. Changed under the lock; read without.
    capacity: AtomicU64,
    /// Nothing is held back: recovery needs all there is.
    urgent: AtomicBool,
    /// A page could not leave memory for want of space.
    squeezed: AtomicBool,
    /// A commit that has its stamp found no frame, and more of what is kept is there for it.
    starved: AtomicBool,
    /// Who is inside has pages promised.
    gate: Arc<Gate>,
    /// Frames whose pages the checkpoint under way may still have to find a place for.
    unsaved: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// In use now.
    current: Bitmap,
    /// In use now, and not part of a checkpoint: nothing in the trees refers to them yet, or any more, or they are log.
    detached: BTreeMap<u64, u64>,
    /// The last durable checkpoint's.
    durable: Bitmap,
    /// The checkpoint's under way.
    image: Option<Bitmap>,
    /// Images that backups read from.
    held: Vec<(u64, Bitmap)>,
    next_hold: u64,
    /// Pages in use now.
    used: u64,
    /// Those among them that segments of the logs have, and that never were memory's; rather too few than too many.
    log: u64,
    /// Pages that may not be handed out.
    taken: u64,
    /// Those among them that come free when the checkpoint under way is durable.
    gain: u64,
    /// Word at which the search for single pages goes on.
    cursor: usize,
    /// Word at which the search for pages in a row goes on. They are rare, and what is left of them should not be where single
    /// pages go next.
    row_cursor: usize,
    /// The device refused to grow to this many bytes or more.
    refused_bytes: Option<u64>,
    /// Reservations that will be kept or given back.
    pending: u64,
    /// Nothing is reserved any more.
    closing: bool,
}

impl Inner {
    #[inline]
    fn word(&self, index: usize) -> u64 {
        let mut word = self.current.word(index) | self.durable.word(index);
        if let Some(image) = &self.image {
            word |= image.word(index);
        }
        for (_, held) in &self.held {
            word |= held.word(index);
        }
        word
    }

    /// Whether an image has a page.
    fn is_kept(&self, page_id: u64) -> bool {
        self.durable.get(page_id)
            || self.image.as_ref().is_some_and(|image| image.get(page_id))
            || self.held.iter().any(|(_, held)| held.get(page_id))
    }

    fn is_taken(&self, page_id: u64) -> bool {
        self.word((page_id / 64) as usize) >> (page_id % 64) & 1 == 1
    }

    /// Counts the pages that may not be handed out anew.
    fn recount(&mut self, capacity: u64) {
        let words = capacity.div_ceil(64) as usize;
        self.taken = (0..words).map(|word| u64::from(self.word(word).count_ones())).sum();
    }

    fn free(&self, capacity: u64) -> u64 {
        capacity.saturating_sub(self.taken)
    }

    /// Finds `count` pages in a row below `capacity`, from where the last such search ended and round.
    fn find(&mut self, count: u64, capacity: u64) -> Option<u64> {
        let words = capacity.div_ceil(64) as usize;
        let (mut run_start, mut run) = (0, 0);
        let cursor = if count == 1 { self.cursor } else { self.row_cursor };
        let begin = cursor.min(words.saturating_sub(1));
        for step in 0..=words {
            let index = (begin + step) % words.max(1);
            if index == 0 {
                run = 0;
            }
            let word = self.word(index);
            if word == u64::MAX {
                run = 0;
                continue;
            }
            if word == 0 && run + 64 < count {
                if run == 0 {
                    run_start = index as u64 * 64;
                }
                run += 64;
                continue;
            }
            let mut bit = 0;
            while bit < 64 {
                let rest = word >> bit;
                let zeros = if rest == 0 { 64 - bit } else { u64::from(rest.trailing_zeros()) };
                if zeros > 0 {
                    if run == 0 {
                        run_start = index as u64 * 64 + bit;
                    }
                    run += zeros.min(64 - bit);
                    if run >= count {
                        if run_start + count > capacity {
                            run = 0;
                            break;
                        }
                        let cursor =
                            if count == 1 { &mut self.cursor } else { &mut self.row_cursor };
                        *cursor = ((run_start + count) / 64) as usize;
                        return Some(run_start);
                    }
                    bit += zeros;
                }
                if bit < 64 {
                    run = 0;
                    bit += u64::from((word >> bit).trailing_ones());
                }
            }
        }
        None
    }

    fn take(&mut self, start: u64, count: u64) {
        self.current.change(start, count, true);
        self.used += count;
        self.taken += count;
    }

    fn give(&mut self, start: u64, count: u64) {
        self.detach_not(start, count);
        for page_id in start..start + count {
            if self.current.get(page_id) {
                self.current.change(page_id, 1, false);
                self.used -= 1;
                self.taken -= u64::from(!self.is_taken(page_id));
            }
        }
    }

    /// What is in use now and belongs to the trees.
    fn attached(&self) -> Bitmap {
        let mut image = self.current.clone();
        for (start, count) in &self.detached {
            image.change(*start, *count, false);
        }
        image
    }

    /// Takes a run out of the detached ones, or a part of one.
    fn detach_not(&mut self, start: u64, count: u64) {
        let Some((&first, &len)) = self.detached.range(..=start).next_back() else { return };
        if start + count > first + len {
            return;
        }
        self.detached.remove(&first);
        if start > first {
            self.detached.insert(first, start - first);
        }
        if first + len > start + count {
            self.detached.insert(start + count, first + len - start - count);
        }
    }
}

impl Space {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, page_size: usize, frames: u32) -> Self {
        let mut inner = Inner::default();
        inner.take(0, RECORD_PAGES);
        let capacity = device.size_bytes() / page_size as u64;
        Self {
            device,
            page_size: page_size as u64,
            frames: u64::from(frames),
            capacity: capacity.into(),
            urgent: AtomicBool::new(false),
            squeezed: AtomicBool::new(false),
            starved: AtomicBool::new(false),
            gate: Arc::default(),
            unsaved: AtomicU64::new(0),
            inner: Mutex::new(inner),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what the last checkpoint says is in use.
    pub(crate) fn load(&self, image: Bitmap) {
        let mut inner = self.lock();
        inner.current = image.clone();
        inner.current.change(0, RECORD_PAGES, true);
        inner.used = inner.current.count();
        inner.durable = image;
        inner.recount(self.capacity());
    }

    /// Holds nothing back from now on, or does again.
    pub(crate) fn set_urgent(&self, urgent: bool) {
        self.urgent.store(urgent, Ordering::Relaxed);
    }

    /// Whether nothing is held back.
    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent.load(Ordering::Relaxed)
    }

    /// Whether a page could not leave memory since the last checkpoint, for want of space.
    pub(crate) fn is_squeezed(&self) -> bool {
        self.squeezed.load(Ordering::Relaxed)
    }

    /// The gate of those whose pages find places here.
    pub(crate) fn gate(&self) -> Arc<Gate> {
        self.gate.clone()
    }

    /// Pages that may be promised without a look at what is free: see docs/design/checkpoints.md, *A place for every page*.
    fn promised_freely(&self) -> u64 {
        self.frames / 4
    }

    /// What is promised beyond that.
    fn promised_more(&self) -> u64 {
        self.gate.promised().saturating_sub(self.promised_freely())
    }

    /// Promises who is inside the gate, and has no stamp yet, places for so many pages that its commit may change: with them it comes to
    /// its end, whichever pages have to leave memory meanwhile.
    ///
    /// # Errors
    /// `NoSpace`; nothing is promised then.
    pub(crate) fn promise(&self, inside: &mut GateGuard, pages: u64) -> Result<()> {
        let freely = self.promised_freely();
        if self.gate.promised() + pages <= freely {
            if inside.promise(pages) <= freely {
                return Ok(());
            }
            inside.take_back();
        }
        // Whoever asks for that much asks under the lock: of several that have no room beside each other one has it. Added before it
        // is looked at, so that nobody beside it is promised pages without a look.
        let mut inner = self.lock();
        let more = inside.promise(pages).saturating_sub(freely);
        let needed = self.kept_for_eviction(&inner) + more;
        if inner.free(self.capacity()) < needed {
            // What the system says of a file is of no use to who can change less at once.
            let _ = self.grow(&mut inner, needed, Purpose::New);
        }
        let free = inner.free(self.capacity());
        if free < needed {
            inside.take_back();
            return Err(Error::with_hint(
                ErrorKind::NoSpace,
                format!(
                    "the transaction may need {pages} new places for pages that it changes: {needed} pages would have to be free on \
                     {}, and {free} are",
                    self.device.info().name
                ),
                "change less in one transaction, or make room on the device",
            ));
        }
        Ok(())
    }

    /// Whether so many pages could be promised if nobody else had any, and nothing was kept for images.
    pub(crate) fn could_promise(&self, pages: u64) -> bool {
        let inner = self.lock();
        let more = pages.saturating_sub(self.promised_freely());
        more == 0 || inner.used + self.kept_for_eviction(&inner) + more <= self.capacity()
    }

    /// A commit that has its stamp found no frame: more of what is kept for the next checkpoint is there for it.
    pub(crate) fn note_starved(&self) {
        self.starved.store(true, Ordering::Relaxed);
    }

    /// Nothing is kept any more for pages that the checkpoint under way has not looked at.
    pub(crate) fn keep_nothing_for_unsaved(&self) {
        self.unsaved.store(0, Ordering::Relaxed);
    }

    /// The checkpoint under way has looked at so many frames more.
    pub(crate) fn saved(&self, frames: u64) {
        let less = |unsaved: u64| Some(unsaved.saturating_sub(frames));
        let _ = self.unsaved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Whether what is free may soon be too little for a checkpoint, as the device is.
    pub(crate) fn is_short(&self) -> bool {
        let inner = self.lock();
        inner.free(self.capacity()) < 2 * self.written_out(&inner)
    }

    /// Makes sure that as many pages are free as what is in memory may need, and as many as the logs have: a store is for more than
    /// its logs.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(crate) fn keep_beside_logs(&self) -> Result<()> {
        let mut inner = self.lock();
        let needed = inner.used.min(self.frames) + 32;
        match inner.free(self.capacity()) < needed {
            true => self.grow(&mut inner, needed, Purpose::Log),
            false => Ok(()),
        }
    }

    /// Makes sure that changes may begin: as many pages are free as are left by something new.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(crate) fn make_room_for_changes(&self) -> Result<()> {
        let mut inner = self.lock();
        let needed = left_by_new(self.written_out(&inner));
        match inner.free(self.capacity()) < needed {
            true => self.grow(&mut inner, needed, Purpose::Log),
            false => Ok(()),
        }
    }

    /// So many pages may have to be written out at most: a checkpoint must find a place for each. Logs are never among them.
    fn written_out(&self, inner: &Inner) -> u64 {
        inner.used.saturating_sub(inner.log).min(self.frames) + 32
    }

    /// What pages that leave memory leave free, before those that are promised.
    fn kept_for_eviction(&self, inner: &Inner) -> u64 {
        let written_out = self.written_out(inner);
        written_out + written_out / 2
    }

    /// Pages that the device has room for.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Pages in use, and pages that are free to be handed out.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let inner = self.lock();
        (inner.used, inner.free(self.capacity()))
    }

    /// Pages that are not in use now, and are kept for what a crash would go back to, or for a backup.
    pub(crate) fn retained(&self) -> u64 {
        let inner = self.lock();
        inner.taken - inner.used
    }

    /// Pages that are not in use now, whether they may be handed out or not.
    pub(crate) fn unused(&self) -> u64 {
        self.capacity().saturating_sub(self.lock().used)
    }

    /// Whether so much is kept for the last checkpoint that another one should be made.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        let inner = self.lock();
        let retained = inner.taken - inner.used;
        retained > (inner.used / 2).max(RETAINED_BYTES_MIN / self.page_size)
    }

    /// Whether a page is in use now.
    #[cfg(test)]
    pub(crate) fn is_used(&self, page_id: u64) -> bool {
        self.lock().current.get(page_id)
    }

    /// A copy of what is in use now and belongs to the trees.
    pub(crate) fn attached(&self) -> Bitmap {
        self.lock().attached()
    }

    /// Allocates `count` pages in a row. Space that this returns is reserved on the device.
    ///
    /// # Errors
    /// `NoSpace`; nothing is allocated then.
    pub(crate) fn allocate(&self, count: u64, purpose: Purpose) -> Result<u64> {
        let mut inner = self.lock();
        self.allocate_locked(&mut inner, count, purpose)
    }

    /// A new place for a page that leaves memory, and is at `from` until [`Space::moved`].
    ///
    /// # Errors
    /// `NoSpace`.
    pub(crate) fn allocate_to_move(&self, from: u64) -> Result<u64> {
        let mut inner = self.lock();
        let purpose = match inner.is_kept(from) {
            true => Purpose::Eviction,
            false => Purpose::EvictionAgain,
        };
        self.allocate_locked(&mut inner, 1, purpose)
    }

    /// Allocates pages in a row, one at least and `most` at most: as many as follow the next free one. For who needs many, and
    /// not all of them together.
    ///
    /// # Errors
    /// `NoSpace`; nothing is allocated then.
    pub(crate) fn allocate_some(&self, most: u64, purpose: Purpose) -> Result<Range<u64>> {
        let mut inner = self.lock();
        let start = self.allocate_locked(&mut inner, 1, purpose)?;
        let last = (start + most).min(self.capacity());
        let mut end = start + 1;
        while end < last && !inner.is_taken(end) {
            end += 1;
        }
        inner.take(start + 1, end - start - 1);
        inner.cursor = (end / 64) as usize;
        Ok(start..end)
    }

    fn allocate_locked(&self, inner: &mut Inner, count: u64, purpose: Purpose) -> Result<u64> {
        // What is in memory must still find a place when nothing new does.
        let written_out = self.written_out(inner);
        let keep = match purpose {
            _ if self.urgent.load(Ordering::Relaxed) => 0,
            Purpose::New | Purpose::Log => left_by_new(written_out) + self.promised_more(),
            // The checkpoint has begun: what leaves memory was changed after its instant.
            Purpose::Eviction if inner.image.is_some() => {
                // Its image keeps what they leave: once it is durable there must be enough for the next one's sweep.
                let then = (written_out + written_out / 4).saturating_sub(inner.gain);
                let now = (written_out / 4).max(self.unsaved.load(Ordering::Relaxed));
                now.max(then) + self.promised_more()
            }
            // A checkpoint comes: those who are inside the gate need frames until its instant.
            Purpose::Eviction if self.is_squeezed() => match self.starved.load(Ordering::Relaxed) {
                true => written_out / 4,
                false => written_out,
            },
            Purpose::Eviction => self.kept_for_eviction(inner) + self.promised_more(),
            // What it takes it gives back at once; a sweep finds its own places meanwhile.
            Purpose::EvictionAgain => self.unsaved.load(Ordering::Relaxed),
            Purpose::Checkpoint => 0,
        };
        let mut refusal = None;
        if inner.free(self.capacity()) < count + keep {
            refusal = self.grow(inner, count + keep, purpose).err();
        }
        if inner.free(self.capacity()) >= count + keep {
            if let Some(start) = inner.find(count, self.capacity()) {
                inner.take(start, count);
                return Ok(start);
            }
            // There is space, but not in a row: it comes at the end, and no more than that. In a store whose pages move all the time
            // what is free is single pages, however large the device is.
            inner.row_cursor = (self.capacity() / 64) as usize;
            refusal = self.grow_for_row(count).err();
            if let Some(start) = inner.find(count, self.capacity()) {
                inner.take(start, count);
                return Ok(start);
            }
        }
        if matches!(purpose, Purpose::Eviction | Purpose::EvictionAgain) {
            self.squeezed.store(true, Ordering::Relaxed);
        }
        Err(refusal.unwrap_or_else(|| {
            Error::with_hint(
                ErrorKind::NoSpace,
                format!("no {count} free pages in a row on {}", self.device.info().name),
                "make room on the device, or delete records and let a checkpoint pass",
            )
        }))
    }

    /// Makes the device larger, so that `free` pages are free.
    fn grow(&self, inner: &mut Inner, free: u64, purpose: Purpose) -> Result<()> {
        let needed_bytes = (inner.taken + free) * self.page_size;
        let size_bytes = self.device.size_bytes();
        if needed_bytes > size_bytes {
            // Pages that cannot leave memory try again all the time, which would cost much if the system was asked each time.
            // Who wants something new asks: there may be room by now.
            if matches!(purpose, Purpose::Eviction | Purpose::EvictionAgain)
                && inner.refused_bytes.is_some_and(|refused| needed_bytes >= refused)
            {
                return Err(no_space(&*self.device, needed_bytes));
            }
            let step = (size_bytes / 4).min((size_bytes / 16).max(GROWTH_BYTES_LITTLE));
            let step = step.clamp(GROWTH_BYTES_MIN, GROWTH_BYTES_MAX);
            if let Err(error) = self.grow_device(needed_bytes, size_bytes + step) {
                inner.refused_bytes = Some(needed_bytes);
                // Free pages that are held back look like enough to who does not know.
                let there = inner.free(self.capacity());
                return Err(Error::block(
                    error,
                    format!(
                        "growing the store to {needed_bytes} bytes ({there} pages are free, {free} have to be: what is in memory \
                         may need new places)"
                    ),
                ));
            }
            inner.refused_bytes = None;
        }
        self.note_capacity();
        Ok(())
    }

    /// Makes the device larger by `count` pages at least.
    fn grow_for_row(&self, count: u64) -> Result<()> {
        let needed_bytes = (self.capacity() + count) * self.page_size;
        let size_bytes = self.device.size_bytes();
        if needed_bytes > size_bytes {
            let step = (size_bytes / 64).clamp(GROWTH_BYTES_MIN, ROW_GROWTH_BYTES_MAX);
            self.grow_device(needed_bytes, size_bytes + step).map_err(|error| {
                let context = format!(
                    "growing the store to {needed_bytes} bytes (no {count} free pages are in a row)"
                );
                Error::block(error, context)
            })?;
        }
        self.note_capacity();
        Ok(())
    }

    /// Makes the device `wanted_bytes` large, or as large as is needed.
    fn grow_device(&self, needed_bytes: u64, wanted_bytes: u64) -> qpair_block::Result<()> {
        let wanted_bytes = wanted_bytes.max(needed_bytes);
        self.device.grow(wanted_bytes).or_else(|error| {
            if wanted_bytes > needed_bytes { self.device.grow(needed_bytes) } else { Err(error) }
        })
    }

    fn note_capacity(&self) {
        let capacity = self.device.size_bytes() / self.page_size;
        if capacity > self.capacity() {
            self.capacity.store(capacity, Ordering::Relaxed);
        }
    }

    /// Notes that somebody is about to allocate pages, and to refer to them or give them back: a close waits for
    /// [`Space::leave`].
    ///
    /// # Errors
    /// `Closed` if the store is being closed.
    pub(crate) fn enter(&self) -> Result<()> {
        let mut inner = self.lock();
        if inner.closing {
            return Err(Error::closed());
        }
        inner.pending += 1;
        Ok(())
    }

    /// The end of what [`Space::enter`] began.
    pub(crate) fn leave(&self) {
        self.lock().pending -= 1;
    }

    /// [`Space::enter`] and [`Space::allocate`] in one.
    pub(crate) fn reserve(&self, count: u64, purpose: Purpose) -> Result<u64> {
        self.enter()?;
        self.allocate(count, purpose).inspect_err(|_| self.leave())
    }

    /// [`Space::enter`] and [`Space::allocate_detached`] in one.
    pub(crate) fn reserve_detached(&self, count: u64) -> Result<u64> {
        self.enter()?;
        self.allocate_detached(count, Purpose::New).inspect_err(|_| self.leave())
    }

    /// Lets nobody enter from now on.
    pub(crate) fn begin_closing(&self) {
        self.lock().closing = true;
    }

    /// How many have entered and not left.
    pub(crate) fn pending(&self) -> u64 {
        self.lock().pending
    }

    /// Allocates pages that nothing refers to yet: they belong to no checkpoint until [`Space::attach`].
    ///
    /// # Errors
    /// As [`Space::allocate`].
    pub(crate) fn allocate_detached(&self, count: u64, purpose: Purpose) -> Result<u64> {
        let mut inner = self.lock();
        let start = self.allocate_locked(&mut inner, count, purpose)?;
        inner.detached.insert(start, count);
        if purpose == Purpose::Log {
            inner.log += count;
        }
        Ok(start)
    }

    /// Something in the trees refers to these pages now.
    pub(crate) fn attach(&self, start: u64, count: u64) {
        self.lock().detach_not(start, count);
    }

    /// Nothing in the trees refers to these pages any more, but they are not free yet.
    pub(crate) fn detach(&self, start: u64, count: u64) {
        self.lock().detached.insert(start, count);
    }

    /// Takes pages that recovery found in use, and that belong to no checkpoint; whether all were free.
    pub(crate) fn claim_detached(&self, start: u64, count: u64) -> bool {
        let mut inner = self.lock();
        let whole = start.checked_add(count).is_some_and(|end| {
            end <= self.capacity() && (start..end).all(|page_id| !inner.is_taken(page_id))
        });
        if whole {
            inner.take(start, count);
            inner.detached.insert(start, count);
        }
        whole
    }

    /// Gives pages back.
    pub(crate) fn free(&self, start: u64, count: u64) {
        self.lock().give(start, count);
    }

    /// Gives a segment of a log back.
    pub(crate) fn free_log(&self, start: u64, count: u64) {
        let mut inner = self.lock();
        inner.give(start, count);
        // Recovery claims segments that were never counted.
        inner.log = inner.log.saturating_sub(count);
    }

    /// A page moves from one place to another. `of_image`: what is written there is as the checkpoint under way has it.
    pub(crate) fn moved(&self, from: u64, to: u64, of_image: impl FnOnce() -> bool) {
        let mut inner = self.lock();
        // Asked under the lock: the image begins under it.
        if let Some(image) = &mut inner.image
            && of_image()
        {
            image.change(from, 1, false);
            image.change(to, 1, true);
            inner.gain += u64::from(inner.held.is_empty() && inner.durable.get(from));
        }
        inner.give(from, 1);
    }

    /// Begins a checkpoint's image: what is in use now and belongs to the trees. `begin` runs at that very moment.
    pub(crate) fn begin_image(&self, begin: impl FnOnce()) {
        let mut inner = self.lock();
        inner.image = Some(inner.attached());
        // Where backups may hold some longer none is counted: pages that leave memory have the less.
        inner.gain = match inner.held.is_empty() {
            true => inner.taken - inner.used,
            false => 0,
        };
        self.unsaved.store(self.frames, Ordering::Relaxed);
        self.starved.store(false, Ordering::Relaxed);
        begin();
    }

    /// Begins the image of the last durable checkpoint once more, without these runs of its own.
    pub(crate) fn begin_same_image(&self, own: impl Iterator<Item = (u64, u64)>) {
        let mut inner = self.lock();
        let mut image = inner.durable.clone();
        own.for_each(|(start, count)| image.change(start, count, false));
        inner.image = Some(image);
    }

    /// Whether a checkpoint is between its instant and its end.
    pub(crate) fn has_image(&self) -> bool {
        self.lock().image.is_some()
    }

    /// Adds pages of the checkpoint's own to its image; the image as it is then.
    pub(crate) fn end_image(&self, own: [(u64, u64); 2]) -> Bitmap {
        let mut inner = self.lock();
        let mut image = inner.image.take().unwrap_or_else(|| inner.durable.clone());
        own.into_iter().for_each(|(start, count)| image.change(start, count, true));
        inner.image = Some(image.clone());
        image
    }

    /// The checkpoint under way is durable: what only the one before it needed is free.
    pub(crate) fn image_is_durable(&self) {
        let mut inner = self.lock();
        if let Some(image) = inner.image.take() {
            inner.durable = image;
        }
        self.squeezed.store(false, Ordering::Relaxed);
        inner.recount(self.capacity());
    }

    /// The checkpoint under way came to nothing.
    pub(crate) fn drop_image(&self) {
        let mut inner = self.lock();
        inner.image = None;
        self.keep_nothing_for_unsaved();
        inner.recount(self.capacity());
    }

    /// Keeps the pages of the last durable checkpoint from being used again until [`Space::release`].
    pub(crate) fn hold(&self) -> (u64, Bitmap) {
        let mut inner = self.lock();
        let hold = inner.next_hold;
        inner.next_hold += 1;
        let image = inner.durable.clone();
        inner.held.push((hold, image.clone()));
        inner.gain = 0;
        (hold, image)
    }

    /// The end of what [`Space::hold`] began.
    pub(crate) fn release(&self, hold: u64) {
        let mut inner = self.lock();
        inner.held.retain(|(of, _)| *of != hold);
        inner.recount(self.capacity());
    }
}

fn no_space(device: &dyn BlockDevice, needed_bytes: u64) -> Error {
    Error::with_hint(
        ErrorKind::NoSpace,
        format!("{} cannot grow to {needed_bytes} bytes", device.info().name),
        "make room on the device",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use qpair_block::RamDevice;

    fn space(pages: u64) -> Space {
        space_on(pages, true, 64)
    }

    fn fixed(pages: u64) -> Space {
        space_on(pages, false, 64)
    }

    fn space_on(pages: u64, growable: bool, frames: u32) -> Space {
        let device = RamDevice::new(qpair_block::RamOptions {
            size_bytes: pages * 4096,
            growable,
            ..qpair_block::RamOptions::default()
        });
        Space::new(Arc::new(device.unwrap()), 4096, frames)
    }

    #[test]
    fn what_a_checkpoint_has_is_not_handed_out_before_the_next() {
        let space = space(4096);
        let page = space.allocate(1, Purpose::New).unwrap();
        space.begin_image(|| {});
        space.end_image([(100, 1), (0, 0)]);
        space.image_is_durable();
        let place = space.allocate(1, Purpose::Eviction).unwrap();
        space.moved(page, place, || false);
        assert!(!space.is_used(page));
        for _ in 0..3000 {
            let other = space.allocate(1, Purpose::Checkpoint).unwrap();
            assert!(other != page && other != 100);
        }
        space.begin_image(|| {});
        space.image_is_durable();
        let all: Vec<u64> =
            std::iter::from_fn(|| space.allocate(1, Purpose::Checkpoint).ok()).collect();
        assert!(all.contains(&page) && all.contains(&100));
    }

    #[test]
    fn what_is_promised_nobody_else_takes() {
        let space = fixed(1024);
        let enter = || space.gate().try_enter().unwrap().unwrap();
        let (mut first, mut second) = (enter(), enter());
        assert!(!space.could_promise(2000));
        assert_eq!(space.promise(&mut first, 2000).unwrap_err().kind(), ErrorKind::NoSpace);
        assert_eq!(space.gate().promised(), 0);
        space.promise(&mut first, 600).unwrap();
        assert!(space.could_promise(600));
        space.promise(&mut second, 600).unwrap_err();
        space.promise(&mut second, 8).unwrap();
        let left = || space.counts().1;
        while space.allocate(1, Purpose::New).is_ok() {}
        assert!(left() > 600 + 96, "{}", left());
        while space.allocate(1, Purpose::Eviction).is_ok() {}
        assert!(left() > 600 + 96, "{}", left());
        while space.allocate(1, Purpose::Eviction).is_ok() {}
        // One was refused: what is promised is there for those inside, and the sweep finds its own.
        assert!(left() < 600 && left() >= 64 + 32, "{}", left());
        drop((first, second));
        assert_eq!(space.gate().promised(), 0);
    }

    #[test]
    fn a_page_whose_place_no_image_has_moves_on_a_full_device() {
        let space = fixed(512);
        let page = space.allocate(1, Purpose::New).unwrap();
        space.begin_image(|| {});
        space.keep_nothing_for_unsaved();
        space.end_image([(500, 1), (0, 0)]);
        space.image_is_durable();
        let place = space.allocate_to_move(page).unwrap();
        space.moved(page, place, || false);
        // All but one.
        while space.counts().1 > 1 {
            space.allocate(1, Purpose::Checkpoint).unwrap();
        }
        let next = space.allocate_to_move(place).unwrap();
        space.moved(place, next, || false);
        assert_eq!(space.counts().1, 1);
    }

    #[test]
    fn what_leaves_memory_beside_a_checkpoint_leaves_room_for_the_next() {
        let space = fixed(512);
        let pages: Vec<u64> = (0..300).map(|_| space.allocate(1, Purpose::New).unwrap()).collect();
        let durable = || {
            space.keep_nothing_for_unsaved();
            space.end_image([(500, 1), (0, 0)]);
            space.image_is_durable();
        };
        space.begin_image(|| {});
        durable();
        space.begin_image(|| {});
        space.keep_nothing_for_unsaved();
        let mut moved = 0;
        for page in pages {
            let Ok(place) = space.allocate_to_move(page) else { break };
            space.moved(page, place, || false);
            moved += 1;
        }
        durable();
        // The next image needs a place for each page in memory, and what these left is held for this one.
        assert!(space.counts().1 >= 64 + 32 && moved > 50, "{moved} {:?}", space.counts());
    }

    #[test]
    fn nothing_is_kept_to_write_out_what_the_logs_have() {
        let space = space_on(2048, false, 2048);
        let log = space.allocate_detached(1024, Purpose::Log).unwrap();
        space.keep_beside_logs().unwrap_err();
        let mut pages = 0;
        while space.allocate(1, Purpose::New).is_ok() {
            pages += 1;
        }
        assert!(pages > 300, "{pages}");
        // Back in the common store, they can hold a page, which would need a place again.
        space.free_log(log, 1024);
        assert!(space.allocate(1, Purpose::New).is_ok());
        assert_eq!(space.lock().log, 0);
    }

    #[test]
    fn detached_pages_are_in_no_image() {
        let space = space(1024);
        let run = space.allocate_detached(10, Purpose::New).unwrap();
        space.begin_image(|| {});
        assert!(!space.end_image([(1000, 1), (0, 0)]).get(run));
        space.drop_image();
        space.attach(run, 10);
        space.begin_image(|| {});
        assert!(space.end_image([(1000, 1), (0, 0)]).get(run + 9));
    }

    #[test]
    fn runs_are_found_across_words_and_round_the_end() {
        let space = space(1024);
        let (first, second) = (
            space.allocate(100, Purpose::Checkpoint).unwrap(),
            space.allocate(800, Purpose::Checkpoint).unwrap(),
        );
        assert_eq!((first, second), (2, 102));
        space.free(first, 100);
        assert_eq!(space.allocate(100, Purpose::Checkpoint).unwrap(), 902);
        assert_eq!(space.allocate(100, Purpose::Checkpoint).unwrap(), 2);
    }

    #[test]
    fn a_run_among_single_pages_does_not_make_the_device_much_larger() {
        let space = space(16384);
        let single = || space.allocate(1, Purpose::Checkpoint).unwrap();
        let pages: Vec<u64> = (0..16000).map(|_| single()).collect();
        pages.iter().step_by(2).for_each(|page| space.free(*page, 1));
        assert!(space.counts().1 >= 8000);
        for _ in 0..3 {
            assert!(space.allocate(256, Purpose::Log).unwrap() >= 16000);
        }
        assert!(space.capacity() <= 16384 + 2 * 256 + 16);
    }
}
