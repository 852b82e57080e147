//! Inserts or replaces a record.

use qpair_format::page::{Node, NodeMut};
use qpair_memory::{ExclusiveFrame, OptimisticFrame};

use super::descend::{Route, latch};
use super::undo::UndoSink;
use super::{CursorHint, Leaf, Tree};
use crate::task::{Context, Descent, Need, Operation};

/// The commit that a change belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change<U> {
    /// The commit timestamp, which the leaf carries from then on.
    pub(crate) timestamp: u64,
    pub(crate) undo: U,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PutOutcome {
    /// The record was put: whether it replaced one, how many bytes were kept of that one, and the
    /// leaf as it is now.
    Done { replaced: bool, kept_bytes: usize, leaf: Leaf },
    /// The leaf must be split first. The record needs this many bytes.
    Full { needed_bytes: usize },
}

/// Inserts or replaces a record in its leaf.
pub(crate) struct Put<'a, U> {
    tree: Tree,
    key: &'a [u8],
    value: &'a [u8],
    overflow: bool,
    change: Change<U>,
    near: Option<Leaf>,
    cursor_hint: Option<CursorHint>,
    descent: Descent,
}

impl<'a, U> Put<'a, U> {
    /// Creates the operation. `overflow` says that the value is an overflow descriptor.
    pub(crate) fn new(
        tree: Tree,
        key: &'a [u8],
        value: &'a [u8],
        overflow: bool,
        change: Change<U>,
    ) -> Self {
        let (near, cursor_hint, descent) = (None, None, Descent::default());
        Self { tree, key, value, overflow, change, near, cursor_hint, descent }
    }

    /// Tries this leaf first, and uses it if it covers the key.
    pub(crate) fn near(mut self, leaf: Option<Leaf>) -> Self {
        self.near = leaf;
        self
    }

    /// Begins at the position that was prepared.
    pub(crate) fn at(mut self, cursor_hint: Option<CursorHint>) -> Self {
        self.descent.at = cursor_hint.map(|cursor_hint| cursor_hint.leaf);
        self.cursor_hint = cursor_hint;
        self
    }
}

impl<U: UndoSink> Operation for Put<'_, U> {
    type Output = PutOutcome;

    fn step(&mut self, context: Context<'_>) -> Result<PutOutcome, Need> {
        if let Some(near) = self.near {
            self.descent.begin_near(context, near, self.key);
        }
        let page = self.descent.walk_to_leaf(context, &self.tree, Route::To(self.key))?;
        let frame = page.index();
        if self.near.is_some() {
            // The next change will look at the fences, which lie far from the other data.
            page.bytes().prefetch(page.bytes().len() - 32);
        }
        // The saved position is used up: the next try starts from the root.
        self.descent.restart();
        let seen = page;
        let mut page = latch(seen)?;
        context.begin_change(&page)?;
        // The page is latched at the version that was seen, so the position found there is right.
        let (position, found) = CursorHint::find_in(self.cursor_hint, seen, self.key);
        let node = Node::new(page.bytes());
        context.want_list(node, found.then(|| node.value(position)))?;
        let (needed_bytes, there) = needs(node, (position, found), self.key, self.value.len());
        if node.free_bytes() + there < needed_bytes {
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

/// Puts a record (key, value, and whether that is a descriptor) into a latched leaf that has room
/// for it, at the position where its key was found or belongs. Returns the number of bytes kept of
/// the before-image.
#[inline(always)]
pub(super) fn put_record<U: UndoSink>(
    context: Context<'_>,
    page: &mut ExclusiveFrame<'_>,
    (key, value, overflow): (&[u8], &[u8], bool),
    (position, found): (usize, bool),
    change: Change<U>,
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
    node.set_timestamp(change.timestamp.max(node.read().timestamp()));
    kept_bytes
}

/// Returns the bytes that a record needs in its leaf, and those of them that the replaced record
/// has.
fn needs(
    node: Node<'_>,
    (position, found): (usize, bool),
    key: &[u8],
    value_len: usize,
) -> (usize, usize) {
    let suffix_len = key.len().saturating_sub(node.prefix_len());
    let there = if found { node.entry_bytes_at(position) } else { 0 };
    (Node::entry_bytes(true, suffix_len, value_len), there)
}

/// The space that earlier writes of the same commit need in a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beside {
    /// The leaf of the last of those writes.
    pub(crate) leaf: Leaf,
    /// The number of bytes by which those writes fill the leaf. If the leaf will be cut before some
    /// of them, only the writes after the cut count, and [`Prepared::cut`] is added.
    pub(crate) bytes: isize,
    /// The bytes of the last of those writes.
    pub(crate) last_bytes: usize,
    /// Whether the writes count for any leaf that the next write goes to, because their leaf was
    /// split.
    pub(crate) was_split: bool,
}

/// The position of a prepared write, and the space it needs there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepared {
    pub(crate) cursor_hint: CursorHint,
    /// The number of bytes by which the write fills its leaf.
    pub(crate) bytes: usize,
    /// Set if the leaf has no room for this write beside the earlier ones, and a split now could
    /// make none: the leaf will be cut before this write when the write is made. The value is the
    /// size in bytes of the part that this write goes to, minus the present size of the leaf's
    /// content; it is usually negative.
    pub(crate) cut: Option<isize>,
}

