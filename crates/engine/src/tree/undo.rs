//! The sinks for the values that changes replace or delete. The tree does not know which snapshots
//! may still read them.

use qpair_format::page::{LeafValue, Node};
use qpair_memory::ExclusiveFrame;

use super::Change;
use crate::shared::Shared;
use crate::task::Context;

/// Takes what is there before a change.
pub(crate) trait UndoSink: Copy {
    /// Keeps the value at its place in a latched leaf, of which the change with this timestamp is about to be made; none if the key is new.
    /// `delete`: the record goes. Bytes kept.
    fn keep(
        self,
        shared: &Shared,
        timestamp: u64,
        before: Option<(&[u8], LeafValue)>,
        delete: bool,
    ) -> usize;
}

/// No reader needs what was there: its pages are given back.
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

/// The descriptor of a value that is a large one.
#[inline]
pub(crate) fn descriptor((leaf, value): (&[u8], LeafValue)) -> Option<&[u8]> {
    leaf.get(value.offset..value.offset + value.len).filter(|_| value.overflow)
}

impl<U: UndoSink> Change<U> {
    /// Gives what is at `position` of a latched leaf to the sink; bytes kept.
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
