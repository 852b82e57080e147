//! The descriptor that a leaf holds in the place of a large value, and the pages with the value's
//! parts.

use std::ops::Range;

use crate::error::{Error, ErrorKind, Result};
use crate::page::{HEADER_BYTES, PageKind, field};

/// The bit of a descriptor's first page that says that it is the first page of a list.
const LISTED: u64 = 1 << 63;

/// The location of a large value, kept in the leaf in the value's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The first page of the run, or the first page of the list if the value has several runs.
    pub page_id: u64,
    /// Whether the value's pages are several runs, named by a list on pages of its own.
    pub listed: bool,
    /// The timestamp that every page of this value has, and no page of another value.
    pub timestamp: u64,
    pub len: u32,
    pub pages: u32,
}

impl Descriptor {
    /// The size of an encoded descriptor in bytes.
    pub const BYTES: usize = 24;

    #[inline]
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let first = self.page_id | if self.listed { LISTED } else { 0 };
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.timestamp.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.len.to_le_bytes());
        bytes[20..].copy_from_slice(&self.pages.to_le_bytes());
        bytes
    }

    /// Decodes a descriptor from a leaf.
    ///
    /// # Errors
    /// `Corrupt` if the bytes are not a valid descriptor.
    #[inline]
    pub fn decode(bytes: &[u8], page_size: usize) -> Result<Self> {
        let word = |from: usize| {
            bytes.get(from..from + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes)
        };
        let half = |from: usize| {
            bytes.get(from..from + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes)
        };
        let descriptor = (|| {
            let (first, timestamp) = (word(0)?, word(8)?);
            let (page_id, listed) = (first & !LISTED, first & LISTED != 0);
            Some(Self { page_id, listed, timestamp, len: half(16)?, pages: half(20)? })
        })();
        descriptor
            .filter(|d| {
                bytes.len() == Self::BYTES
                    && d.pages as usize == pages_of(d.len as usize, page_size)
            })
            .ok_or_else(|| {
                Error::new(ErrorKind::Corrupt, "an overflow descriptor cannot be decoded")
            })
    }

    #[inline]
    pub fn first_page(encoded: &[u8]) -> Option<u64> {
        encoded.first_chunk().map(|first| u64::from_le_bytes(*first) & !LISTED)
    }

    /// Returns the value's pages if they are one run.
    #[inline]
    pub fn run(self) -> Option<Range<u64>> {
        let end = self.page_id.saturating_add(self.pages.into());
        (!self.listed).then_some(self.page_id..end)
    }

    /// Returns a key that is unique among large values.
    #[inline]
    pub fn key(self) -> (u64, u64) {
        (self.page_id, self.timestamp)
    }
}

/// Returns the maximum number of bytes of a value in one page.
#[inline]
pub fn part_bytes(page_size: usize) -> usize {
    page_size - HEADER_BYTES
}

#[inline]
pub fn pages_of(len: usize, page_size: usize) -> usize {
    len.div_ceil(part_bytes(page_size)).max(1)
}

#[inline]
pub fn part_len(descriptor: Descriptor, part: u32, page_size: usize) -> usize {
    let capacity = part_bytes(page_size);
    (descriptor.len as usize).saturating_sub(part as usize * capacity).min(capacity)
}

/// Returns the bytes of a value in a page whose checksum and id are right, or `None` if the page
/// does not hold this part of this value.
#[inline]
pub fn part_of(page: &[u8], descriptor: Descriptor, part: u32) -> Option<&[u8]> {
    let half = |at: usize| page[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
    let timestamp =
        page[field::TIMESTAMP..field::TIMESTAMP + 8].try_into().map_or(0, u64::from_le_bytes);
    let len = part_len(descriptor, part, page.len());
    let is_it = page[field::KIND] == PageKind::Overflow as u8
        && timestamp == descriptor.timestamp
        && half(field::PART) == part
        && half(field::PART_BYTES) as usize == len;
    is_it.then(|| &page[HEADER_BYTES..HEADER_BYTES + len])
}
