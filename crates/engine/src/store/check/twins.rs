//! What a store has twice: superblocks, and checkpoint records. One of two is enough, so nothing is lost with the other; but a device that
//! damages one will damage more.

use qpair_format::Result;
use qpair_format::image::Record;
use qpair_format::superblock::{SLOT_OFFSETS, Superblock};

use super::walk::Walk;
use crate::checkpoint::read_records;

impl Walk<'_> {
    /// Names those that cannot be read, where the other can.
    pub(super) fn look_at_twins(&mut self) -> Result<()> {
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
        // Of a store that was not closed, the power may have failed between the two.
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
