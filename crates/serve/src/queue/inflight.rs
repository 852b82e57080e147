//! The region in which a queue notes the heads under way, so that they survive the target.
//!
//! The layout is the vhost-user protocol's for split rings: a header, and 16 bytes for each head.
//!
//! ```text
//! 0 features u64   8 version u16   10 heads u16   12 last head of the list u16   14 used index u16
//! 16 + 16 * head: 0 under way u8   6 next u16   8 counter u64
//! ```
//!
//! A head that is given back is put on a list before the used index is published, and is cleared
//! afterwards. A back end that finds the two used indexes apart knows how many heads of the list
//! were published and not cleared.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use qpair_block::Mapping;

const HEADER_BYTES: usize = 16;
const HEAD_BYTES: usize = 16;
const VERSION_AT: usize = 8;
const HEADS_AT: usize = 10;
const LAST_AT: usize = 12;
const USED_AT: usize = 14;
const NEXT_AT: usize = 6;
const COUNTER_AT: usize = 8;
const VERSION: u16 = 1;

/// Returns the bytes of the part of a queue of `size` heads.
pub(crate) fn bytes_of(size: u16) -> usize {
    (HEADER_BYTES + HEAD_BYTES * usize::from(size)).next_multiple_of(64)
}

/// The part of one queue.
#[derive(Debug)]
pub(crate) struct Inflight {
    mapping: Arc<Mapping>,
    start: usize,
    size: u16,
    counter: u64,
    /// Heads that were given back since the used index was last published.
    given: Vec<u16>,
}

impl Inflight {
    /// Returns the part of queue `number` among parts for `size` heads each; `None` if it does not
    /// fit into the region.
    pub(crate) fn new(mapping: Arc<Mapping>, number: u16, size: u16) -> Option<Self> {
        let start = usize::from(number) * bytes_of(size);
        let fits = start + bytes_of(size) <= mapping.bytes().len();
        let given = Vec::with_capacity(size.into());
        fits.then_some(Self { mapping, start, size, counter: 0, given })
    }

    fn head_at(&self, head: u16) -> usize {
        self.start + HEADER_BYTES + HEAD_BYTES * usize::from(head)
    }

    /// Finds the heads that were under way when the used index was `used`, in the order in which
    /// they were taken. Initializes a new part.
    pub(crate) fn recover(&mut self, used: u16) -> Vec<u16> {
        let bytes = self.mapping.bytes();
        let is_new = bytes.load_u16(self.start + VERSION_AT) != VERSION
            || bytes.load_u16(self.start + HEADS_AT) != self.size;
        if is_new {
            bytes.zero(self.start, bytes_of(self.size));
            bytes.store_u16(self.start + HEADS_AT, self.size);
            bytes.store_u16(self.start + USED_AT, used);
            bytes.store_u16_release(self.start + VERSION_AT, VERSION);
            return Vec::new();
        }
        // Clear the heads that were published and not cleared.
        let mut head = bytes.load_u16(self.start + LAST_AT);
        for _ in 0..used.wrapping_sub(bytes.load_u16(self.start + USED_AT)).min(self.size) {
            if head >= self.size {
                break;
            }
            bytes.store_u8(self.head_at(head), 0);
            head = bytes.load_u16(self.head_at(head) + NEXT_AT);
        }
        bytes.store_u16_release(self.start + USED_AT, used);
        let mut found: Vec<(u64, u16)> = (0..self.size)
            .filter(|head| bytes.load_u8(self.head_at(*head)) != 0)
            .map(|head| (bytes.load_u64(self.head_at(head) + COUNTER_AT), head))
            .collect();
        found.sort_unstable();
        self.counter = found.last().map_or(0, |(counter, _)| counter.wrapping_add(1));
        found.into_iter().map(|(_, head)| head).collect()
    }

    /// Notes that a head is under way.
    #[inline]
    pub(crate) fn take(&mut self, head: u16) {
        let bytes = self.mapping.bytes();
        bytes.store_u64(self.head_at(head) + COUNTER_AT, self.counter);
        self.counter = self.counter.wrapping_add(1);
        bytes.store_u8(self.head_at(head), 1);
        // The mark must be visible before any work for the head begins.
        fence(Ordering::Release);
    }

    /// Notes that a head is about to be given back.
    #[inline]
    pub(crate) fn give(&mut self, head: u16) {
        let bytes = self.mapping.bytes();
        let last = bytes.load_u16(self.start + LAST_AT);
        bytes.store_u16(self.head_at(head) + NEXT_AT, last);
        bytes.store_u16_release(self.start + LAST_AT, head);
        self.given.push(head);
    }

    /// Notes that the used index `used` has published all heads that were given back.
    #[inline]
    pub(crate) fn published(&mut self, used: u16) {
        let bytes = self.mapping.bytes();
        fence(Ordering::SeqCst);
        for head in self.given.drain(..) {
            bytes.store_u8(self.start + HEADER_BYTES + HEAD_BYTES * usize::from(head), 0);
        }
        bytes.store_u16_release(self.start + USED_AT, used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u16 = 8;

    fn part() -> (Arc<Mapping>, Inflight) {
        let mapping = Mapping::new_file(4096).unwrap().0;
        let mut part = Inflight::new(mapping.clone(), 1, SIZE).unwrap();
        assert!(part.recover(0xFFFE).is_empty());
        (mapping, part)
    }

    fn again(mapping: &Arc<Mapping>) -> Inflight {
        Inflight::new(mapping.clone(), 1, SIZE).unwrap()
    }

    #[test]
    fn what_is_under_way_is_found_in_its_order() {
        let (mapping, mut part) = part();
        for head in [5, 2, 7, 0] {
            part.take(head);
        }
        part.give(2);
        part.published(0xFFFF);
        part.take(2);
        assert_eq!(again(&mapping).recover(0xFFFF), [5, 7, 0, 2]);
        // Recover again: reading has changed nothing.
        assert_eq!(again(&mapping).recover(0xFFFF), [5, 7, 0, 2]);
    }

    /// Ends the target at each step between giving three heads back and noting that they are
    /// published. Either all three are under way, and are given back again, or none is.
    #[test]
    fn an_end_within_a_batch_gives_each_back_once() {
        for published in [false, true] {
            for cleared in [false, true] {
                let (mapping, mut part) = part();
                for head in [1, 2, 3, 4] {
                    part.take(head);
                }
                for head in [3, 1, 4] {
                    part.give(head);
                }
                // The used index goes from 0xFFFE to 1.
                let used = if published { 1 } else { 0xFFFE };
                if cleared && published {
                    part.published(1);
                }
                let found = again(&mapping).recover(used);
                let expected: &[u16] = if published { &[2] } else { &[1, 2, 3, 4] };
                assert_eq!(found, expected, "{published} {cleared}");
            }
        }
    }

    #[test]
    fn a_region_that_lies_leads_nowhere() {
        let (mapping, mut part) = part();
        part.take(1);
        let bytes = mapping.bytes();
        bytes.store_u16(part.start + LAST_AT, 0xFFFF);
        bytes.store_u16(part.head_at(1) + NEXT_AT, 0xFFFF);
        assert_eq!(again(&mapping).recover(5), [1]);
        assert!(Inflight::new(mapping, 25, SIZE).is_none(), "outside of the region");
    }
}
