//! Pages: the byte layout of everything that the engine stores in pages, see
//! docs/design/page-format.md.
//!
//! All integers are little-endian. A page begins with a 64-byte header. Slots grow up behind the
//! header; the heap with keys and values grows down from the fence keys at the page's end.

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

pub const HEADER_BYTES: usize = 64;

/// The number of hints in an inner page. Hints are the heads of slots at even distances, behind the
/// page header: a search touches one cache line to know which few slots to look at.
pub const HINTS: usize = 16;
pub const HINT_BYTES: usize = HINTS * HEAD_BYTES;
/// The number of slots from which on hints are used.
pub const HINTED_COUNT_MIN: usize = 2 * (HINTS + 1);

/// Returns the offset of the first slot.
#[inline(always)]
pub const fn slots_offset(leaf: bool) -> usize {
    if leaf { HEADER_BYTES } else { HEADER_BYTES + HINT_BYTES }
}

/// The offsets of the header's fields in bytes.
pub mod field {
    /// u32: CRC-32C of the rest of the page.
    pub const CHECKSUM: usize = 0;
    /// u8: [`super::PageKind`].
    pub const KIND: usize = 4;
    /// u8: 0 for leaves, one more for each level above.
    pub const LEVEL: usize = 5;
    /// u16: the number of slots.
    pub const COUNT: usize = 6;
    /// u64: the page's own [place](crate::place), to detect misdirected reads and writes, and lost
    /// writes.
    pub const PAGE_ID: usize = 8;
    /// u64, leaves: the timestamp of the newest commit that changed the page.
    pub const LSN: usize = 16;
    /// u32: the tree that the page belongs to.
    pub const TREE_ID: usize = 24;
    /// u32: lowest byte of the heap.
    pub const HEAP_START: usize = 28;
    /// u32: bytes in the heap that nothing refers to.
    pub const DEAD_BYTES: usize = 32;
    /// u16: the length of the prefix that all keys of the page share, which is cut off.
    pub const PREFIX_LEN: usize = 36;
    /// u16: length of the lower fence.
    pub const LOWER_LEN: usize = 38;
    /// u16: length of the upper fence.
    pub const UPPER_LEN: usize = 40;
    /// u16: bit 0: there is an upper fence (otherwise the fence is infinite).
    pub const FLAGS: usize = 42;
    /// u64, inner pages: the child right of the last slot.
    pub const LAST_CHILD: usize = 48;

