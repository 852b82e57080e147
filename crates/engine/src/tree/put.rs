//! Insert or replace a record.

use super::Tree;
use super::descend::{Route, latch};
use crate::page::{Node, NodeMut};
use crate::task::{Context, Descent, Need, Operation};

/// How a put ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PutOutcome {
    /// Done; whether a record was replaced. Pages of a large value it had are free again.
    Done { replaced: bool },
    /// The leaf must be split first; bytes the record needs.
    Full { needed_bytes: usize },
}

/// Inserts or replaces a record in its leaf.
pub(crate) struct Put<'a> {
    tree: Tree,
    key: &'a [u8],
    value: &'a [u8],
    overflow: bool,
    descent: Descent,
}

impl<'a> Put<'a> {
    /// `overflow`: the value is an overflow descriptor.
    pub(crate) fn new(tree: Tree, key: &'a [u8], value: &'a [u8], overflow: bool) -> Self {
        Self { tree, key, value, overflow, descent: Descent::default() }
    }
}

impl Operation for Put<'_> {
    type Output = PutOutcome;

    fn step(&mut self, context: Context<'_>) -> Result<PutOutcome, Need> {
        let page = self.descent.walk_to_leaf(context, &self.tree, Route::To(self.key))?;
        let frame = page.index();
        // The place is used up: whatever comes next starts from the root.
        self.descent.restart();
        let mut page = latch(page)?;
        context.may_change()?;
        let node = Node::new(page.bytes());
        let (position, found) = node.lower_bound(self.key);
        let suffix = &self.key[node.prefix_len()..];
        let needed_bytes = Node::entry_bytes(true, suffix.len(), self.value.len());
        let mut old = None;
        if found {
            let value = node.value(position);
            if value.overflow {
                let mut descriptor = Vec::new();
                node.bytes.append_to(value.offset, value.len, &mut descriptor);
                old = Some(descriptor);
            }
            if node.free_bytes() + node.entry_bytes_at(position) < needed_bytes {
                return Ok(PutOutcome::Full { needed_bytes });
            }
        } else if node.free_bytes() < needed_bytes {
            return Ok(PutOutcome::Full { needed_bytes });
        }
        let mut node = NodeMut::new(page.bytes_mut());
        if !(found && node.overwrite_value(position, self.value, self.overflow)) {
            if found {
                node.remove(position);
            }
            let fits = node.insert_record(position, suffix, self.value, self.overflow);
            debug_assert!(fits, "room was measured before");
        }
        context.shared.pool.frames.set_dirty(frame, true);
        if let Some(old) = old {
            context.free_large(&old);
        }
        Ok(PutOutcome::Done { replaced: found })
    }

    fn descent(&mut self) -> &mut Descent {
        &mut self.descent
    }
}
