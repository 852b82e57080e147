//! Pages: the byte layout of everything the engine keeps, see docs/design/page-format.md.
//!
//! All integers are little-endian. A page begins with a 64-byte header; slots grow up behind it, the heap with
//! keys and values grows down from the fence keys at the page's end.

mod build;
mod expected;
mod node;
mod node_mut;
mod slots;
mod staged;

pub use build::{separator_len, shared_prefix_len};
pub use expected::{Expected, child_of};
pub use node::{LeafValue, Node};
pub use node_mut::{NodeInit, NodeMut};
use qpair_block::Buffer;

use crate::head::head_u32;
use crate::place::{page_of, version_of};
pub use staged::Staged;

/// Bytes of every page's header.
pub const HEADER_BYTES: usize = 64;

/// Hints of an inner page, behind its header: heads of slots at even distances, so that a search touches one
/// cache line to know which few to look at.
pub const HINTS: usize = 16;
/// Bytes of the hints.
pub const HINT_BYTES: usize = HINTS * HEAD_BYTES;
/// Slots from which on hints are used.
pub const HINTED_COUNT_MIN: usize = 2 * (HINTS + 1);

/// Bytes before the first slot.
#[inline(always)]
pub const fn slots_offset(leaf: bool) -> usize {
    if leaf { HEADER_BYTES } else { HEADER_BYTES + HINT_BYTES }
}

/// Offsets of the header's fields, bytes.
pub mod field {
    /// u32: CRC-32C of the rest of the page.
    pub const CHECKSUM: usize = 0;
    /// u8: [`super::PageKind`].
    pub const KIND: usize = 4;
    /// u8: 0 for leaves, one more for each level above.
    pub const LEVEL: usize = 5;
    /// u16: slots.
    pub const COUNT: usize = 6;
    /// u64: the page's own [place](crate::place), to tell misdirected reads and writes, and lost ones.
    pub const PAGE_ID: usize = 8;
    /// u64, leaves: the timestamp of the newest commit that changed the page.
    pub const LSN: usize = 16;
    /// u32: the tree the page belongs to.
    pub const TREE_ID: usize = 24;
    /// u32: lowest byte of the heap.
    pub const HEAP_START: usize = 28;
    /// u32: bytes in the heap that nothing refers to.
    pub const DEAD_BYTES: usize = 32;
    /// u16: bytes all keys of the page share, cut off.
    pub const PREFIX_LEN: usize = 36;
    /// u16: length of the lower fence.
    pub const LOWER_LEN: usize = 38;
    /// u16: length of the upper fence.
    pub const UPPER_LEN: usize = 40;
    /// u16: bit 0: there is an upper fence (otherwise it is infinite).
    pub const FLAGS: usize = 42;
    /// u64, inner pages: the child right of the last slot.
    pub const LAST_CHILD: usize = 48;

    /// Overflow pages, u64 at the place of LAST_CHILD: the value's timestamp. Pages of older values: their run's number.
    pub const TIMESTAMP: usize = 48;
    /// Overflow pages, u32: which page of the value, from 0.
    pub const PART: usize = 56;
    /// Overflow pages, u32: bytes of the value in this page.
    pub const PART_BYTES: usize = 60;
}

/// The kind of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PageKind {
    /// Keys and child references.
    Inner = 1,
    /// Keys and values.
    Leaf = 2,
    /// A part of a value that is too large for a leaf.
    Overflow = 3,
    /// A checkpoint record.
    CheckpointRecord = 4,
    /// A part of a checkpoint's image: roots, logs, pages in use.
    CheckpointImage = 5,
    /// Older values of rows, for snapshots; of no use after a crash.
    History = 6,
    /// A part of the list of runs that a large value is in.
    Extents = 7,
}

/// Bytes of a leaf's slot: head u32, record offset u16, key length u16.
pub const LEAF_SLOT_BYTES: usize = 8;
/// Bytes of an inner page's slot: as a leaf's, then the child, u64.
pub const INNER_SLOT_BYTES: usize = 16;
/// Key bytes that live in the slot itself.
pub const HEAD_BYTES: usize = 4;
/// Bytes before the key in a leaf's record: the value's length, u16; bit 15: it is an overflow descriptor.
pub const RECORD_HEAD_BYTES: usize = 2;
/// Bit 15 of a record's value length.
pub const OVERFLOW_FLAG: u16 = 1 << 15;

