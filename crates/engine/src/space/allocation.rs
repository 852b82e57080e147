//! Allocating pages: how many each purpose must leave free, and which pages it gets.

use std::ops::Range;
use std::sync::atomic::Ordering;

use qpair_format::{Error, ErrorKind, Result};

use super::inner::Inner;
use super::{Purpose, Space, left_by_new, reserve_of_eviction, reserve_of_first_log};

impl Space {
    /// Allocates `count` pages in a row. Space that this returns is reserved on the device.
    ///
    /// # Errors
    /// `NoSpace`; nothing is allocated then.
    pub(crate) fn allocate(&self, count: u64, purpose: Purpose) -> Result<u64> {
        let mut inner = self.inner.lock();
        self.allocate_locked(&mut inner, count, purpose)
    }

    /// Allocates a new place for a page that leaves memory. The page stays at `from` until
    /// [`Space::moved`].
    ///
    /// # Errors
    /// `NoSpace`.
    pub(crate) fn allocate_to_move(&self, from: u64) -> Result<u64> {
        let mut inner = self.inner.lock();
        let purpose = match inner.is_kept(from) {
            true => Purpose::Eviction,
            false => Purpose::EvictionAgain,
        };
        self.allocate_locked(&mut inner, 1, purpose)
    }

    /// Allocates from one to `most` pages in a row: as many as follow the next free one. For
    /// callers that need many pages, but not in one run.
    ///
    /// # Errors
    /// `NoSpace`; nothing is allocated then.
    pub(crate) fn allocate_some(&self, most: u64, purpose: Purpose) -> Result<Range<u64>> {
        self.allocate_some_locked(&mut self.inner.lock(), most, purpose)
    }

    /// Allocates pages like [`Space::allocate_some`]. The pages belong to no checkpoint.
    ///
    /// # Errors
    /// As [`Space::allocate_some`].
    pub(crate) fn allocate_some_unlinked(&self, most: u64, purpose: Purpose) -> Result<Range<u64>> {
        let mut inner = self.inner.lock();
        let pages = self.allocate_some_locked(&mut inner, most, purpose)?;
        inner.unlink(pages.start, pages.end - pages.start);
        Ok(pages)
    }

    fn allocate_some_locked(
        &self,
        inner: &mut Inner,
        most: u64,
        purpose: Purpose,
    ) -> Result<Range<u64>> {
        let start = self.allocate_locked(inner, 1, purpose)?;
        // Each further page leaves as many pages free as the first. The reserve grows with the
        // number of pages in use.
        let kept = self.reserve_of(inner, most - 1, purpose);
        let room = inner.free(self.capacity()).saturating_sub(kept);
        let last = (start + most).min(start + 1 + room).min(self.capacity());
        let mut end = start + 1;
        while end < last && !inner.is_taken(end) {
            end += 1;
        }
        inner.take(start + 1, end - start - 1);
        inner.cursor = (end / 64) as usize;
        Ok(start..end)
    }

    pub(super) fn allocate_locked(
        &self,
        inner: &mut Inner,
        count: u64,
        purpose: Purpose,
    ) -> Result<u64> {
        let keep = self.reserve_of(inner, 0, purpose);
        let mut refusal = None;
        if inner.free(self.capacity()) < count + keep {
            refusal = self.grow(inner, count + keep, purpose).err();
        }
        if inner.free(self.capacity()) >= count + keep {
            let is_full = inner.refused_bytes.is_some() && self.is_short_of(inner);
            let found = match count == 1 && is_full {
                true => inner.find_in_short_row(self.capacity()),
                false => inner.find_before_front(count, self.capacity()),
            };
            if let Some(start) = found.or_else(|| inner.find(count, self.capacity())) {
                inner.take(start, count);
                self.note_low(inner, keep);
                return Ok(start);
            }
            // There is enough space, but not in a row. The device grows by one row and no more: in
            // a store whose pages move all the time, the free pages are scattered however large the
            // device is.
            inner.row_cursor = (self.capacity() / 64) as usize;
            refusal = self.grow_for_row(count).err();
            if let Some(start) = inner.find(count, self.capacity()) {
                inner.take(start, count);
                return Ok(start);
            }
        }
        match purpose {
            Purpose::Eviction | Purpose::EvictionAgain => {
                self.squeezed.store(true, Ordering::Relaxed)
            }
            _ => match (count + keep).saturating_sub(inner.free(self.capacity())) {
                0 => self.note_short(count),
                pages => self.note_short(pages),
            },
        }
        Err(refusal.unwrap_or_else(|| self.no_row(count)))
    }

    pub(super) fn no_row(&self, count: u64) -> Error {
        Error::with_hint(
            ErrorKind::NoSpace,
            format!("there is no run of {count} free pages on {}", self.device.info().name),
            "make room on the device, or delete records and let a checkpoint pass",
        )
    }

    /// Returns the number of pages that a request for a purpose must leave free, with `more` pages
    /// allocated: pages in memory must still find a place when new pages do not.
    pub(super) fn reserve_of(&self, inner: &Inner, more: u64, purpose: Purpose) -> u64 {
        let written_out = self.written_out_with(inner, more);
        match purpose {
            _ if self.urgent.load(Ordering::Relaxed) => 0,
            Purpose::New | Purpose::Log => left_by_new(written_out) + self.reserved_more(),
            // The checkpoint has begun: a page that leaves memory now was changed after its
            // instant.
            Purpose::Eviction if inner.image.is_some() => {
                // The checkpoint's image keeps the old places of these pages. Once it is durable,
                // enough pages must be free for the next checkpoint's writer.
                let then = (written_out + written_out / 4).saturating_sub(inner.gain);
                let now = (written_out / 4).max(self.unsaved.load(Ordering::Relaxed));
                now.max(then) + self.reserved_more()
            }
            // A checkpoint will begin: commits inside the barrier need frames until its instant.
            Purpose::Eviction if self.is_squeezed() => match self.starved.load(Ordering::Relaxed) {
                true => written_out / 4,
                false => written_out,
            },
            Purpose::Eviction => reserve_of_eviction(written_out) + self.reserved_more(),
            Purpose::FirstLog => reserve_of_first_log(written_out) + self.reserved_more(),
            // Each new place frees the old one at once. The checkpoint writer needs its own places
            // meanwhile.
            Purpose::EvictionAgain => self.unsaved.load(Ordering::Relaxed),
            Purpose::Checkpoint => 0,
        }
    }
}
