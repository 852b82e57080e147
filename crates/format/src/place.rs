//! Places: where a page is on the device, and which of all writes to there is meant.
//!
//! A place is a word: the page's id in bits 0 to 39, the *version* in bits 40 to 61. The page has it in its header; the reference to it, or the
//! image of a checkpoint, has the same word. A device that loses a write gives back what lay there before, with another version.
//! A page to which nothing refers by a place has version 0, and so has every page of a store from before there were versions.

use std::sync::atomic::{AtomicU32, Ordering};

const PAGE_BITS: u32 = 40;
const VERSION_BITS: u32 = 22;
/// Pages that a store uses at most; what a device has beyond them is left alone.
pub const PAGES_MAX: u64 = 1 << PAGE_BITS;

/// The id of the page in a place.
#[inline(always)]
pub const fn page_of(place: u64) -> u64 {
    place & (PAGES_MAX - 1)
}

/// The version in a place.
#[inline]
pub const fn version_of(place: u64) -> u64 {
    place >> PAGE_BITS
}

/// The place of a page that has this version.
#[inline]
pub fn place(page_id: u64, version: u32) -> u64 {
    page_id | u64::from(version) << PAGE_BITS
}

/// Half of the versions: there are as many for images as for pages that move on their own.
const HALF: u32 = 1 << (VERSION_BITS - 1);

/// Chooses versions. A place that comes back is another's for two million pages, or checkpoints.
#[derive(Debug)]
pub struct Versions {
    /// Each incarnation of a store begins somewhere else.
    salt: u32,
    moved: AtomicU32,
}

impl Default for Versions {
    fn default() -> Self {
        Self { salt: fastrand::u32(..), moved: fastrand::u32(..).into() }
    }
}

impl Versions {
    /// The place of a page that is to be written there for no image.
    #[inline]
    pub fn moved(&self, page_id: u64) -> u64 {
        let count = self.moved.fetch_add(1, Ordering::Relaxed) % (HALF - 1);
        place(page_id, 1 + count)
    }

    /// The version of all pages that go to new places for the image of an epoch: the version does not depend on
    /// the task that chooses the place.
    #[inline(always)]
    pub fn of_image(&self, epoch: u32) -> u32 {
        HALF | (self.salt.wrapping_add(epoch) % HALF)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_differ_and_stay_in_their_bits() {
        let versions = Versions::default();
        let page_id = PAGES_MAX - 1;
        let moved: Vec<u64> = (0..100).map(|_| versions.moved(page_id)).collect();
        let of_image = |epoch| place(page_id, versions.of_image(epoch));
        let of_images: Vec<u64> = (7..107).map(of_image).collect();
        let all: std::collections::BTreeSet<u64> = moved.into_iter().chain(of_images).collect();
        assert_eq!(all.len(), 200);
        for place in all {
            assert_eq!(page_of(place), page_id);
            assert!(version_of(place) > 0 && version_of(place) < 1 << VERSION_BITS);
        }
    }
}
