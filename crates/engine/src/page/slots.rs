//! The slots of a page, as a search looks at them.

use std::cmp::Ordering;
use std::ops::Range;

use qpair_memory::RacyBytes;

use super::{
    HEAD_BYTES, INNER_SLOT_BYTES, LEAF_SLOT_BYTES, Node, RECORD_HEAD_BYTES, head_of, slots_offset,
};

/// Bytes of a suffix that a head and a second head have.
const BOTH_HEADS_BYTES: usize = HEAD_BYTES + 8;

/// A suffix that is searched for.
#[derive(Clone, Copy)]
pub(super) struct Probe<'k> {
    suffix: &'k [u8],
    pub(super) head: u32,
    /// The eight bytes behind the head.
    second: u64,
}

impl<'k> Probe<'k> {
    #[inline(always)]
    pub(super) fn new(suffix: &'k [u8]) -> Self {
        let tail = suffix.get(HEAD_BYTES..).unwrap_or_default();
        let second = match tail.first_chunk::<8>() {
            Some(whole) => u64::from_be_bytes(*whole),
            None => tail.iter().rev().fold(0, |word, byte| word >> 8 | u64::from(*byte) << 56),
        };
        Self { suffix, head: head_of(suffix), second }
    }
}

/// The slots of a page, with what each look at one would ask the page for.
#[derive(Clone, Copy)]
pub(super) struct Slots<'a> {
    bytes: RacyBytes<'a>,
    pub(super) leaf: bool,
    start: usize,
    slot_bytes: usize,
    /// Bytes of a record in front of the key's tail.
    tail_at: usize,
}

impl<'a> Slots<'a> {
    #[inline(always)]
    pub(super) fn new(node: Node<'a>) -> Self {
        let leaf = node.is_leaf();
        Self {
            bytes: node.bytes,
            leaf,
            start: slots_offset(leaf),
            slot_bytes: if leaf { LEAF_SLOT_BYTES } else { INNER_SLOT_BYTES },
            tail_at: if leaf { RECORD_HEAD_BYTES } else { 0 },
        }
    }

    /// As many as the page could have.
    #[inline(always)]
    pub(super) fn count_max(self) -> usize {
        (self.bytes.len() - self.start) / self.slot_bytes
    }

    /// Where in the page a slot is.
    #[inline(always)]
    pub(super) fn at(self, position: usize) -> usize {
        self.start + position * self.slot_bytes
    }

    #[inline(always)]
    pub(super) fn head(self, position: usize) -> u32 {
        self.bytes.load_u32(self.at(position))
    }

    /// A slot's head, where its key's tail is, and how long its suffix is.
    #[inline(always)]
    fn entry(self, position: usize) -> (u32, usize, usize) {
        // Slots are aligned: one load has all three.
        let word = self.bytes.load_u64(self.at(position));
        let record = usize::from((word >> 32) as u16);
        (word as u32, record + self.tail_at, usize::from((word >> 48) as u16))
    }

    /// Whether a key that is not below the probe by its head is below it by the next eight bytes.
    #[inline(always)]
    pub(super) fn is_below(self, position: usize, probe: Probe<'_>) -> bool {
        let (head, tail_at, len) = self.entry(position);
        head == probe.head
            && self.bytes.load_head(tail_at, len.saturating_sub(HEAD_BYTES)) < probe.second
    }

    /// Compares the key at `position`.
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
        // Filled up with zeroes they are alike: then the shorter one comes first.
        let order = match probe.suffix.get(BOTH_HEADS_BYTES..) {
            Some(rest) if len > BOTH_HEADS_BYTES => {
                let rest_at = tail_at + BOTH_HEADS_BYTES - HEAD_BYTES;
                self.bytes.compare(rest_at, len - BOTH_HEADS_BYTES, rest)
            }
            _ => Ordering::Equal,
        };
        order.then(len.cmp(&probe.suffix.len()))
    }

    /// First of these positions whose key is at or above the probe; whether it is equal.
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