/// Smallest page, bytes.
pub const PAGE_SIZE_MIN: usize = 512;
/// Largest page, bytes.
pub const PAGE_SIZE_MAX: usize = 64 << 10;
/// Longest key of any store, bytes; small pages have a lower limit ([`key_len_max`]).
pub const KEY_LEN_MAX: usize = 1024;
/// Longest value, bytes.
pub const VALUE_LEN_MAX: usize = 16 << 20;

/// Longest key of a store with pages of this size: one record and both fences always fit into a page.
#[must_use]
#[inline]
pub const fn key_len_max(page_size: usize) -> usize {
    let longest = (page_size - 4 * HEADER_BYTES) / 3;
    if longest < KEY_LEN_MAX { longest } else { KEY_LEN_MAX }
}

/// Longest key and value together that are kept in the leaf; the value of a longer record goes to overflow pages. Three such
/// records fit into a page whose fences are short, and one into any.
#[inline]
pub const fn inline_len_max(page_size: usize) -> usize {
    (page_size - HEADER_BYTES) / 3 - LEAF_SLOT_BYTES - RECORD_HEAD_BYTES
}

const _: () = {
    let mut page_size = PAGE_SIZE_MIN;
    while page_size <= PAGE_SIZE_MAX {
        // One record and both fences.
        let record_bytes = inline_len_max(page_size) + LEAF_SLOT_BYTES + RECORD_HEAD_BYTES;
        assert!(HEADER_BYTES + record_bytes + 2 * key_len_max(page_size) <= page_size);
        assert!(inline_len_max(page_size) < OVERFLOW_FLAG as usize);
        page_size *= 2;
    }
};

/// CRC-32C of a page, all but the checksum itself.
#[inline]
pub fn checksum(page: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(&page[4..])
}

/// Puts the checksum into a page that is in a buffer from `offset` on.
#[inline]
pub fn seal(buffer: &mut Buffer, offset: usize, page_size: usize) {
    let sum = checksum(&buffer.as_slice()[offset..offset + page_size]);
    NodeMut::new(buffer.part_mut(offset, page_size)).set_checksum(sum);
}

/// A word of bytes that are long enough.
#[inline(always)]
pub fn word(page: &[u8], at: usize) -> u64 {
    page[at..at + 8].try_into().map_or(0, u64::from_le_bytes)
}

/// Returns the damage of a page that should be in `place`, as far as its checksum, id and version
/// tell.
#[inline]
pub fn damage(page: &[u8], place: u64) -> Option<String> {
    let (stored, sum) = (word(page, field::CHECKSUM) as u32, checksum(page));
    let stored_place = word(page, field::PAGE_ID);
    if stored == sum && stored_place == place {
        None
    } else if page.iter().all(|byte| *byte == 0) {
        Some("is all zeroes".to_owned())
    } else if stored != sum {
        Some(format!("has checksum {stored:08x}, its bytes give {sum:08x}"))
    } else if page_of(stored_place) != page_of(place) {
        Some(format!("says it is page {}", page_of(stored_place)))
    } else {
        let (stored, version) = (version_of(stored_place), version_of(place));
        Some(format!("is of version {stored}, not {version}: the device lost a write"))
    }
}

/// A page's bytes as words, to look at it as a node.
#[inline]
pub fn words_of(page: &[u8]) -> Vec<u64> {
    page.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes)).collect()
}

/// The place of a page as it says itself, if its id is this one; else a place that is not its own.
#[inline]
pub fn own_place(page: &[u8], page_id: u64) -> u64 {
    let stored = word(page, field::PAGE_ID);
    if page_of(stored) == page_id { stored } else { page_id }
}

/// The first four bytes of a key suffix as an integer that sorts as the bytes do.
#[inline(always)]
pub fn head_of(suffix: &[u8]) -> u32 {
    head_u32(suffix)
}
