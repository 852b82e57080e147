//! The writes of a device at a server that the server may still lose.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The writes of all channels that have ended without the server's word that they are durable, and
/// how many of them a flush has covered.
///
/// Invariant: once a connection was lost while there were more of the former, no flush of the
/// device succeeds.
#[derive(Debug, Default)]
pub struct UnflushedWrites {
    ended: AtomicU64,
    covered: AtomicU64,
    are_lost: AtomicBool,
}

// A flush covers the writes whose ends its caller knew of. Whatever told the caller orders their
// counts before the flush's, so Acquire and Release would order nothing more between counts; they
// order `are_lost` with them.
impl UnflushedWrites {
    /// Takes notice of a write that has ended.
    pub fn end(&self) {
        self.ended.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the number of writes that a flush covers that is submitted now.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }

    /// Takes notice of a flush that succeeded.
    pub fn cover(&self, count: u64) {
        self.covered.fetch_max(count, Ordering::AcqRel);
    }

    /// Takes notice of a lost connection, and returns whether it may be the first to lose writes.
    #[must_use]
    pub fn lose(&self) -> bool {
        let open = self.ended() > self.covered.load(Ordering::Acquire);
        open && !self.are_lost.swap(true, Ordering::AcqRel)
    }

    /// Whether a connection was lost with writes that no flush had covered.
    #[must_use]
    pub fn are_lost(&self) -> bool {
        self.are_lost.load(Ordering::Acquire)
    }
}
