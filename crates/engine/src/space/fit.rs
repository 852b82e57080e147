//! The number of frames that the free space allows. See docs/design/space.md, *A pool that fits the
//! device*.

use std::sync::atomic::Ordering;

use super::{Space, left_by_new};

/// The number of free pages for each page of the reserve, for a pool that was fitted to them: the
/// other half is room for changes.
const FREE_TO_RESERVE: u64 = 2;

impl Space {
    /// Returns the number of frames that may have pages, and so the number of pages that may have
    /// to be written out.
    pub(crate) fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Sets the number of frames that may have pages. No change may be inside the barrier, because
    /// reservations are measured by this number.
    pub(crate) fn set_frames(&self, frames: u32) {
        self.frames.store(u64::from(frames), Ordering::Relaxed);
    }

    /// Returns the number of frames whose reserve leaves half of the free pages to changes.
    pub(crate) fn frames_that_fit(&self) -> u64 {
        let free = self.inner.lock().free(self.capacity());
        frames_that_fit(free)
    }
}

/// Returns the greatest number of frames whose reserve is half of `free` pages.
fn frames_that_fit(free: u64) -> u64 {
    // The inverse of the reserve, which is 7 / 4 of the frames plus 32.
    debug_assert_eq!(left_by_new(4), 7);
    (free / FREE_TO_RESERVE * 4 / 7).saturating_sub(32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_half_of_what_is_free() {
        for free in [500, 1000, 6196, 100_000] {
            let frames = frames_that_fit(free);
            assert!(left_by_new(frames + 32) <= free / 2, "{free}");
            assert!(left_by_new(frames + 34) > free / 2, "{free}");
        }
        assert_eq!(frames_that_fit(0), 0);
    }
}
