//! The check of superblocks and checkpoint records, which a store has twice. One of two copies is
//! enough, so damage of the other loses nothing; but a device that damages one will damage more.

use qpair_format::Result;
use qpair_format::image::Record;
use qpair_format::superblock::{SLOT_OFFSETS, Superblock};

use super::walk::Walk;
use crate::checkpoint::read_records;

impl Walk<'_> {
    /// Reports copies that cannot be read while the second copy can.
    pub(super) fn check_second_copies(&mut self) -> Result<()> {
        for member in &self.inner.incarnation.members {
            for (offset, slot) in SLOT_OFFSETS.iter().zip(qpair_members::read_slots(&**member)?.0) {
                if !Superblock::is_whole(&slot) {
                    let name = &member.info().name;
                    self.report.harmless.push(format!("the superblock at byte {offset} of {name}"));
                }
            }
        }
        let used = self.inner.shared.checkpointing.record();
        let shared = self.inner.shared.clone();
        let records = self
            .inner
            .block_on(move || async move { Ok(read_records(&shared, used.store_id).await) })?;
        // In a store that was not closed, the power may have failed between the writes of the two
        // copies.
        let is_whole =
            |record: &Option<Record>| record.is_some_and(|record| record == used || !used.closed);
        if records.iter().any(is_whole) {
            for (page_id, record) in (0..).zip(&records) {
                if !is_whole(record) {
                    let place = self.place_of(page_id);
                    let what = format!("the checkpoint record in page {page_id}, {place}");
                    self.report.harmless.push(what);
                }
            }
        }
        Ok(())
    }
}
