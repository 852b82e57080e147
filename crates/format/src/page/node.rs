//! Reads a node. Reads are optimistic, so every value may be torn until the latch was validated.

use std::cmp::Ordering;
use std::hint::select_unpredictable;

use qpair_memory::RacyBytes;

use super::slots::{InnerSlots, LeafSlots, Probe, Slots};
use super::{
    HEAD_BYTES, HEADER_BYTES, HINTED_COUNT_MIN, HINTS, INNER_SLOT_BYTES, LEAF_SLOT_BYTES,
    OVERFLOW_FLAG, PageKind, RECORD_HEAD_BYTES, field, head_of, slots_offset,
};

#[derive(Clone, Copy)]
pub struct Node<'a> {
    pub bytes: RacyBytes<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafValue {
    pub offset: usize,
    pub len: usize,
    /// Whether the bytes are an overflow descriptor.
    pub overflow: bool,
}

/// The number of keys of the same head that are compared one by one.
const FEW: usize = 4;

impl<'a> Node<'a> {
    #[inline(always)]
    pub fn new(bytes: RacyBytes<'a>) -> Self {
        Self { bytes }
    }

    /// Returns the number of levels below the page; 0 for a leaf.
    #[inline(always)]
    pub fn level(self) -> u8 {
        self.bytes.load_u8(field::LEVEL)
    }

    /// Returns the kind that the page header states.
    #[inline(always)]
    pub fn kind_byte(self) -> u8 {
        self.bytes.load_u8(field::KIND)
    }

    #[inline(always)]
    pub fn is_leaf(self) -> bool {
        self.level() == 0
    }

    /// Returns the number of records of a leaf, or of children except the last of an inner page.
    #[inline(always)]
    pub fn count(self) -> usize {
        usize::from(self.bytes.load_u16(field::COUNT))
    }

    #[inline]
    pub fn place(self) -> u64 {
        self.bytes.load_u64(field::PAGE_ID)
    }

    /// Returns the timestamp of the newest commit that changed the leaf.
    #[inline(always)]
    pub fn timestamp(self) -> u64 {
        self.bytes.load_u64(field::LSN)
    }

    #[inline]
    pub fn tree_id(self) -> u32 {
        self.bytes.load_u32(field::TREE_ID)
    }

    /// Returns the number of bytes that all keys of the page share.
    #[inline(always)]
    pub fn prefix_len(self) -> usize {
        usize::from(self.bytes.load_u16(field::PREFIX_LEN))
    }

    #[inline(always)]
    pub fn slot_bytes(self) -> usize {
        if self.is_leaf() { LEAF_SLOT_BYTES } else { INNER_SLOT_BYTES }
    }

    #[inline]
    pub fn heap_start(self) -> usize {
        self.bytes.load_u32(field::HEAP_START) as usize
    }

    /// Returns the number of bytes in the heap that no slot refers to.
    #[inline]
    pub fn dead_bytes(self) -> usize {
        self.bytes.load_u32(field::DEAD_BYTES) as usize
    }

    /// Returns the number of bytes between slots and heap.
    #[inline]
    pub fn gap_bytes(self) -> usize {
        self.heap_start().saturating_sub(self.slot(self.count()))
    }

    /// Returns the number of bytes that a compacted copy would have free.
    #[inline]
    pub fn free_bytes(self) -> usize {
        self.gap_bytes() + self.dead_bytes()
    }

    /// Returns the number of bytes that slots, records and fences need.
    #[inline]
    pub fn used_bytes(self) -> usize {
        (self.bytes.len() - slots_offset(self.is_leaf())).saturating_sub(self.free_bytes())
    }

    /// Appends the lower fence: every key of the page is at or above it. Empty at the left edge.
    #[inline]
    pub fn lower_fence(self, target: &mut Vec<u8>) {
        let len = usize::from(self.bytes.load_u16(field::LOWER_LEN));
        self.bytes.append_to(self.bytes.len().saturating_sub(len), len, target);
    }

    /// Whether there is an upper fence; `false` at the right edge of the tree.
    #[inline]
    pub fn has_upper_fence(self) -> bool {
        self.bytes.load_u16(field::FLAGS) & 1 != 0
    }

