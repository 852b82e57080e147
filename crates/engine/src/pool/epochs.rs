//! Epochs: the time between the instants of two checkpoints. A frame states the epoch of its page.

use std::sync::atomic::{AtomicU64, Ordering};

use qpair_format::place::{Versions, place};

/// The current epoch, and whether its image is being written. Both are in one word, so that they
/// are read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch {
    pub(crate) number: u32,
    pub(crate) saving: bool,
    /// The version in the addresses of the pages that are written for the epoch's image.
    version: u32,
}

impl Epoch {
    /// Returns the place of a page in the epoch's image.
    pub(super) fn place(self, page_id: u64) -> u64 {
        place(page_id, self.version)
    }
}

/// The progress of checkpoints; shared by all workers.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    /// `number << 1 | saving`.
    epoch: AtomicU64,
    /// Selects which of their two counters workers count new page transfers in.
    phase: AtomicU64,
    /// Checkpoints that became durable since the store was opened.
    pub(crate) completed: AtomicU64,
    pub(crate) versions: Versions,
    /// Checkpoints that found no space and were given up.
    pub(crate) refused: AtomicU64,
}

impl Checkpoints {
    #[inline(always)]
    pub(crate) fn epoch(&self) -> Epoch {
        let word = self.epoch.load(Ordering::Acquire);
        let number = (word >> 1) as u32;
        Epoch { number, saving: word & 1 == 1, version: self.versions.of_image(number) }
    }

    pub(crate) fn begin(&self) {
        let number = u64::from(self.epoch().number) + 1;
        self.epoch.store(number << 1 | 1, Ordering::Release);
    }

    /// Notes that all of the image is written, or that the image was given up.
    pub(crate) fn end(&self) {
        let word = self.epoch.load(Ordering::Relaxed);
        self.epoch.store(word & !1, Ordering::Release);
    }

    /// Returns which of its two counters a worker uses for a page transfer that it begins now.
    #[inline(always)]
    pub(crate) fn phase(&self) -> u64 {
        self.phase.load(Ordering::Acquire) & 1
    }

    /// Counts transfers in the other phase from now on. Returns the phase whose transfers the
    /// caller waits for.
    pub(crate) fn flip(&self) -> u64 {
        self.phase.fetch_xor(1, Ordering::AcqRel) & 1
    }
}
