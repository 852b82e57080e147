//! Insert or replace a record.

use qpair_memory::ExclusiveFrame;

use super::descend::{Route, latch};
use super::{Leaf, Spot, Tree};
use crate::page::{Node, NodeMut};
use crate::task::{Context, Descent, Need, Operation};
use crate::tx::RowRef;

/// The commit that a change belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    /// Its stamp; the leaf carries it from then on.
    pub(crate) stamp: u64,
    /// The row in the row table that keeps what was there before; none where no snapshot can be in use.
    pub(crate) row: Option<RowRef>,
}

impl Change {
    /// Keeps what is at `position` of a latched leaf, or frees its pages if nobody can need them; bytes kept.
    pub(super) fn keep(
        self,
        context: Context<'_>,
        page: &ExclusiveFrame<'_>,
        position: Option<usize>,
        delete: bool,
    ) -> usize {
        let value = position.map(|position| Node::new(page.bytes()).value(position));
        if let Some(row) = self.row {
            if let Some(value) = value
                && value.overflow
                && let Some(old) = page.as_slice().get(value.offset..value.offset + value.len)
            {
                context.detach_large(old);
            }
            let before = value.map(|value| (page.as_slice(), value));
            return context.shared.tx.rows.keep(row, self.stamp, before, delete);
        }
        if let Some(value) = value
            && value.overflow
            && let Some(old) = page.as_slice().get(value.offset..value.offset + value.len)
        {
            context.give_large_up(old);
        }
        0
    }
}

/// How a put ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PutOutcome {
    /// Done; whether a record was replaced, how many bytes were kept of it, and the leaf as it is now.
    Done { replaced: bool, kept_bytes: usize, leaf: Leaf },
    /// The leaf must be split first; bytes the record needs.
    Full { needed_bytes: usize },
}

/// Inserts or replaces a record in its leaf.
pub(crate) struct Put<'a> {
    tree: Tree,
    key: &'a [u8],
    value: &'a [u8],
    overflow: bool,
    change: Change,
    near: Option<Leaf>,
    spot: Option<Spot>,
    descent: Descent,
}

impl<'a> Put<'a> {
    /// `overflow`: the value is an overflow descriptor.
    pub(crate) fn new(
        tree: Tree,
        key: &'a [u8],
        value: &'a [u8],
        overflow: bool,
        change: Change,
    ) -> Self {
        let (near, spot, descent) = (None, None, Descent::default());
        Self { tree, key, value, overflow, change, near, spot, descent }
    }

    /// Looks first whether this leaf covers the key.
    pub(crate) fn near(mut self, leaf: Option<Leaf>) -> Self {
        self.near = leaf;
        self
    }

    /// Begins where it was prepared.
    pub(crate) fn at(mut self, spot: Option<Spot>) -> Self {
        self.descent.at = spot.map(|spot| spot.leaf);
        self.spot = spot;
        self
    }
}

impl Operation for Put<'_> {
    type Output = PutOutcome;

    fn step(&mut self, context: Context<'_>) -> Result<PutOutcome, Need> {
        if let Some(near) = self.near {
            self.descent.begin_near(context, near, self.key);
        }
        let page = self.descent.walk_to_leaf(context, &self.tree, Route::To(self.key))?;
        let frame = page.index();
        if self.near.is_some() {
            // The next change will look at the fences, which are far from all else.
            page.bytes().prefetch(page.bytes().len() - 32);
        }
        // The place is used up: whatever comes next starts from the root.
        self.descent.restart();
        let seen = page;
        let mut page = latch(seen)?;
        context.begin_change(&page)?;
        // Latched at the version that was seen: what was found there is right.
        let (position, found) = Spot::find_in(self.spot, seen, self.key);
        let node = Node::new(page.bytes());
        if let Err(needed_bytes) = lacks(node, (position, found), self.key, self.value.len(), 0) {
            return Ok(PutOutcome::Full { needed_bytes });
        }
        let record = (self.key, self.value, self.overflow);
        let kept_bytes = put_record(context, &mut page, record, (position, found), self.change);
        context.shared.pool.frames.set_dirty(frame, true);
        let leaf = (frame, page.release());
        Ok(PutOutcome::Done { replaced: found, kept_bytes, leaf })
    }

    fn descent(&mut self) -> &mut Descent {
        &mut self.descent
    }
}

