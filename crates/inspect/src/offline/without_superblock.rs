//! Reads a store both of whose superblocks are lost, for example because a partition table or a
//! file system was written over them. The content of the superblock is derived from the pages,
//! which have checksums of their own.

use std::ops::ControlFlow;
use std::sync::Arc;

use qpair_block::BlockDevice;
use qpair_format::image::Record;
use qpair_format::page::{PAGE_SIZE_MAX, PAGE_SIZE_MIN, damage, field, own_place};
use qpair_format::superblock::{SUPERBLOCK_BYTES, StoreState, Superblock};
use qpair_format::{Error, ErrorKind, Result};

use super::PageReader;
use qpair_format::image::RECORD_PAGES;

/// The number of bytes that are examined together. The first part with a sound page decides.
const PART_BYTES: u64 = 4 << 20;

/// Receives the number of bytes examined and the total, and may stop the search. `None` examines
/// only the first part.
pub(crate) type Look<'a> = Option<&'a dyn Fn(u64, u64) -> ControlFlow<()>>;

/// Derives the superblock of a store's only member, as far as it is needed to read the store.
/// Returns `None` if no page is sound, if there is a superblock, or for several members, whose
/// order and stripe unit cannot be derived from the pages.
///
/// # Errors
/// `Version` for the superblock of a later version; `Interrupted`; the device's error.
pub(super) fn superblock_by_pages(
    members: &[Arc<dyn BlockDevice>],
    look: Look<'_>,
) -> Result<Option<Superblock>> {
    let [member] = members else { return Ok(None) };
    if member.size_bytes() < SUPERBLOCK_BYTES + PAGE_SIZE_MAX as u64 {
        return Ok(None);
    }
    // A superblock that cannot be read counts as lost.
    let slots =
        qpair_members::read_slots(member.as_ref()).map(|(slots, _)| slots).unwrap_or_default();
    if Superblock::newest(&slots, &member.info().name)?.is_some() {
        return Ok(None);
    }
    let device = qpair_members::join(members, PAGE_SIZE_MAX as u64)?;
    // The device may not support transfers as small as this page size.
    let block_bytes = PAGE_SIZE_MIN.max(member.info().logical_block_bytes as usize);
    let mut reader = PageReader::new(device, None, block_bytes)?;
    let end = reader.capacity() * block_bytes as u64;
    let mut from = 0;
    while from < end {
        let part = read_part(&mut reader, from, (end - from).min(PART_BYTES) as usize)?;
        if let Some((page_size, record)) = tell(&part, from, reader.transfer_bytes()) {
            return Ok(Some(Superblock {
                store_id: record.as_ref().map_or([0; 16], |record| record.store_id),
                member_index: 0,
                member_count: 1,
                stripe_unit_bytes: PAGE_SIZE_MAX as u64,
                page_size: page_size as u32,
                state: StoreState::Open,
                generation: record.map_or(1, |record| record.generation),
                created_s: 0,
                unfinished: false,
                extents: false,
                renames: false,
                compressed: false,
                expiring: false,
                long_keys: true,
                commit_parts: false,
                log: None,
                key_slot: None,
            }));
        }
        from += part.len() as u64;
        let Some(look) = look else { break };
        if look(from, end).is_break() {
            return Err(Error::new(ErrorKind::Interrupted, "the search for pages was interrupted"));
        }
    }
    Ok(None)
}

/// Reads bytes of the device, with zeroes in place of those that cannot be read.
fn read_part(reader: &mut PageReader, from: u64, len: usize) -> Result<Vec<u8>> {
    let mut part = vec![0; len];
    let at_once = reader.transfer_bytes();
    let starts: Vec<usize> = (0..len).step_by(at_once).collect();
    let unread = read_into(reader, from, &mut part, &starts, at_once)?;
    // An unreadable block must not make others unreadable.
    let block_bytes = reader.page_size();
    for start in unread {
        let blocks: Vec<usize> = (start..len.min(start + at_once)).step_by(block_bytes).collect();
        read_into(reader, from, &mut part, &blocks, block_bytes)?;
    }
    Ok(part)
}

/// Reads the blocks at these places of a part. Returns the places that cannot be read.
fn read_into(
    reader: &mut PageReader,
    from: u64,
    part: &mut [u8],
    starts: &[usize],
    at_once: usize,
) -> Result<Vec<usize>> {
    let len = |start: usize| at_once.min(part.len() - start);
    let ranges: Vec<(u64, usize)> =
        starts.iter().map(|&start| (from + start as u64, len(start))).collect();
    let mut unread = Vec::new();
    reader.read_ranges(&ranges, |index, bytes| {
        match bytes {
            Some(bytes) => part[starts[index]..][..bytes.len()].copy_from_slice(bytes),
            None => unread.push(starts[index]),
        }
        Ok(())
    })?;
    Ok(unread)
}

/// Returns the page size at which most pages are sound, and the newest checkpoint record among
/// them; `None` if no page is sound at any size.
fn tell(part: &[u8], from: u64, page_size_max: usize) -> Option<(usize, Option<Record>)> {
    let sizes = (PAGE_SIZE_MIN.ilog2()..=PAGE_SIZE_MAX.ilog2()).map(|log| 1_usize << log);
    let sound = |page_size: usize| {
        let first = from / page_size as u64;
        (first..).zip(part.chunks_exact(page_size)).filter(|(page_id, page)| {
            let place = own_place(page, *page_id);
            page[field::PAGE_ID..][..8] == place.to_le_bytes() && damage(page, place).is_none()
        })
    };
    let counts =
        sizes.filter(|size| *size <= page_size_max).map(|size| (sound(size).count(), size));
    // If several sizes have as many sound pages, the smallest one wins, because it comes first.
    let (count, page_size) = counts.rev().max_by_key(|(count, _)| *count)?;
    let records = sound(page_size).take_while(|(page_id, _)| *page_id < RECORD_PAGES);
    let record = records.filter_map(|(_, page)| Record::decode(page)).max_by_key(|of| of.sequence);
    (count > 0).then_some((page_size, record))
}
