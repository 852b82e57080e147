//! Removes a record.

use qpair_format::page::{Node, NodeMut};
use qpair_memory::FrameIndex;

use super::descend::{Route, latch};
use super::undo::UndoSink;
use super::{Change, CursorHint, Tree};
use crate::task::{Context, Descent, Need, Operation};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Removed {
    pub(crate) found: bool,
    /// The leaf, if it is so empty that it should be merged with a neighbour.
    pub(crate) sparse: Option<FrameIndex>,
    /// The number of bytes kept of the removed record.
    pub(crate) kept_bytes: usize,
}

pub(crate) struct Remove<'a, U> {
    tree: Tree,
    key: &'a [u8],
    change: Change<U>,
    cursor_hint: Option<CursorHint>,
    descent: Descent,
}

impl<'a, U> Remove<'a, U> {
    pub(crate) fn new(tree: Tree, key: &'a [u8], change: Change<U>) -> Self {
        Self { tree, key, change, cursor_hint: None, descent: Descent::default() }
    }

    /// Begins at the position that was prepared.
    pub(crate) fn at(mut self, cursor_hint: Option<CursorHint>) -> Self {
        self.descent.at = cursor_hint.map(|cursor_hint| cursor_hint.leaf);
        self.cursor_hint = cursor_hint;
        self
    }
}

/// Whether a page is so empty that it should be merged: a quarter or less is in use.
pub(crate) fn is_sparse(node: Node<'_>) -> bool {
    node.used_bytes() * 4 <= node.bytes.len()
}

impl<U: UndoSink> Operation for Remove<'_, U> {
    type Output = Removed;

    fn step(&mut self, context: Context<'_>) -> Result<Removed, Need> {
        let page = self.descent.walk_to_leaf(context, &self.tree, Route::To(self.key))?;
        let (position, found) = CursorHint::find_in(self.cursor_hint, page, self.key);
        if !page.validate() {
            self.descent.restart();
            return Err(Need::Retry);
        }
        if !found {
            return Ok(Removed { found: false, sparse: None, kept_bytes: 0 });
        }
        let frame = page.index();
        self.descent.restart();
        let mut page = latch(page)?;
        context.begin_change(&page)?;
        let node = Node::new(page.bytes());
        context.want_list(node, Some(node.value(position)))?;
        let kept_bytes = self.change.keep(context, &page, Some(position), true);
        let mut node = NodeMut::new(page.bytes_mut());
        node.remove(position);
        node.set_timestamp(self.change.timestamp.max(node.read().timestamp()));
        context.shared.pool.frames.set_dirty(frame, true);
        let is_sparse = frame != self.tree.root && is_sparse(Node::new(page.bytes()));
        let sparse = is_sparse.then_some(frame);
        Ok(Removed { found: true, sparse, kept_bytes })
    }

    fn descent(&mut self) -> &mut Descent {
        &mut self.descent
    }
}
