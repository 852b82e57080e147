//! What a commit replaces is kept in its rows, for snapshots.

use super::rows::RowRef;
use crate::page::LeafValue;
use crate::shared::Shared;
use crate::tree::{UndoSink, descriptor};

impl UndoSink for RowRef {
    #[inline]
    fn keep(
        self,
        shared: &Shared,
        stamp: u64,
        before: Option<(&[u8], LeafValue)>,
        delete: bool,
    ) -> usize {
        if let Some(descriptor) = before.and_then(descriptor) {
            shared.detach_large(descriptor);
            shared.tx.note_large(shared, descriptor, stamp);
        }
        shared.tx.rows.keep(self, stamp, before, delete)
    }
}
