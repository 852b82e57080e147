//! The slots of a page, in the form that searches use.

use std::cmp::Ordering;
use std::ops::Range;

use qpair_memory::RacyBytes;

use super::{
    HEAD_BYTES, INNER_SLOT_BYTES, LEAF_SLOT_BYTES, RECORD_HEAD_BYTES, head_of, slots_offset,
};
use crate::head::head_u64;

/// The number of bytes of a suffix that a head and a second head hold.
const BOTH_HEADS_BYTES: usize = HEAD_BYTES + 8;

#[derive(Clone, Copy)]
pub(super) struct Probe<'k> {
    suffix: &'k [u8],
    pub(super) head: u32,
    /// The eight bytes after the head.
    second: u64,
}

impl<'k> Probe<'k> {
    #[inline(always)]
    pub(super) fn new(suffix: &'k [u8]) -> Self {
        let tail = suffix.get(HEAD_BYTES..).unwrap_or_default();
        let second = head_u64(tail);
        Self { suffix, head: head_of(suffix), second }
    }
}

/// The slots of a leaf or of an inner page. The compiler knows the layout, so that a search does
/// not ask the page for it at each slot.
#[derive(Clone, Copy)]
pub(super) struct Slots<'a, const START: usize, const SLOT_BYTES: usize> {
    bytes: RacyBytes<'a>,
}

pub(super) type LeafSlots<'a> = Slots<'a, { slots_offset(true) }, LEAF_SLOT_BYTES>;
pub(super) type InnerSlots<'a> = Slots<'a, { slots_offset(false) }, INNER_SLOT_BYTES>;

impl<'a, const START: usize, const SLOT_BYTES: usize> Slots<'a, START, SLOT_BYTES> {
    /// The number of bytes of a record before the key's tail.
    const TAIL_AT: usize = if SLOT_BYTES == LEAF_SLOT_BYTES { RECORD_HEAD_BYTES } else { 0 };

    #[inline(always)]
    pub(super) fn new(bytes: RacyBytes<'a>) -> Self {
        Self { bytes }
    }

    #[inline(always)]
    pub(super) fn count_max(self) -> usize {
        (self.bytes.len() - START) / SLOT_BYTES
    }

    #[inline(always)]
    pub(super) fn at(self, position: usize) -> usize {
        START + position * SLOT_BYTES
    }

    #[inline(always)]
    pub(super) fn head(self, position: usize) -> u32 {
        self.bytes.load_u32(self.at(position))
    }

    /// Returns a slot's head, the offset of its key's tail, and the length of its suffix.
    #[inline(always)]
    fn entry(self, position: usize) -> (u32, usize, usize) {
        // Slots are aligned, so one load reads all three.
        let word = self.bytes.load_u64(self.at(position));
        let record = usize::from((word >> 32) as u16);
        (word as u32, record + Self::TAIL_AT, usize::from((word >> 48) as u16))
    }

    /// Whether a key with the same head as the probe is below it by the next eight bytes.
    #[inline(always)]
    pub(super) fn is_below(self, position: usize, probe: Probe<'_>) -> bool {
        let (head, tail_at, len) = self.entry(position);
        head == probe.head
            && self.bytes.load_head(tail_at, len.saturating_sub(HEAD_BYTES)) < probe.second
    }

    #[inline(always)]
    pub(super) fn compare(self, position: usize, probe: Probe<'_>) -> Ordering {
        let (head, tail_at, len) = self.entry(position);
        if head != probe.head {
            return head.cmp(&probe.head);
        }
        let second = self.bytes.load_head(tail_at, len.saturating_sub(HEAD_BYTES));
        if second != probe.second {
            return second.cmp(&probe.second);
        }
        // Padded with zeroes they are equal: then the shorter one comes first.
        let order = match probe.suffix.get(BOTH_HEADS_BYTES..) {
            Some(rest) if len > BOTH_HEADS_BYTES => {
                let rest_at = tail_at + BOTH_HEADS_BYTES - HEAD_BYTES;
                self.bytes.compare(rest_at, len - BOTH_HEADS_BYTES, rest)
            }
            _ => Ordering::Equal,
        };
        order.then(len.cmp(&probe.suffix.len()))
    }

    /// Returns the first of these positions whose key is at or above the probe, and whether the key
    /// is equal.
    pub(super) fn search(self, positions: Range<usize>, probe: Probe<'_>) -> (usize, bool) {
        let (mut low, mut high) = (positions.start, positions.end);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.compare(middle, probe) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return (middle, true),
                Ordering::Greater => high = middle,
            }
        }
        (low, false)
    }
}
