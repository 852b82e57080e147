//! Builds pages as a whole: their entries are gathered first, and measured as they are added.

use super::{Node, NodeMut, separator_len, shared_prefix_len, slots_offset};
use crate::swip::Swip;

/// The entries of a page that is being gathered: records of a leaf, or children with the fence
/// above each.
#[derive(Default)]
pub struct Staged {
    pub lower: Vec<u8>,
    bytes: Vec<u8>,
    entries: Vec<StagedEntry>,
    /// The number of bytes that all keys share with the lower fence.
    prefix: usize,
    /// The number of bytes that the entries need in the page with that prefix.
    entry_bytes: usize,
    /// Whether a page of this level was written already.
    pub emitted: bool,
}

#[derive(Clone, Copy)]
struct StagedEntry {
    key_end: u32,
    value_end: u32,
    overflow: bool,
}

impl Staged {
    fn entry(&self, index: usize) -> (&[u8], &[u8], bool) {
        let start =
            index.checked_sub(1).map_or(0, |before| self.entries[before].value_end as usize);
        let StagedEntry { key_end, value_end, overflow } = self.entries[index];
        (
            &self.bytes[start..key_end as usize],
            &self.bytes[key_end as usize..value_end as usize],
            overflow,
        )
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of bytes that the entries need in the page, as last measured.
    #[inline]
    pub fn entry_bytes(&self) -> usize {
        self.entry_bytes
    }

    #[inline]
    pub fn last_key(&self) -> Option<&[u8]> {
        self.entries.len().checked_sub(1).map(|last| self.entry(last).0)
    }

    /// Whether the entries still fit the page with `key` as its upper bound, and with one more
    /// entry of that key if `value_len` is given.
    #[inline]
    pub fn fits(
        &mut self,
        level: u8,
        key: &[u8],
        value_len: Option<usize>,
        page_size: usize,
    ) -> bool {
        let leaf = level == 0;
        let prefix = shared_prefix_len(&self.lower, key);
        if prefix != self.prefix || self.entries.is_empty() {
            self.prefix = prefix;
            self.entry_bytes = self.bytes_of(self.entries.len(), leaf, prefix);
        }
        let more = value_len.map_or(0, |len| Node::entry_bytes(leaf, key.len() - prefix, len));
        // Add one byte for a fence just above the last key.
        slots_offset(leaf) + self.lower.len() + key.len() + 1 + self.entry_bytes + more <= page_size
    }

    /// Adds an entry. `level` is the level of the page.
    #[inline]
    pub fn push(&mut self, level: u8, key: &[u8], value: &[u8], overflow: bool) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len() as u32;
        self.bytes.extend_from_slice(value);
        self.entries.push(StagedEntry { key_end, value_end: self.bytes.len() as u32, overflow });
        let leaf = level == 0;
        let suffix_len = key.len() - self.prefix.min(key.len());
        self.entry_bytes += Node::entry_bytes(leaf, suffix_len, if leaf { value.len() } else { 0 });
    }

    /// Returns the number of bytes that the first `count` entries need in a page whose keys share
    /// `prefix` bytes.
    fn bytes_of(&self, count: usize, leaf: bool, prefix: usize) -> usize {
        (0..count)
            .map(|index| {
                let (key, value, _) = self.entry(index);
                let value_len = if leaf { value.len() } else { 0 };
                Node::entry_bytes(leaf, key.len() - prefix.min(key.len()), value_len)
            })
            .sum()
    }

    /// Whether the entries fit the page with this upper fence. Without a fence they share no
    /// prefix.
    #[inline]
    pub fn fits_below(&self, level: u8, upper: Option<&[u8]>, page_size: usize) -> bool {
        let leaf = level == 0;
        let prefix = upper.map_or(0, |upper| shared_prefix_len(&self.lower, upper));
        let slots = if leaf { self.entries.len() } else { self.entries.len().saturating_sub(1) };
        let entries: usize = self.bytes_of(slots, leaf, prefix);
        slots_offset(leaf) + self.lower.len() + upper.map_or(0, <[u8]>::len) + entries <= page_size
    }

    /// Removes the second half of the entries. Returns the fence between the halves, and the second
    /// half.
    #[inline]
    pub fn halve(&mut self, level: u8) -> (Vec<u8>, Self) {
        let half = self.entries.len() / 2;
        let (left, right) = (self.entry(half - 1).0, self.entry(half).0);
        let fence =
            if level == 0 { right[..separator_len(left, right)].to_vec() } else { left.to_vec() };
        let mut second = Self { lower: fence.clone(), emitted: true, ..Self::default() };
        for index in half..self.entries.len() {
            let (key, value, overflow) = self.entry(index);
            second.push(level, key, value, overflow);
        }
        self.entries.truncate(half);
        (fence, second)
    }

    /// Removes all entries. `lower` is the next page's lower fence.
    #[inline]
    pub fn restart(&mut self, lower: &[u8]) {
        self.lower.clear();
        self.lower.extend_from_slice(lower);
        self.bytes.clear();
        self.entries.clear();
        self.prefix = 0;
        self.entry_bytes = 0;
    }

    /// Writes the entries into an empty node. In an inner page the last entry is the last child.
    #[inline]
    pub fn fill(&self, level: u8, node: &mut NodeMut<'_>) {
        let prefix_len = node.read().prefix_len();
        let slots =
            if level == 0 { self.entries.len() } else { self.entries.len().saturating_sub(1) };
        for index in 0..slots {
            let (key, value, overflow) = self.entry(index);
            let suffix = key.get(prefix_len..).unwrap_or_default();
            let fits = if level == 0 {
                node.insert_record(index, suffix, value, overflow)
            } else {
                node.insert_child(index, suffix, child_of(value))
            };
            debug_assert!(fits, "the entries were measured before");
        }
        if level > 0 && slots < self.entries.len() {
            node.set_last_child(child_of(self.entry(slots).1));
        }
    }
}

fn child_of(value: &[u8]) -> u64 {
    Swip::Cold(value.try_into().map(u64::from_le_bytes).unwrap_or_default()).encode()
}
