//! Keeping the before-images of a commit in its rows, for snapshots.

use qpair_format::page::LeafValue;

use crate::shared::Shared;
use crate::tree::{UndoSink, descriptor};
use crate::tx::Tx;
use crate::tx::versions::RowRef;

/// Keeps a before-image in the row that the transaction has locked.
#[derive(Clone, Copy)]
pub(super) struct Keep<'a> {
    pub(super) tx: &'a Tx,
    pub(super) row: RowRef,
}

impl UndoSink for Keep<'_> {
    #[inline]
    fn keep(
        self,
        shared: &Shared,
        timestamp: u64,
        before: Option<(&[u8], LeafValue)>,
        delete: bool,
    ) -> usize {
        if let Some(descriptor) = before.and_then(descriptor) {
            shared.unlink_large(descriptor);
            self.tx.note_large(descriptor, timestamp);
        }
        self.tx.rows.keep(self.row, timestamp, before, delete)
    }
}
