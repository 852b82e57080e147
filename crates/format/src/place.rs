//! Places: the address of a page on the device, together with the expected version of the page.
//!
//! A place is a word: the page's id in bits 0 to 39, the *version* in bits 40 to 61. The page has
//! the word in its header, and the reference to the page, or the image of a checkpoint, has the
//! same word. A device that loses a write returns the earlier content of the place, which has
//! another version. A page to which nothing refers by a place has version 0, and so has every page
//! of a store from before there were versions.

use std::sync::atomic::{AtomicU32, Ordering};

const PAGE_BITS: u32 = 40;
const VERSION_BITS: u32 = 22;
/// The maximum number of pages that a store uses. The rest of a larger device is not used.
pub const PAGES_MAX: u64 = 1 << PAGE_BITS;

#[inline(always)]
pub const fn page_of(place: u64) -> u64 {
    place & (PAGES_MAX - 1)
}

#[inline]
pub const fn version_of(place: u64) -> u64 {
    place >> PAGE_BITS
}

#[inline]
pub fn place(page_id: u64, version: u32) -> u64 {
    page_id | u64::from(version) << PAGE_BITS
}

/// Half of the versions: one half is for images, the other for pages that move on their own.
const HALF: u32 = 1 << (VERSION_BITS - 1);

/// Chooses versions. A place is not repeated for two million page moves, or checkpoints.
#[derive(Debug)]
pub struct Versions {
    /// The first version, which differs in each incarnation of a store.
    salt: u32,
    moved: AtomicU32,
}

impl Default for Versions {
    fn default() -> Self {
        Self { salt: fastrand::u32(..), moved: fastrand::u32(..).into() }
    }
}

impl Versions {
    /// Returns the place of a page that is written to `page_id` for no image.
    #[inline]
    pub fn moved(&self, page_id: u64) -> u64 {
        let count = self.moved.fetch_add(1, Ordering::Relaxed) % (HALF - 1);
        place(page_id, 1 + count)
    }

    /// Returns the version of all pages that go to new places for the image of an epoch. The
    /// version does not depend on the task that chooses the place.
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