/// A leaf must be split before a write is prepared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lack {
    pub(crate) needed_bytes: usize,
    /// Whether earlier writes of the commit go to the same leaf.
    pub(crate) beside: bool,
}

/// Brings the leaf of a key into memory and checks that there is room, before the commit reaches
/// the point where it must not fail.
pub(crate) struct Prepare<'a> {
    tree: Tree,
    key: &'a [u8],
    /// The length of the value that will be put, if any.
    value_len: Option<usize>,
    beside: Option<Beside>,
    cursor_hint: Option<CursorHint>,
    descent: Descent,
}

impl<'a> Prepare<'a> {
    pub(crate) fn new(tree: Tree, key: &'a [u8], value_len: Option<usize>) -> Self {
        Self { tree, key, value_len, beside: None, cursor_hint: None, descent: Descent::default() }
    }

    /// Begins at the position where the key was seen.
    pub(crate) fn at(mut self, cursor_hint: Option<CursorHint>) -> Self {
        self.descent.at = cursor_hint.map(|cursor_hint| cursor_hint.leaf);
        self.cursor_hint = cursor_hint;
        self
    }

    /// Tries the leaf of the earlier writes first, and counts the space that they need if it covers
    /// the key.
    pub(crate) fn beside(mut self, beside: Option<Beside>) -> Self {
        self.beside = beside;
        self
    }

    /// Returns the space that the write needs in its leaf, or the space that the leaf lacks.
    fn room(&self, page: OptimisticFrame<'_>, found: (usize, bool)) -> Result<Prepared, Lack> {
        let cursor_hint = CursorHint::new(page, found);
        let Some(value_len) = self.value_len else {
            return Ok(Prepared { cursor_hint, bytes: 0, cut: None });
        };
        let node = Node::new(page.bytes());
        let (needed_bytes, there) = needs(node, found, self.key, value_len);
        let bytes = needed_bytes.saturating_sub(there);
        let beside = self.beside.filter(|beside| beside.was_split || beside.leaf.0 == page.index());
        let left = (node.free_bytes() + there) as isize - beside.map_or(0, |beside| beside.bytes);
        if left >= needed_bytes as isize {
            return Ok(Prepared { cursor_hint, bytes, cut: None });
        }
        let lack = |needed_bytes| Lack { needed_bytes, beside: beside.is_some() };
        let Some(beside) = beside else { return Err(lack(needed_bytes)) };
        // An empty leaf has at least a quarter of the page. A split never needs to reserve more
        // than that plus this record.
        let quarter = needed_bytes.max(node.bytes.len() / 4);
        if node.free_bytes() < quarter {
            return Err(lack(quarter));
        }
        let behind: usize = (0..found.0).map(|position| node.entry_bytes_at(position)).sum();
        // A separator is at most one byte longer than the key before it. It is a fence of this part
        // and of the part before; if that part has no room for it, its last record moves over.
        let fence_bytes = self.key.len() + 1;
        let moved = if left < fence_bytes as isize { beside.last_bytes } else { 0 };
        Ok(Prepared {
            cursor_hint,
            bytes,
            cut: Some((fence_bytes + moved) as isize - behind as isize),
        })
    }
}

impl Operation for Prepare<'_> {
    type Output = Result<Prepared, Lack>;

    fn step(&mut self, context: Context<'_>) -> Result<Self::Output, Need> {
        // A leaf that was split is looked up from the root, as the split does. In a damaged tree
        // both then reach the same leaf, and not two leaves, one of which never gets room.
        if let Some(beside) = self.beside.filter(|beside| !beside.was_split) {
            self.descent.begin_near(context, beside.leaf, self.key);
        }
        let page = self.descent.walk_to_leaf(context, &self.tree, Route::To(self.key))?;
        if context.is_unsaved(page.index()) {
            // Saving the page takes space that may not be available, so it must happen before the
            // change itself.
            self.descent.restart();
            let latched = latch(page)?;
            context.begin_change(&latched)?;
            drop(latched);
            return Err(Need::Retry);
        }
        let (position, found) = CursorHint::find_in(self.cursor_hint, page, self.key);
        let room = self.room(page, (position, found));
        let node = Node::new(page.bytes());
        let wanted = context.want_list(node, found.then(|| node.value(position)));
        if !page.validate() {
            self.descent.restart();
            return Err(Need::Retry);
        }
        // Wait before the commit takes its timestamp.
        wanted.map(|()| room)
    }

    fn descent(&mut self) -> &mut Descent {
        &mut self.descent
    }
}
