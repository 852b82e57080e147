//! A check that copied pages are the ones that other pages refer to, although pages are copied in
//! any order.
//!
//! Invariant: each page of a tree, of a large value, and of a list of runs is referred to by
//! exactly one other page, or by the image, with its place or its value's timestamp. So two sums
//! over an image are equal: one over the pages, and one over the references. The summands look
//! random, so that the sums differ if a page does.

use qpair_format::large::{Descriptor, decode_list};
use qpair_format::page::{HEADER_BYTES, Node, PAGE_SIZE_MIN, PageKind, VALUE_LEN_MAX, field};
use qpair_format::place::page_of;

/// The maximum number of pages of a value.
const PAGES_MAX: usize = VALUE_LEN_MAX / (PAGE_SIZE_MIN - HEADER_BYTES) + 1;

/// The sum over the pages so far, less the sum over the references so far.
#[derive(Debug, Default)]
pub(super) struct Tally(u64);

impl Tally {
    pub(super) fn expect(&mut self, place: u64) {
        self.0 = self.0.wrapping_sub(mix(place));
    }

    fn find(&mut self, place: u64) {
        self.0 = self.0.wrapping_add(mix(place));
    }

    /// Adds a page whose checksum and id are right, and the references in it.
    pub(super) fn take(&mut self, node: Node<'_>) {
        let kind = node.kind_byte();
        if kind == PageKind::Overflow as u8 {
            let timestamp = node.bytes.load_u64(field::TIMESTAMP);
            self.find(part(timestamp, page_of(node.place())));
        } else if kind == PageKind::Extents as u8 {
            let timestamp = node.bytes.load_u64(field::TIMESTAMP);
            self.find(part(timestamp, page_of(node.place())));
            let mut page = Vec::new();
            node.bytes.append_to(0, node.bytes.len(), &mut page);
            if let Some((next, runs)) = decode_list(&page) {
                next.into_iter().for_each(|page_id| self.expect(part(timestamp, page_id)));
                // A descriptor never refers to more pages than a value can have.
                let pages = runs.flatten().take(PAGES_MAX);
                pages.for_each(|page_id| self.expect(part(timestamp, page_id)));
            }
        } else if kind == PageKind::Inner as u8 {
            self.find(node.place());
            (0..=node.count()).for_each(|position| self.expect(node.child(position)));
        } else if kind == PageKind::Leaf as u8 {
            self.find(node.place());
            let mut encoded = Vec::new();
            for value in (0..node.count()).map(|position| node.value(position)) {
                if value.overflow {
                    encoded.clear();
                    node.bytes.append_to(value.offset, value.len, &mut encoded);
                    if let Ok(descriptor) = Descriptor::decode(&encoded, node.bytes.len()) {
                        let first = descriptor.page_id..descriptor.page_id.saturating_add(1);
                        let pages = descriptor.run().unwrap_or(first);
                        pages.for_each(|page_id| self.expect(part(descriptor.timestamp, page_id)));
                    }
                }
            }
        }
    }

    /// Whether all pages match the references, and none is missing.
    pub(super) fn is_even(&self) -> bool {
        self.0 == 0
    }
}

/// Returns the summand of a page of a large value.
fn part(timestamp: u64, page_id: u64) -> u64 {
    mix(timestamp).wrapping_add(page_id)
}

/// Mixes a number so that it looks random: the finalizer of SplitMix64.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}
