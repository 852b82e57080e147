//! Everything that reads a store's bytes, and checksums for bytes that pretend to be whole.

use qpair_format::superblock::{FORMAT_VERSION, Superblock};
use qpair_format::log::{LogGeometry, LogMerge, LogPosition, LogReader, MergeStep, Record, describe};
use qpair_format::page::{Node, PAGE_SIZE_MAX, PAGE_SIZE_MIN, checksum, field, words_of};
use qpair_format::swip::Swip;

/// Reads a page image in every way there is; nothing may panic.
pub fn read_page(image: &[u8]) {
    let size = image.len().clamp(PAGE_SIZE_MIN, PAGE_SIZE_MAX).next_power_of_two();
    let mut bytes = image.to_vec();
    bytes.resize(size, 0);
    let words = words_of(&bytes);
    let node = Node::new(words.as_slice().into());
    let sound = node.fault().is_none();
    let _ = qpair_format::page::damage(&bytes, node.place());
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

/// Reads superblocks; nothing may panic. With `seal`, their checksums are made right first.
pub fn read_superblocks(slots: &[u8], seal: bool) {
    let slots: Vec<Vec<u8>> = slots
        .chunks(4096)
        .take(2)
        .map(|slot| {
            let mut slot = slot.to_vec();
            slot.resize(4096, 0);
            if seal {
                seal_superblock(&mut slot);
            }
            slot
        })
        .collect();
    let _ = Superblock::choose(&slots, "superblocks");
}

/// Reads a checkpoint record (the first 512 bytes) and the description of an image (the rest);
/// nothing may panic, and what is read is what would be written.
pub fn read_checkpoint(bytes: &[u8]) {
    let (record, image) = bytes.split_at(bytes.len().min(PAGE_SIZE_MIN));
    let _ = qpair_format::image::Record::decode(record);
    if let Ok(image) = qpair_format::image::Image::decode(image) {
        // Words of zeroes at the bitmap's end are not written.
        let again = image.encode();
        let decoded = qpair_format::image::Image::decode(&again).ok();
        assert_eq!(decoded.map(|image| image.encode()), Some(again));
    }
}

/// Makes a superblock's magic number, version and checksum right.
pub fn seal_superblock(slot: &mut [u8]) {
    slot[..8].copy_from_slice(b"qpair\r\n\x1a");
    slot[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    slot[12..16].fill(0);
    let sum = crc_fast::crc32_iscsi(slot);
    slot[12..16].copy_from_slice(&sum.to_le_bytes());
}

/// Makes a page's checksum right.
pub fn seal_page(page: &mut [u8]) {
    let sum = checksum(page);
    page[field::CHECKSUM..field::CHECKSUM + 4].copy_from_slice(&sum.to_le_bytes());
}

/// Reads a record, a place in a log and a log from a device's bytes; nothing may panic. With
/// `seal`, the checksums of the log are made right first, as far as its headers can be believed.
pub fn read_log(image: &[u8], seal: bool) {
    if let Ok(record) = Record::decode(image) {
        let _ = describe(&record);
    }
    let geometry = LogGeometry { block_bytes: 512, segment_bytes: 2048, tag_bytes: 0 };
    let start = |log| LogPosition {
        incarnation: 1,
        segment_offset_bytes: 2048 * u64::from(log),
        segment_sequence: 0,
        chunk_sequence: 0,
        lsn: 0,
        at_bytes: 512,
        geometry,
        log,
        flushed: true,
        timestamp_max: None,
    };
    let mut bytes = image.to_vec();
    if seal {
        seal_log(&mut bytes);
    }
    // The image's end may be a place to start at, too.
    let tail = image.len().saturating_sub(LogPosition::BYTES);
    let starts = [Some(start(0)), Some(start(1)), LogPosition::decode(&image[tail..]).ok()];
    let readers = starts.into_iter().flatten().map(|start| LogReader::new(7, start, 1024));
    let mut merge = LogMerge::new(readers, 1);
    let mut next_timestamp = 1;
    // Bounds what a chain of segments that goes round could do, if it could.
    for _ in 0..100_000 {
        match merge.advance() {
            MergeStep::Read { log, offset_bytes, len_bytes } => {
                let from = (offset_bytes as usize).min(bytes.len());
                let to = from.saturating_add(len_bytes as usize).min(bytes.len());
                merge.give(log, &bytes[from..to]);
            }
            MergeStep::Record => {
                let record = merge.record();
                assert_eq!(record.map(|record| record.timestamp), Some(next_timestamp));
                next_timestamp += 1;
                let _ = record.map(|record| describe(&record));
            }
            MergeStep::Wait => panic!("everything that was asked for was given"),
            MergeStep::End => return,
        }
    }
    panic!("the log has no end");
}

/// Makes the checksums of a log's blocks right, from the innermost outwards: of the records of each
/// chunk, of the chunk's payload, and of the header.
fn seal_log(bytes: &mut [u8]) {
    let half = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes) as usize
    };
    for block in (0..bytes.len()).step_by(512) {
        let chunk = &mut bytes[block..];
        let header = match chunk.first_chunk() {
            Some(b"qlgc") => 88,
            Some(b"qlgs") => 96,
            _ => continue,
        };
        if chunk.len() < header {
            continue;
        }
        if header == 88 {
            let end = chunk.len().min(88 + half(chunk, 64));
            let mut at = 88 + half(chunk, 72);
            while at + 8 <= end {
                let len = half(chunk, at);
                if len < 8 || at + len > end {
                    break;
                }
                let sum = crc_fast::crc32_iscsi(&chunk[at + 8..at + len]);
                chunk[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
                at += len;
            }
            let sum = crc_fast::crc32_iscsi(&chunk[88..end]);
            chunk[68..72].copy_from_slice(&sum.to_le_bytes());
        }
        let sum = crc_fast::crc32_iscsi(&chunk[8..header]);
        chunk[4..8].copy_from_slice(&sum.to_le_bytes());
    }
}