    /// Appends the upper fence: every key of the page is below it.
    #[inline]
    pub fn upper_fence(self, target: &mut Vec<u8>) {
        let lower = usize::from(self.bytes.load_u16(field::LOWER_LEN));
        let len = usize::from(self.bytes.load_u16(field::UPPER_LEN));
        self.bytes.append_to(self.bytes.len().saturating_sub(lower + len), len, target);
    }

    /// Whether the fences of a child are the keys on both sides of its reference. `key` is scratch
    /// memory.
    #[inline]
    pub fn bounds(self, position: usize, child: Node<'_>, key: &mut Vec<u8>) -> bool {
        let size = child.bytes.len();
        let lower = usize::from(child.bytes.load_u16(field::LOWER_LEN));
        let upper = usize::from(child.bytes.load_u16(field::UPPER_LEN));
        let is_fence = |len_from_end: usize, len: usize, key: &[u8]| {
            child.bytes.compare(size.saturating_sub(len_from_end), len, key).is_eq()
        };
        key.clear();
        match position.checked_sub(1) {
            None => self.lower_fence(key),
            Some(before) => self.key(before, key),
        }
        if !is_fence(lower, lower, key) {
            return false;
        }
        key.clear();
        let has_upper = if position < self.count() {
            self.key(position, key);
            true
        } else {
            self.upper_fence(key);
            self.has_upper_fence()
        };
        child.has_upper_fence() == has_upper && (!has_upper || is_fence(lower + upper, upper, key))
    }

    #[inline]
    pub fn covers(self, key: &[u8]) -> bool {
        let size = self.bytes.len();
        let lower = usize::from(self.bytes.load_u16(field::LOWER_LEN));
        let upper = usize::from(self.bytes.load_u16(field::UPPER_LEN));
        self.bytes.compare(size.saturating_sub(lower), lower, key).is_le()
            && (!self.has_upper_fence()
                || self.bytes.compare(size.saturating_sub(lower + upper), upper, key).is_gt())
    }

    #[inline(always)]
    fn slot(self, position: usize) -> usize {
        slots_offset(self.is_leaf()) + position * self.slot_bytes()
    }

    /// Returns the length of a slot's key without the prefix, and the offset of its record.
    #[inline(always)]
    fn suffix_len_and_record(self, position: usize) -> (usize, usize) {
        let slot = self.slot(position);
        let record = usize::from(self.bytes.load_u16(slot + 4));
        (usize::from(self.bytes.load_u16(slot + 6)), record)
    }

    /// Returns the length of a slot's key without the prefix.
    #[inline]
    pub fn suffix_len(self, position: usize) -> usize {
        self.suffix_len_and_record(position).0
    }

    /// Returns the offset of the key's bytes that follow the head.
    #[inline(always)]
    fn tail_offset(self, record: usize) -> usize {
        if self.is_leaf() { record + RECORD_HEAD_BYTES } else { record }
    }

    /// Returns the first position whose key is at or above the key with this suffix, and whether
    /// the two are equal.
    #[inline]
    pub fn lower_bound_suffix(self, suffix: &[u8]) -> (usize, bool) {
        match self.is_leaf() {
            true => self.search(LeafSlots::new(self.bytes), suffix),
            false => self.search(InnerSlots::new(self.bytes), suffix),
        }
    }

    #[inline(always)]
    fn search<const START: usize, const SLOT_BYTES: usize>(
        self,
        slots: Slots<'a, START, SLOT_BYTES>,
        suffix: &[u8],
    ) -> (usize, bool) {
        let probe = Probe::new(suffix);
        let mut size = self.count().min(slots.count_max());
        if size == 0 {
            return (0, false);
        }
        let count = size;
        // Branch-free binary search on the heads, for the first slot whose head is at or above the
        // probe's.
        let mut base = 0;
        if SLOT_BYTES == INNER_SLOT_BYTES && count >= HINTED_COUNT_MIN {
            // The hints say between which two hinted slots the key lies.
            let distance = count / (HINTS + 1);
            let below = self.hints_below(probe.head);
            base = below * distance;
            size = if below == HINTS { count - base } else { distance + 1 };
            // The cache misses on these few lines overlap, instead of following one another.
            for line in slots.at(base) / 64..=slots.at(base + size) / 64 {
                self.bytes.prefetch(line * 64);
            }
        }
        while size > 1 {
            let half = size / 2;
            base =
                select_unpredictable(slots.head(base + half - 1) < probe.head, base + half, base);
            size -= half;
        }
        base += usize::from(slots.head(base) < probe.head);
        // There are few keys with the same head, unless the keys have long common beginnings, as at
        // the edges of a tree, where no prefix is cut off. Then the next bytes are searched in the
        // same way.
        if base + FEW < count && slots.head(base + FEW) == probe.head {
            let mut size = count - base;
            while size > 1 {
                let half = size / 2;
                base =
                    select_unpredictable(slots.is_below(base + half - 1, probe), base + half, base);
                size -= half;
            }
            base += usize::from(slots.is_below(base, probe));
        }
        let mut end = base;
        while end < count && end - base < FEW {
            match slots.compare(end, probe) {
                Ordering::Less => end += 1,
                Ordering::Equal => return (end, true),
                Ordering::Greater => return (end, false),
            }
        }
        slots.search(end..count, probe)
    }

