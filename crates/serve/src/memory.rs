//! A guest's memory, as described by its front end.
//!
//! Invariant: regions do not overlap, neither in the guest's addresses nor in the front end's.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use qpair_block::{Arena, Mapping, Segment};
use qpair_memory::SharedBytes;

/// The maximum number of regions of a guest's memory.
pub(crate) const REGIONS_MAX: usize = 64;

/// The addresses of a region: the guest's, the front end's, and the offset in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegionPlace {
    /// The first address in the guest, as used in descriptors.
    pub(crate) guest: u64,
    pub(crate) len_bytes: u64,
    /// The first address in the front end's process, as used in messages about rings.
    pub(crate) user: u64,
    pub(crate) file_offset_bytes: u64,
}

#[derive(Clone)]
struct Region {
    place: RegionPlace,
    mapping: Arc<Mapping>,
}

/// A place in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    region: usize,
    at: usize,
}

/// The regions of a guest's memory. A value never changes: when the regions change, queues are
/// stopped and start again with a new value.
#[derive(Clone, Default)]
pub(crate) struct GuestMemory {
    regions: Vec<Region>,
}

impl GuestMemory {
    /// Returns the memory with one more region.
    ///
    /// # Errors
    /// `InvalidInput` for a region that is empty, overlaps another, or is not a file in memory;
    /// `OutOfMemory` for too many regions; else the error of mmap.
    pub(crate) fn with(&self, place: RegionPlace, file: BorrowedFd<'_>) -> io::Result<Self> {
        let RegionPlace { guest, len_bytes, user, file_offset_bytes } = place;
        let apart = |start: u64, other: u64, other_len: u64| {
            start + len_bytes <= other || other + other_len <= start
        };
        let fits = len_bytes > 0
            && guest.checked_add(len_bytes).is_some()
            && user.checked_add(len_bytes).is_some();
        if !fits
            || !self.regions.iter().all(|Region { place, .. }| {
                apart(guest, place.guest, place.len_bytes)
                    && apart(user, place.user, place.len_bytes)
            })
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if self.regions.len() >= REGIONS_MAX {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let len = usize::try_from(len_bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mapping = Mapping::of_lasting_file(file, file_offset_bytes, len)?;
        let mut with = self.clone();
        with.regions.push(Region { place, mapping });
        Ok(with)
    }

    /// Returns the memory without the region at these addresses; `None` if there is no such region.
    pub(crate) fn without(&self, guest: u64, user: u64, len_bytes: u64) -> Option<Self> {
        let mut without = self.clone();
        without.regions.retain(|Region { place, .. }| {
            (place.guest, place.user, place.len_bytes) != (guest, user, len_bytes)
        });
        (without.regions.len() < self.regions.len()).then_some(without)
    }

    /// Whether the file of a region has lost pages.
    pub(crate) fn is_cut(&self) -> bool {
        self.regions.iter().any(|region| region.mapping.is_cut())
    }

    /// Makes an arena of this memory with `lists` segment lists for requests.
    pub(crate) fn arena(&self, lists: u32, segments_max: usize) -> Arc<Arena> {
        let regions = self.regions.iter().map(|region| region.mapping.clone()).collect();
        Arena::foreign(regions, lists, segments_max)
    }

    /// Finds `len_bytes` at an address of the front end; `None` if they are not all in one region.
    pub(crate) fn find_user(&self, user: u64, len_bytes: u64) -> Option<Place> {
        self.find(user, len_bytes, |place| place.user)
    }

    /// Finds `len_bytes` at an address of the guest; `None` if they are not all in one region.
    pub(crate) fn find_guest(&self, guest: u64, len_bytes: u64) -> Option<Place> {
        self.find(guest, len_bytes, |place| place.guest)
    }

    fn find(
        &self,
        address: u64,
        len_bytes: u64,
        start: impl Fn(&RegionPlace) -> u64,
    ) -> Option<Place> {
        let (region, at) = self.regions.iter().enumerate().find_map(|(number, region)| {
            let at = address.checked_sub(start(&region.place))?;
            (at < region.place.len_bytes).then_some((number, at))
        })?;
        let fits = len_bytes <= self.regions[region].place.len_bytes - at;
        fits.then_some(Place { region, at: at as usize })
    }

    /// Returns the bytes of a place's region, and the offset of the place in them.
    #[inline]
    pub(crate) fn bytes(&self, place: Place) -> (SharedBytes<'_>, usize) {
        (self.regions[place.region].mapping.bytes(), place.at)
    }

    /// Copies bytes from an address of the guest. Returns false if they are not all in one region.
    #[inline]
    pub(crate) fn read(&self, guest: u64, into: &mut [u8]) -> bool {
        let Some(place) = self.find_guest(guest, into.len() as u64) else { return false };
        let (bytes, at) = self.bytes(place);
        bytes.copy_to(at, into);
        true
    }

    /// Returns the number of bytes from an address of the guest to the end of its region; `None` if
    /// the address is in no region.
    #[inline]
    pub(crate) fn room_from(&self, guest: u64) -> Option<u64> {
        let Place { region, at } = self.find_guest(guest, 1)?;
        Some(self.regions[region].place.len_bytes - at as u64)
    }

    /// Appends the segments of `len_bytes` at an address of the guest: more than one if the bytes
    /// cross into another region. Returns false if some of the bytes are in no region.
    #[inline]
    pub(crate) fn segments(&self, mut guest: u64, len_bytes: u32, into: &mut Vec<Segment>) -> bool {
        let mut left = len_bytes;
        while left > 0 {
            let Some(Place { region, at }) = self.find_guest(guest, 1) else { return false };
            let here = self.regions[region].place.len_bytes - at as u64;
            let len_bytes = here.min(left.into()) as u32;
            into.push(Segment { region: region as u32, offset_bytes: at as u64, len_bytes });
            guest = guest.wrapping_add(len_bytes.into());
            left -= len_bytes;
        }
        true
    }
}

impl fmt::Debug for GuestMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.regions.iter().map(|region| region.place)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn place(guest: u64, user: u64) -> RegionPlace {
        RegionPlace { guest, len_bytes: 8192, user, file_offset_bytes: 0 }
    }

    #[test]
    fn addresses_lead_to_segments() {
        let file = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 8192).unwrap();
        let none = GuestMemory::default();
        let one = none.with(place(0x1000, 0x70000), file.as_fd()).unwrap();
        // The guest's addresses continue where the first region ends, but the front end's do not.
        let two = one.with(place(0x3000, 0x90000), file.as_fd()).unwrap();
        let mut found = Vec::new();
        assert!(two.segments(0x2F00, 0x200, &mut found));
        let segment = |region, offset_bytes, len_bytes| Segment { region, offset_bytes, len_bytes };
        assert_eq!(found, [segment(0, 0x1F00, 0x100), segment(1, 0, 0x100)]);
        assert!(!two.segments(0x4F00, 0x101, &mut found), "past the end");
        assert!(!two.segments(0xFFF, 1, &mut found), "before the beginning");
        assert!(!one.segments(u64::MAX, 2, &mut found));
        assert!(two.find_guest(0x2F00, 0x200).is_none(), "in two regions");
        assert!(two.find_user(0x71F00, 0x100).is_some() && two.find_user(0x71F00, 0x101).is_none());
        let last = two.without(0x1000, 0x70000, 8192).unwrap();
        assert!(last.find_guest(0x1000, 1).is_none() && last.find_guest(0x3000, 1).is_some());
        assert!(last.without(0x1000, 0x70000, 8192).is_none());
    }

    #[test]
    fn regions_that_make_no_sense_are_refused() {
        let file = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 8192).unwrap();
        let one = GuestMemory::default().with(place(0x1000, 0x70000), file.as_fd()).unwrap();
        for wrong in [
            place(0x2000, 0x90000),
            place(0x8000, 0x71000),
            place(u64::MAX - 8191, 0x90000),
            RegionPlace { len_bytes: 0, ..place(0x8000, 0x90000) },
            RegionPlace { len_bytes: 8193, ..place(0x8000, 0x90000) },
            RegionPlace { file_offset_bytes: 4096, ..place(0x8000, 0x90000) },
            RegionPlace { file_offset_bytes: u64::MAX - 7, ..place(0x8000, 0x90000) },
        ] {
            let refused = one.with(wrong, file.as_fd()).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{wrong:?}");
        }
        let disk = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(one.with(place(0x8000, 0x90000), disk.as_fd()).is_err(), "a file on a disk");
    }
}
