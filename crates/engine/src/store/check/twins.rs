//! What a store has twice: labels, and checkpoint records. One of two is enough, so nothing is lost with the other; but a device that
//! damages one will damage more.

use super::super::labels;
use super::super::superblock::{SLOT_OFFSETS, Superblock};
use super::walk::Walk;
use crate::checkpoint::Record;
use crate::error::Result;
use crate::space::RECORD_PAGES;
use crate::store::read_page;

impl Walk<'_> {
    /// Names those that cannot be read, where the other can.
    pub(super) fn look_at_twins(&mut self) -> Result<()> {
        for member in &self.inner.members {
            let slots = SLOT_OFFSETS.iter().map(|offset| (*offset, None)).collect();
            for (offset, slot) in SLOT_OFFSETS.iter().zip(labels::transfer(&**member, slots)?) {
                if !Superblock::is_whole(&slot) {
                    let name = &member.info().name;
                    self.report.harmless.push(format!("the label at byte {offset} of {name}"));
                }
            }
        }
        let used = self.inner.shared.record();
        let shared = self.inner.shared.clone();
        let damaged = self.inner.block_on(move || async move {
            let mut damaged = Vec::new();
            for page_id in 0..RECORD_PAGES {
                let page = read_page(&shared, page_id).await;
                let found = page.ok().and_then(|page| Record::decode(&page));
                let is_whole = found.is_some_and(|found| {
                    // Of a store that was not closed, the power may have failed between the two.
                    found.store_id == used.store_id && (found == used || !used.closed)
                });
                if !is_whole {
                    damaged.push(page_id);
                }
            }
            Ok(damaged)
        })?;
        if damaged.len() < RECORD_PAGES as usize {
            for page_id in damaged {
                let place = self.place_of(page_id);
                self.report
                    .harmless
                    .push(format!("the checkpoint record in page {page_id}, {place}"));
            }
        }
        Ok(())
    }
}