    /// Returns the number of hints below `head`.
    #[inline(always)]
    fn hints_below(self, head: u32) -> usize {
        let mut below = 0;
        for pair in 0..HINTS / 2 {
            let word = self.bytes.load_u64(HEADER_BYTES + pair * 8);
            below += usize::from((word as u32) < head) + usize::from(((word >> 32) as u32) < head);
        }
        below
    }

    /// Returns the first position whose key is at or above `key`, which must lie between the
    /// fences, and whether the two are equal.
    #[inline]
    pub fn lower_bound(self, key: &[u8]) -> (usize, bool) {
        self.lower_bound_suffix(key.get(self.prefix_len()..).unwrap_or_default())
    }

    /// Returns the position of the child that covers `key`. The number of slots stands for the last
    /// child.
    #[inline]
    pub fn child_position(self, key: &[u8]) -> usize {
        let (position, equal) = self.lower_bound(key);
        position + usize::from(equal)
    }

    /// Returns the offset in the child at `position` where the slot for `key` is likely to be,
    /// judged by the separators around the child. This is a guess, for a prefetch.
    #[inline]
    pub fn likely_offset(self, position: usize, key: &[u8]) -> Option<usize> {
        if position == 0 || position >= self.count() {
            return None;
        }
        let low = self.bytes.load_u32(self.slot(position - 1));
        let high = self.bytes.load_u32(self.slot(position));
        let head = head_of(key.get(self.prefix_len()..).unwrap_or_default());
        let (part, whole) = (u64::from(head.checked_sub(low)?), u64::from(high.checked_sub(low)?));
        let slots = (self.bytes.len() - slots_offset(false)) as u64;
        Some(slots_offset(false) + (slots * part).checked_div(whole)? as usize)
    }

    #[inline(always)]
    pub fn child_offset(self, position: usize) -> usize {
        if position >= self.count() { field::LAST_CHILD } else { self.slot(position) + 8 }
    }

    #[inline(always)]
    pub fn child(self, position: usize) -> u64 {
        self.bytes.load_u64(self.child_offset(position))
    }

    /// Appends a slot's key without the prefix.
    #[inline]
    pub fn suffix(self, position: usize, target: &mut Vec<u8>) {
        let (len, record) = self.suffix_len_and_record(position);
        let head = self.bytes.load_u32(self.slot(position)).to_be_bytes();
        target.extend_from_slice(&head[..len.min(HEAD_BYTES)]);
        if len > HEAD_BYTES {
            self.bytes.append_to(self.tail_offset(record), len - HEAD_BYTES, target);
        }
    }

    /// Appends the bytes that all keys share. The lower fence begins with them.
    #[inline]
    pub fn prefix(self, target: &mut Vec<u8>) {
        let lower = usize::from(self.bytes.load_u16(field::LOWER_LEN));
        self.bytes.append_to(
            self.bytes.len().saturating_sub(lower),
            self.prefix_len().min(lower),
            target,
        );
    }

    /// Appends a slot's whole key.
    #[inline]
    pub fn key(self, position: usize, target: &mut Vec<u8>) {
        self.prefix(target);
        self.suffix(position, target);
    }

    #[inline]
    pub fn value(self, position: usize) -> LeafValue {
        let (len, record) = self.suffix_len_and_record(position);
        let value_len = self.bytes.load_u16_unaligned(record);
        LeafValue {
            offset: record + RECORD_HEAD_BYTES + len.saturating_sub(HEAD_BYTES),
            len: usize::from(value_len & !OVERFLOW_FLAG),
            overflow: value_len & OVERFLOW_FLAG != 0,
        }
    }

