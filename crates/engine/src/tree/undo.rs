//! The sinks for the values that changes replace or delete. The tree does not know which snapshots
//! may still read them.

use qpair_format::page::{LeafValue, Node};
use qpair_memory::ExclusiveFrame;

use super::Change;
use crate::shared::Shared;
use crate::task::Context;

/// Receives the old value before a change.
pub(crate) trait UndoSink: Copy {
    /// Keeps the value at its place in a latched leaf that the change with this timestamp is about
    /// to replace; `before` is `None` if the key is new. `delete` says that the record is deleted.
    /// Returns the number of bytes kept.
    fn keep(
        self,
        shared: &Shared,
        timestamp: u64,
        before: Option<(&[u8], LeafValue)>,
        delete: bool,
    ) -> usize;
}

/// A sink for values that no reader needs: their pages are given back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoUndo;

impl UndoSink for NoUndo {
    #[inline]
    fn keep(self, shared: &Shared, _: u64, before: Option<(&[u8], LeafValue)>, _: bool) -> usize {
        if let Some(descriptor) = before.and_then(descriptor) {
            shared.give_large_up(descriptor);
        }
        0
    }
}

/// Returns the descriptor of a value if it is a large one.
#[inline]
pub(crate) fn descriptor((leaf, value): (&[u8], LeafValue)) -> Option<&[u8]> {
    leaf.get(value.offset..value.offset + value.len).filter(|_| value.overflow)
}

impl<U: UndoSink> Change<U> {
    /// Gives the record at `position` of a latched leaf to the sink. Returns the number of bytes
    /// kept.
    #[inline]
    pub(super) fn keep(
        self,
        context: Context<'_>,
        page: &ExclusiveFrame<'_>,
        position: Option<usize>,
        delete: bool,
    ) -> usize {
        let value = |position| (page.as_slice(), Node::new(page.bytes()).value(position));
        self.undo.keep(context.shared, self.timestamp, position.map(value), delete)
    }
}
