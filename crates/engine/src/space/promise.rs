//! Places that are promised to commits before they have their stamps. See docs/design/checkpoints.md, *A place for every page*.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Purpose, Space};
use crate::checkpoint::{Gate, GateGuard};
use crate::error::{Error, ErrorKind, Result};

impl Space {
    /// The gate of those whose pages find places here.
    pub(crate) fn gate(&self) -> Arc<Gate> {
        self.gate.clone()
    }

    /// Pages that may be promised without a look at what is free: see docs/design/checkpoints.md, *A place for every page*.
    pub(super) fn promised_freely(&self) -> u64 {
        self.frames / 4
    }

    /// What is promised beyond that.
    pub(super) fn promised_more(&self) -> u64 {
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
}