    /// Prefetches the first two cache lines of a record; the processor fetches the others itself.
    #[inline]
    pub fn prefetch_record(self, position: usize) {
        let (_, record) = self.suffix_len_and_record(position);
        self.bytes.prefetch(record);
        self.bytes.prefetch(record + 64);
        self.bytes.prefetch(record + 128);
    }

    /// Returns the number of bytes that a record or child with this suffix and value takes,
    /// including the slot.
    #[inline]
    pub fn entry_bytes(leaf: bool, suffix_len: usize, value_len: usize) -> usize {
        let tail = suffix_len.saturating_sub(HEAD_BYTES);
        if leaf {
            LEAF_SLOT_BYTES + RECORD_HEAD_BYTES + tail + value_len
        } else {
            INNER_SLOT_BYTES + tail
        }
    }

    /// Returns the number of bytes that the entry at `position` takes, including the slot.
    #[inline]
    pub fn entry_bytes_at(self, position: usize) -> usize {
        let (len, _) = self.suffix_len_and_record(position);
        let leaf = self.is_leaf();
        Self::entry_bytes(leaf, len, if leaf { self.value(position).len } else { 0 })
    }

    /// Returns the fault of the page, judged by the page alone. For pages read from a device, and
    /// for `check`.
    #[inline]
    pub fn fault(self) -> Option<String> {
        let size = self.bytes.len();
        let leaf = self.is_leaf();
        if self.kind_byte() != if leaf { PageKind::Leaf as u8 } else { PageKind::Inner as u8 } {
            return Some(format!("kind {} at level {}", self.kind_byte(), self.level()));
        }
        let fences = usize::from(self.bytes.load_u16(field::LOWER_LEN))
            + usize::from(self.bytes.load_u16(field::UPPER_LEN));
        let slots_end = self.slot(self.count());
        if self.heap_start() > size || fences > size - HEADER_BYTES || slots_end > self.heap_start()
        {
            return Some(format!(
                "{} slots, heap from {}, fences of {fences} bytes",
                self.count(),
                self.heap_start()
            ));
        }
        if !leaf && self.count() >= HINTED_COUNT_MIN {
            let distance = self.count() / (HINTS + 1);
            for hint in 0..HINTS {
                let head = self.bytes.load_u32(self.slot((hint + 1) * distance));
                if self.bytes.load_u32(HEADER_BYTES + hint * HEAD_BYTES) != head {
                    return Some(format!("hint {hint} is not the head of its slot"));
                }
            }
        }
        let (mut lower, mut upper, mut prefix) = (vec![], vec![], vec![]);
        self.lower_fence(&mut lower);
        self.upper_fence(&mut upper);
        self.prefix(&mut prefix);
        let shared =
            if self.has_upper_fence() { super::shared_prefix_len(&lower, &upper) } else { 0 };
        if self.prefix_len() != shared {
            return Some(format!(
                "prefix of {} bytes between fences that share {shared}",
                self.prefix_len()
            ));
        }
        let (mut previous, mut key) = (vec![], vec![]);
        for position in 0..self.count() {
            let (len, record) = self.suffix_len_and_record(position);
            let tail_end = self.tail_offset(record) + len.saturating_sub(HEAD_BYTES);
            let end = if leaf {
                self.value(position).offset + self.value(position).len
            } else {
                tail_end
            };
            if (leaf || len > HEAD_BYTES) && (record < self.heap_start() || end > size - fences) {
                return Some(format!("record {position} at {record}..{end} lies outside the heap"));
            }
            key.clear();
            self.key(position, &mut key);
            // If the suffix is shorter than a head, the rest of the head must be zeroes. Otherwise
            // searches would miss the key.
            let suffix = key.get(prefix.len()..).unwrap_or_default();
            if self.bytes.load_u32(self.slot(position)) != head_of(suffix) {
                return Some(format!("the head of key {position} says more than the key"));
            }
            if key < lower
                || (self.has_upper_fence() && if leaf { key >= upper } else { key > upper })
            {
                return Some(format!("key {position} lies outside the fences"));
            }
            if position > 0 && previous >= key {
                return Some(format!("key {position} is not above the one before it"));
            }
            std::mem::swap(&mut previous, &mut key);
        }
        None
    }
}