    /// Overflow pages: u64 at the offset of LAST_CHILD: the value's timestamp. Pages of older
    /// values: the number of their run.
    pub const TIMESTAMP: usize = 48;
    /// Overflow pages: u32: the number of the page in the value, from 0.
    pub const PART: usize = 56;
    /// Overflow pages: u32: the bytes of the value in this page.
    pub const PART_BYTES: usize = 60;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PageKind {
    /// Keys and child references.
    Inner = 1,
    /// Keys and values.
    Leaf = 2,
    /// A part of a value that is too large for a leaf.
    Overflow = 3,
    CheckpointRecord = 4,
    /// A part of a checkpoint's image: roots, logs, pages in use.
    CheckpointImage = 5,
    /// Older values of rows, for snapshots. Not used after a crash.
    History = 6,
    /// A part of the list of a large value's runs.
    Extents = 7,
}

/// Bytes of a leaf's slot: head u32, record offset u16, key length u16.
pub const LEAF_SLOT_BYTES: usize = 8;
/// Bytes of an inner page's slot: as a leaf's, then the child, u64.
pub const INNER_SLOT_BYTES: usize = 16;
/// The number of key bytes that are in the slot itself.
pub const HEAD_BYTES: usize = 4;
/// Bytes before the key in a leaf's record: u16, the value's length; bit 15 says that the value is
/// an overflow descriptor.
pub const RECORD_HEAD_BYTES: usize = 2;
pub const OVERFLOW_FLAG: u16 = 1 << 15;

/// Bytes at the end of each page of an encrypted store, and of each block of its log, that the
/// device below uses for the tag. They read as zeroes.
pub const TAG_BYTES: usize = 16;
/// The word at the beginning of a page that could not be decrypted. A device that decrypts puts it
/// in the place of the content.
pub const NOT_AUTHENTIC: [u8; 8] = *b"\0\0\0\0notA";

/// The smallest page in bytes.
pub const PAGE_SIZE_MIN: usize = 512;
/// The largest page in bytes.
pub const PAGE_SIZE_MAX: usize = 64 << 10;
/// The longest key in bytes.
pub const KEY_LEN_MAX: usize = u16::MAX as usize;
/// The longest key in bytes that is whole in a page; small pages have a lower limit
/// ([`whole_key_len_max`]).
const WHOLE_KEY_LEN_MAX: usize = 1024;
/// The longest value in bytes.
pub const VALUE_LEN_MAX: usize = 16 << 20;

/// Returns the longest key that is whole in the pages of a tree, if they have this many bytes of
/// content. Records with longer keys are in [groups](crate::group), whose keys are one byte longer.
/// One record and both fences always fit into a page.
#[must_use]
#[inline]
pub const fn whole_key_len_max(page_size: usize) -> usize {
    let longest = (page_size - 4 * HEADER_BYTES) / 3;
    if longest < WHOLE_KEY_LEN_MAX { longest } else { WHOLE_KEY_LEN_MAX }
}

/// Returns the longest key and value together that are kept in the leaf; the value of a longer
/// record goes to overflow pages. Three such records fit into a page whose fences are short, and
/// one fits into any page.
#[inline]
pub const fn inline_len_max(page_size: usize) -> usize {
    (page_size - HEADER_BYTES) / 3 - LEAF_SLOT_BYTES - RECORD_HEAD_BYTES
}

const _: () = {
    let mut page_size = PAGE_SIZE_MIN;
    while page_size <= PAGE_SIZE_MAX {
        // One record and both fences must fit. A fence may be a byte longer than the key of a group.
        let encrypted = page_size - TAG_BYTES;
        let record_bytes = inline_len_max(page_size) + LEAF_SLOT_BYTES + RECORD_HEAD_BYTES;
        assert!(HEADER_BYTES + record_bytes + 2 * (2 + whole_key_len_max(page_size)) <= page_size);
        let record_bytes = inline_len_max(encrypted) + LEAF_SLOT_BYTES + RECORD_HEAD_BYTES;
        assert!(HEADER_BYTES + record_bytes + 2 * (2 + whole_key_len_max(encrypted)) <= encrypted);
        assert!(inline_len_max(page_size) < OVERFLOW_FLAG as usize);
        page_size *= 2;
    }
};

/// Returns the CRC-32C of a page without its checksum field.
#[inline]
pub fn checksum(page: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(&page[4..])
}

/// Writes the checksum into a page that begins at `offset` in a buffer.
#[inline]
pub fn seal(buffer: &mut Buffer, offset: usize, page_size: usize) {
    let sum = checksum(&buffer.as_slice()[offset..offset + page_size]);
    NodeMut::new(buffer.part_mut(offset, page_size)).set_checksum(sum);
}

/// Reads the word at an offset. The bytes must be long enough.
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
    } else if page.starts_with(&NOT_AUTHENTIC) {
        Some(
            "cannot be decrypted: it was changed, or is not of this place in this store".to_owned(),
        )
    } else if stored != sum {
        Some(format!("has checksum {stored:08x}, its bytes give {sum:08x}"))
    } else if page_of(stored_place) != page_of(place) {
        Some(format!("says it is page {}", page_of(stored_place)))
    } else {
        let (stored, version) = (version_of(stored_place), version_of(place));
        Some(format!("is of version {stored}, not {version}: the device lost a write"))
    }
}

/// Returns a page's bytes as words, to read them as a node.
#[inline]
pub fn words_of(page: &[u8]) -> Vec<u64> {
    page.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes)).collect()
}

/// Returns the place in the page's header if it has this page id, and otherwise a place that
/// differs from the header's.
#[inline]
pub fn own_place(page: &[u8], page_id: u64) -> u64 {
    let stored = word(page, field::PAGE_ID);
    if page_of(stored) == page_id { stored } else { page_id }
}

/// Returns the first four bytes of a key suffix as an integer that sorts as the bytes do.
#[inline(always)]
pub fn head_of(suffix: &[u8]) -> u32 {
    head_u32(suffix)
}
