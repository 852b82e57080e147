//! Places that are reserved for commits before they have their timestamps. See
//! docs/design/checkpoints.md, *A place for every page*.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use qpair_format::{Error, ErrorKind, Result};

use super::inner::Inner;
use super::{
    BarrierGuard, CommitBarrier, Purpose, Space, left_by_new, reserve_of_eviction, written_out_of,
};

/// The fraction of the frames for which places are reserved without a check of the free pages.
const FREELY_PART: u64 = 4;

/// The number of pages that a commit may have to find places for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reservation {
    pub(crate) changed: u64,
    /// The number of pages that the commit makes after its timestamp.
    pub(crate) made: u64,
}

impl Space {
    /// Returns the barrier of the changes whose pages find places here.
    pub(crate) fn barrier(&self) -> Arc<CommitBarrier> {
        self.barrier.clone()
    }

    /// Returns the number of pages that may be reserved without a check of the free pages: see
    /// docs/design/checkpoints.md, *A place for every page*.
    pub(super) fn reserved_freely(&self) -> u64 {
        self.frames() / FREELY_PART
    }

    /// Returns the number of reserved pages beyond those that need no check.
    pub(super) fn reserved_more(&self) -> u64 {
        self.barrier.reserved().saturating_sub(self.reserved_freely())
    }

    /// Reserves places for a change that is inside the barrier and has no timestamp yet, one for
    /// each page that its commit may change or make. With them the commit can complete, whichever
    /// pages have to leave memory meanwhile.
    ///
    /// # Errors
    /// `NoSpace`; nothing is reserved then.
    pub(crate) fn reserve_places(
        &self,
        inside: &mut BarrierGuard,
        reserved: Reservation,
    ) -> Result<()> {
        let (freely, pages) = (self.reserved_freely(), reserved.changed + reserved.made);
        if reserved.made == 0 && self.barrier.reserved() + pages <= freely {
            if inside.reserve(pages) <= freely {
                return Ok(());
            }
            inside.take_back();
        }
        // A change that asks for that much asks under the lock: of several that have no room beside
        // each other one has it. The pages are added before the sum is looked at, so that no change
        // beside it gets pages without a look.
        let mut inner = self.inner.lock();
        let all = inside.reserve(pages);
        let needed = self.needed_for(&inner, reserved, all - pages, self.frames());
        if inner.free(self.capacity()) < needed {
            // Ignore the system's error about the file: it does not help a caller that can split
            // its transaction.
            let _ = self.grow(&mut inner, needed, Purpose::New);
        }
        let free = inner.free(self.capacity());
        if free < needed {
            self.note_short(needed - free);
            inside.take_back();
            return Err(Error::with_hint(
                ErrorKind::NoSpace,
                format!(
                    "the transaction may move {pages} pages and needs {needed} free pages on {}; the store has {free}",
                    self.device.info().name
                ),
                "change less in one transaction, or make room on the device",
            ));
        }
        Ok(())
    }

    /// Returns the number of pages that must be free for a reservation beside the `others` that are
    /// reserved.
    fn needed_for(
        &self,
        inner: &Inner,
        Reservation { changed, made }: Reservation,
        others: u64,
        frames: u64,
    ) -> u64 {
        let freely = frames / FREELY_PART;
        let then = written_out_of(inner, made, frames);
        let to_change =
            reserve_of_eviction(then) + (others + changed + made).saturating_sub(freely);
        // New pages stay in use, so they must leave as many free pages as if they were allocated
        // now.
        let to_make = match made {
            0 => 0,
            _ => left_by_new(then) + others.saturating_sub(freely) + made,
        };
        to_change.max(to_make)
    }

    /// Whether the reservation would succeed if no other change had one, no page was kept for
    /// images, and at most `frames` frames were used.
    pub(crate) fn could_reserve(&self, reserved: Reservation, frames: u32) -> bool {
        let inner = self.inner.lock();
        let frames = self.frames().min(u64::from(frames));
        reserved.made == 0 && reserved.changed <= self.reserved_freely()
            || inner.used + self.needed_for(&inner, reserved, 0, frames) <= self.capacity()
    }

    /// Notes that a commit that has its timestamp found no frame, so that it may use more of the
    /// pages that are kept for the next checkpoint.
    pub(crate) fn note_starved(&self) {
        self.starved.store(true, Ordering::Relaxed);
    }
}