/// Puts a record (key, value, and whether that is a descriptor) into a latched leaf that has room for it, where it was found or belongs;
/// bytes of the before-image.
#[inline(always)]
pub(super) fn put_record(
    context: Context<'_>,
    page: &mut ExclusiveFrame<'_>,
    (key, value, overflow): (&[u8], &[u8], bool),
    (position, found): (usize, bool),
    change: Change,
) -> usize {
    let suffix = key.get(Node::new(page.bytes()).prefix_len()..).unwrap_or_default();
    let kept_bytes = change.keep(context, page, found.then_some(position), false);
    let mut node = NodeMut::new(page.bytes_mut());
    if !(found && node.overwrite_value(position, value, overflow)) {
        if found {
            node.remove(position);
        }
        let fits = node.insert_record(position, suffix, value, overflow);
        debug_assert!(fits, "room was measured before");
    }
    node.set_stamp(change.stamp.max(node.read().stamp()));
    kept_bytes
}

/// The bytes that a record needs, if its leaf has fewer; else those by which it makes the leaf fuller. `beside_bytes` are wanted
/// for others.
fn lacks(
    node: Node<'_>,
    (position, found): (usize, bool),
    key: &[u8],
    value_len: usize,
    beside_bytes: usize,
) -> Result<usize, usize> {
    let suffix_len = key.len().saturating_sub(node.prefix_len());
    let needed_bytes = Node::entry_bytes(true, suffix_len, value_len);
    let there = if found { node.entry_bytes_at(position) } else { 0 };
    match node.free_bytes() + there < needed_bytes + beside_bytes {
        // An empty leaf has a quarter of the page at least: more than that, and what this record needs, no split must promise.
        true => Err((needed_bytes + beside_bytes).min(node.bytes.len() / 4).max(needed_bytes)),
        false => Ok(needed_bytes.saturating_sub(there)),
    }
}

/// Brings the leaf of a key into memory, and looks whether there is room, before a commit must not fail any more.
pub(crate) struct Prepare<'a> {
    tree: Tree,
    key: &'a [u8],
    /// Length of the value that will be put, if one will be.
    value_len: Option<usize>,
    /// The leaf of the write before, and bytes that the writes before need of it.
    beside: Option<(Leaf, usize)>,
    spot: Option<Spot>,
    descent: Descent,
}

impl<'a> Prepare<'a> {
    pub(crate) fn new(tree: Tree, key: &'a [u8], value_len: Option<usize>) -> Self {
        Self { tree, key, value_len, beside: None, spot: None, descent: Descent::default() }
    }

    /// Begins where the key was seen.
    pub(crate) fn at(mut self, spot: Option<Spot>) -> Self {
        self.descent.at = spot.map(|spot| spot.leaf);
        self.spot = spot;
        self
    }

    /// Looks first whether this leaf covers the key. Writes before this one will need so many bytes of it.
    pub(crate) fn beside(mut self, leaf: Option<(Leaf, usize)>) -> Self {
        self.beside = leaf;
        self
    }
}

impl Operation for Prepare<'_> {
    /// Where the key is, and the bytes by which the write makes its leaf fuller; or the bytes that it lacks room for.
    type Output = Result<(Spot, usize), usize>;

    fn step(&mut self, context: Context<'_>) -> Result<Self::Output, Need> {
        if let Some((near, _)) = self.beside {
            self.descent.begin_near(context, near, self.key);
        }
        let page = self.descent.walk_to_leaf(context, &self.tree, Route::To(self.key))?;
        if context.is_unsaved(page.index()) {
            // Saving it takes space, which is not to be had for certain: the change itself must not ask for it.
            self.descent.restart();
            let latched = latch(page)?;
            context.begin_change(&latched)?;
            drop(latched);
            return Err(Need::Retry);
        }
        let found = Spot::find_in(self.spot, page, self.key);
        let room = match self.value_len {
            Some(value_len) => {
                let beside = self.beside.filter(|(near, _)| near.0 == page.index());
                let beside_bytes = beside.map_or(0, |(_, bytes)| bytes);
                lacks(Node::new(page.bytes()), found, self.key, value_len, beside_bytes)
            }
            None => Ok(0),
        };
        if !page.validate() {
            self.descent.restart();
            return Err(Need::Retry);
        }
        Ok(room.map(|bytes| (Spot::new(page, found), bytes)))
    }

    fn descent(&mut self) -> &mut Descent {
        &mut self.descent
    }
}
