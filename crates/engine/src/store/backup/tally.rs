//! Whether pages that are copied without those above them are the ones that those mean.
//!
//! What always holds: of each page of a tree, of a large value, and of the list of one's runs, one other page, or the image, says which it is: its
//! place, or its value's timestamp. So two sums over an image are the same: of what its pages are, and of what is said of them. What is summed up
//! looks random, so that they differ if a page does.

/// Pages that a value has at most.
use qpair_format::large::{Descriptor, decode_list};
use qpair_format::page::{HEADER_BYTES, Node, PAGE_SIZE_MIN, PageKind, VALUE_LEN_MAX, field};
use qpair_format::place::page_of;

const PAGES_MAX: usize = VALUE_LEN_MAX / (PAGE_SIZE_MIN - HEADER_BYTES) + 1;

/// What the pages so far are, less what is said of them.
#[derive(Debug, Default)]
pub(super) struct Tally(u64);

impl Tally {
    /// Something says that a page is in this place.
    pub(super) fn expect(&mut self, place: u64) {
        self.0 = self.0.wrapping_sub(mix(place));
    }

    fn find(&mut self, place: u64) {
        self.0 = self.0.wrapping_add(mix(place));
    }

    /// Takes in a page whose checksum and id are right.
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
                // What a descriptor says, it says of no more pages than a value has.
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

    /// Whether all pages are what is said of them, and none is missing.
    pub(super) fn is_even(&self) -> bool {
        self.0 == 0
    }
}

/// What stands for a page of a large value.
fn part(timestamp: u64, page_id: u64) -> u64 {
    mix(timestamp).wrapping_add(page_id)
}

/// A number that looks random: the finalizer of SplitMix64.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}
