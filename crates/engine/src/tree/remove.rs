//! Remove a record.

use super::Tree;
use super::descend::{Route, latch};
use crate::page::{Node, NodeMut};
use crate::task::{Context, Descent, Need, Operation};

/// How a removal ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Removed {
    /// Whether there was such a key.
    pub(crate) found: bool,
    /// The leaf is so empty that it should be merged with a neighbour.
    pub(crate) sparse: bool,
}

/// Removes a key's record from its leaf.
pub(crate) struct Remove<'a> {
    tree: Tree,
    key: &'a [u8],
    descent: Descent,
}

impl<'a> Remove<'a> {
    pub(crate) fn new(tree: Tree, key: &'a [u8]) -> Self {
        Self { tree, key, descent: Descent::default() }
    }
}

/// Whether a page is so empty that it should be merged: a quarter or less is in use.
pub(crate) fn is_sparse(node: Node<'_>) -> bool {
    node.used_bytes() * 4 <= node.bytes.len()
}

impl Operation for Remove<'_> {
    type Output = Removed;

    fn step(&mut self, context: Context<'_>) -> Result<Removed, Need> {
        let page = self.descent.walk_to_leaf(context, &self.tree, Route::To(self.key))?;
        let node = Node::new(page.bytes());
        let (position, found) = node.lower_bound(self.key);
        if !page.validate() {
            self.descent.restart();
            return Err(Need::Retry);
        }
        if !found {
            return Ok(Removed { found: false, sparse: false });
        }
        let frame = page.index();
        self.descent.restart();
        let mut page = latch(page)?;
        context.may_change()?;
        let node = Node::new(page.bytes());
        let value = node.value(position);
        if value.overflow {
            let mut descriptor = Vec::new();
            node.bytes.append_to(value.offset, value.len, &mut descriptor);
            context.free_large(&descriptor);
        }
        NodeMut::new(page.bytes_mut()).remove(position);
        context.shared.pool.frames.set_dirty(frame, true);
        let sparse = frame != self.tree.root && is_sparse(Node::new(page.bytes()));
        Ok(Removed { found: true, sparse })
    }

    fn descent(&mut self) -> &mut Descent {
        &mut self.descent
    }
}
