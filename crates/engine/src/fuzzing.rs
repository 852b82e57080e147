//! Doors for fuzzing: what reads bytes that anybody may have written. No part of the interface.

use crate::page::{Node, PAGE_SIZE_MAX, PAGE_SIZE_MIN, checksum, field};
use crate::store::choose_label;
use crate::swip::Swip;

/// Reads a page image in every way there is; nothing may panic.
pub fn read_page(image: &[u8]) {
    let size = image.len().clamp(PAGE_SIZE_MIN, PAGE_SIZE_MAX).next_power_of_two();
    let mut bytes = image.to_vec();
    bytes.resize(size, 0);
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes)).collect();
    let node = Node::new(words.as_slice().into());
    let sound = node.fault().is_none();
    let _ = crate::page::damage(&bytes, node.page_id());
    let (mut lower, mut upper) = (Vec::new(), Vec::new());
    node.lower_fence(&mut lower);
    node.upper_fence(&mut upper);
    let _ = (node.used_bytes(), node.free_bytes(), node.has_upper_fence(), node.tree_id());
    let mut key = Vec::new();
    // A few positions past the end too, as a torn count may name them.
    for position in 0..node.count().min(size / 8) + 3 {
        key.clear();
        node.key(position, &mut key);
        let value = node.value(position);
        let mut output = Vec::new();
        node.bytes.append_to(value.offset, value.len, &mut output);
        let _ = (node.entry_bytes_at(position), Swip::decode(node.child(position)));
        node.prefetch_record(position);
        let (found, equal) = node.lower_bound(&key);
        let _ = node.child_position(&key);
        if sound && position < node.count() {
            assert_eq!((found, equal), (position, true), "a sound page finds its keys");
        }
    }
}

/// Reads labels; nothing may panic. With `seal`, their checksums are made right first.
pub fn read_labels(slots: &[u8], seal: bool) {
    let slots: Vec<Vec<u8>> = slots
        .chunks(4096)
        .take(2)
        .map(|slot| {
            let mut slot = slot.to_vec();
            slot.resize(4096, 0);
            if seal {
                seal_label(&mut slot);
            }
            slot
        })
        .collect();
    let _ = choose_label(&slots);
}

/// Makes a label's magic number, version and checksum right.
pub fn seal_label(slot: &mut [u8]) {
    slot[..8].copy_from_slice(b"qpair\r\n\x1a");
    slot[8..12].copy_from_slice(&1u32.to_le_bytes());
    slot[12..16].fill(0);
    let sum = crc_fast::crc32_iscsi(slot);
    slot[12..16].copy_from_slice(&sum.to_le_bytes());
}

/// Makes a page's checksum right.
pub fn seal_page(page: &mut [u8]) {
    let sum = checksum(page);
    page[field::CHECKSUM..field::CHECKSUM + 4].copy_from_slice(&sum.to_le_bytes());
}
