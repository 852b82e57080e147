//! A store whose labels are both gone, as after a partition table or a file system was written over them: what they would say is
//! told by its pages, which have checksums of their own.

use std::sync::Arc;

use qpair_block::BlockDevice;

use super::super::labels;
use super::super::superblock::{LABEL_BYTES, StoreState, Superblock};
use super::PageReader;
use crate::checkpoint::Record;
use crate::error::Result;
use crate::page::{PAGE_SIZE_MAX, PAGE_SIZE_MIN};
use crate::space::RECORD_PAGES;

/// Pages of each size that are looked at.
const LOOKED_AT: u64 = 1024;

/// The label that the only member of a store once had, as far as it is needed to read the store; none where no page is sound, where a label
/// is, and for several members, whose order and unit the pages do not tell.
///
/// # Errors
/// `Version` for the label of a later version; what the device says.
pub(super) fn label_by_pages(members: &[Arc<dyn BlockDevice>]) -> Result<Option<Superblock>> {
    let [member] = members else { return Ok(None) };
    if member.size_bytes() < LABEL_BYTES + PAGE_SIZE_MAX as u64 {
        return Ok(None);
    }
    // What cannot be read is as good as gone.
    let slots = labels::read_slots(member.as_ref()).map(|(slots, _)| slots).unwrap_or_default();
    if Superblock::newest(&slots, &member.info().name)?.is_some() {
        return Ok(None);
    }
    let stripe_unit_bytes = PAGE_SIZE_MAX as u64;
    let device = labels::join(members, stripe_unit_bytes)?;
    let mut best: Option<(usize, Superblock)> = None;
    for page_size in (PAGE_SIZE_MIN.ilog2()..=PAGE_SIZE_MAX.ilog2()).map(|log| 1usize << log) {
        // A device may move no pages as small, or as large.
        let Ok(mut reader) = PageReader::new(device.clone(), None, page_size) else { continue };
        let pages: Vec<u64> = (0..LOOKED_AT.min(reader.capacity())).collect();
        let Ok(found) = reader.read_pages(&pages) else { continue };
        let sound = found.iter().flatten().count();
        if sound == 0 || best.as_ref().is_some_and(|(most, _)| *most >= sound) {
            continue;
        }
        let records = found.iter().take(RECORD_PAGES as usize).flatten();
        let record = records.filter_map(|page| Record::decode(page)).max_by_key(|of| of.sequence);
        let label = Superblock {
            store_id: record.as_ref().map_or([0; 16], |record| record.store_id),
            member_index: 0,
            member_count: 1,
            stripe_unit_bytes,
            page_size: page_size as u32,
            state: StoreState::Open,
            generation: record.map_or(1, |record| record.generation),
            created_s: 0,
            unfinished: false,
            log: None,
        };
        best = Some((sound, label));
    }
    Ok(best.map(|(_, label)| label))
}
