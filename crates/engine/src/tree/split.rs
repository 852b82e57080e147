//! Makes room: splits a page in two, or pushes the root's content down.

use std::cell::Cell;

use qpair_format::page::{Node, NodeInit, NodeMut, separator_len, shared_prefix_len};
use qpair_format::swip::Swip;
use qpair_memory::{ExclusiveFrame, FrameIndex};

use super::Tree;
use super::descend::{Route, latch, to_level};
use crate::canary::Canary;
use crate::pool::state;
use crate::task::{Context, Descent, Need, Operation};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SplitOutcome {
    /// The page has room now, or has changed; try again.
    Done,
    /// The parent has no room for another reference and must be split first. The reference needs
    /// this many bytes.
    ParentFull { level: u8, needed_bytes: usize },
}

/// Splits the page of `level` that covers `key`, unless it has `needed_bytes` free by now.
pub(crate) struct Split<'a> {
    tree: Tree,
    key: &'a [u8],
    level: u8,
    needed_bytes: usize,
    /// Whether keys come in their order, so that no more keys come before this one.
    sorted: bool,
    descent: Descent,
    /// A page id that is reserved for the new page. It is taken out if it is used.
    page_id: &'a Cell<Option<u64>>,
}

/// The position at which a page is cut: entries before `position` stay in the left half, and the
/// separator tells the halves apart.
struct Cut {
    position: usize,
    separator: Vec<u8>,
}

impl<'a> Split<'a> {
    pub(crate) fn new(
        tree: Tree,
        key: &'a [u8],
        level: u8,
        needed_bytes: usize,
        page_id: &'a Cell<Option<u64>>,
    ) -> Self {
        let descent = Descent::default();
        Self { tree, key, level, needed_bytes, sorted: false, descent, page_id }
    }

    /// Cuts a leaf right before the key, if there is something before it, because keys come in
    /// their order.
    pub(crate) fn sorted(mut self, sorted: bool) -> Self {
        self.sorted = sorted;
        self
    }

    /// Cuts `page` in two, the right part in `frame`.
    fn cut(
        &mut self,
        context: Context<'_>,
        mut parent: ExclusiveFrame<'_>,
        position: usize,
        mut page: ExclusiveFrame<'_>,
        frame: FrameIndex,
        cut: &Cut,
    ) {
        let Some(page_id) = self.page_id.take() else { return };
        let frames = &context.shared.pool.frames;
        let image = image(page.bytes());
        let old = Node::new(image.as_slice().into());
        let (level, count, old_last) =
            (old.level(), old.count(), old.bytes.load_u64(qpair_format::page::field::LAST_CHILD));
        let (mut lower, mut upper) = (Vec::new(), Vec::new());
        old.lower_fence(&mut lower);
        old.upper_fence(&mut upper);
        let upper = old.has_upper_fence().then_some(upper.as_slice());
        // In an inner page the entry at the cut moves up, and its child becomes the left page's
        // last child.
        let right_from = if level == 0 { cut.position } else { cut.position + 1 };
        let mut right = fresh(context, frame, page_id, (parent.index(), position + 1));
        let mut node = NodeMut::new(right.bytes_mut());
        node.init(NodeInit { level, tree_id: self.tree.id, page_id, lower: &cut.separator, upper });
        node.append_range(old, right_from, count);
        node.set_timestamp(old.timestamp());
        if level > 0 {
            node.set_last_child(old_last);
        }
        rehome(context, &right);
        let mut node = NodeMut::new(page.bytes_mut());
        node.init(NodeInit {
            level,
            tree_id: self.tree.id,
            page_id: old.place(),
            lower: &lower,
            upper: Some(&cut.separator),
        });
        context.shared.planted.strike(Canary::PanicInSplit);
        node.append_range(old, 0, cut.position);
        node.set_timestamp(old.timestamp());
        if level > 0 {
            node.set_last_child(old.child(cut.position));
        }
        // The reference that led to the whole page leads to the right part; a new one leads to the
        // left.
        let mut above = NodeMut::new(parent.bytes_mut());
        let prefix_len = above.read().prefix_len();
        above.set_child(position, Swip::Hot(frame).encode());
        let fits = above.insert_child(
            position,
            &cut.separator[prefix_len..],
            Swip::Hot(page.index()).encode(),
        );
        debug_assert!(fits, "room was measured before");
        frames.set_parent_hint(page.index(), Some((parent.index(), position)));
        frames.set_dirty(page.index(), true);
        frames.set_dirty(parent.index(), true);
    }
}

impl Operation for Split<'_> {
    type Output = SplitOutcome;

    fn step(&mut self, context: Context<'_>) -> Result<SplitOutcome, Need> {
        let Some(worker) = context.worker else { return Err(Need::Worker) };
        let Some(place) = to_level(context, &self.tree, Route::To(self.key), self.level)? else {
            return Ok(SplitOutcome::Done);
        };
        let frame = worker.take_frame().ok_or(Need::Frame)?;
        // From here on the frame is either used or given back.
        let outcome = (|| {
            let Some((parent, position)) = place.parent else {
                let root = latch(place.page)?;
                context.begin_change(&root)?;
                if Node::new(root.bytes()).free_bytes() < self.needed_bytes
                    && let Some(page_id) = self.page_id.take()
                {
                    push_root_down(context, &self.tree, root, frame, page_id);
                }
                return Ok(SplitOutcome::Done);
            };
            let parent = latch(parent)?;
            let page = latch(place.page)?;
            context.begin_change(&parent)?;
            context.begin_change(&page)?;
            let node = Node::new(page.bytes());
            if node.free_bytes() >= self.needed_bytes || (self.level > 0 && node.count() == 0) {
                return Ok(SplitOutcome::Done);
            }
            if !node.covers(self.key) {
                // Both pages are latched at the versions that were read, so this happens only in a
                // damaged tree, where splits would continue for ever.
                return Err(Need::Sound);
            }
            let cut = choose_cut(node, self.key, self.sorted);
            let above = Node::new(parent.bytes());
            let suffix_len = cut.separator.len().saturating_sub(above.prefix_len());
            let needed_bytes = Node::entry_bytes(false, suffix_len, 0);
            if above.free_bytes() < needed_bytes {
                return Ok(SplitOutcome::ParentFull { level: self.level + 1, needed_bytes });
            }
            self.cut(context, parent, position, page, frame, &cut);
            Ok(SplitOutcome::Done)
        })();
        // The page id and the frame are taken together. The frame itself may belong to others by
        // now: written, evicted, and on another worker's list.
        if self.page_id.get().is_some() {
            worker.give_frame(frame);
        }
        outcome
    }

    fn descent(&mut self) -> &mut Descent {
        &mut self.descent
    }
}

/// Moves the root's content to a new page below it, in `frame`.
pub(super) fn push_root_down(
    context: Context<'_>,
    tree: &Tree,
    mut root: ExclusiveFrame<'_>,
    frame: FrameIndex,
    page_id: u64,
) {
    let mut below = fresh(context, frame, page_id, (root.index(), 0));
    let (level, last_child) = {
        let node = Node::new(root.bytes());
        let mut copy = NodeMut::new(below.bytes_mut());
        copy.init(NodeInit {
            level: node.level(),
            tree_id: tree.id,
            page_id,
            lower: &[],
            upper: None,
        });
        copy.append_range(node, 0, node.count());
        copy.set_timestamp(node.timestamp());
        (node.level(), node.child(node.count()))
    };
    if level > 0 {
        NodeMut::new(below.bytes_mut()).set_last_child(last_child);
    }
    rehome(context, &below);
    let root_page = Node::new(root.bytes()).place();
    let mut node = NodeMut::new(root.bytes_mut());
    node.init(NodeInit {
        level: level + 1,
        tree_id: tree.id,
        page_id: root_page,
        lower: &[],
        upper: None,
    });
    node.set_last_child(Swip::Hot(frame).encode());
    context.shared.pool.frames.set_dirty(root.index(), true);
}

pub(crate) fn image(bytes: qpair_memory::RacyBytes<'_>) -> Vec<u64> {
    (0..bytes.len() / 8).map(|i| bytes.load_u64(i * 8)).collect()
}

/// Latches a free frame for a new page.
pub(super) fn fresh<'a>(
    context: Context<'a>,
    frame: FrameIndex,
    page_id: u64,
    parent: (FrameIndex, usize),
) -> ExclusiveFrame<'a> {
    let frames = &context.shared.pool.frames;
    let page = crate::task::latch_free(context.shared, frame);
    frames.set_page_id(frame, page_id);
    frames.set_parent_hint(frame, Some(parent));
    frames.set_dirty(frame, true);
    frames.set_epoch(frame, context.shared.checkpointing.epochs.epoch().number);
    frames.set_state(frame, state::HOT);
    page
}

/// Makes this page the parent of its children in memory.
pub(crate) fn rehome(context: Context<'_>, page: &ExclusiveFrame<'_>) {
    let node = Node::new(page.bytes());
    if node.is_leaf() {
        return;
    }
    for position in 0..=node.count() {
        if let Swip::Hot(child) = Swip::decode(node.child(position)) {
            context.shared.pool.frames.set_parent_hint(child, Some((page.index(), position)));
        }
    }
}

/// Whether `key`, which follows the last key of a page, looks like the next one of keys that only
/// grow. That is so at the right edge of the tree, or if it shares more bytes with the key before
/// it than with the fence behind it, as in one of many groups of consecutive numbers.
fn continues(node: Node<'_>, last: &[u8], key: &[u8]) -> bool {
    if !node.has_upper_fence() {
        return true;
    }
    let mut upper = Vec::new();
    node.upper_fence(&mut upper);
    shared_prefix_len(last, key) > shared_prefix_len(key, &upper)
}

/// Chooses where to split a page into which `key` did not fit. With `sorted`, a leaf is split right
/// before the key.
fn choose_cut(node: Node<'_>, key: &[u8], sorted: bool) -> Cut {
    let count = node.count();
    let at = |position: usize| {
        let mut key = Vec::new();
        node.key(position, &mut key);
        key
    };
    let (insert_at, _) = node.lower_bound(key);
    let appending = insert_at == count && count > 0 && continues(node, &at(count - 1), key);
    if node.level() > 0 {
        // Keys that only grow leave full pages behind them.
        let position = if appending { count - 1 } else { count / 2 };
        return Cut { position, separator: at(position) };
    }
    let between = |left: &[u8], right: &[u8]| right[..separator_len(left, right)].to_vec();
    if appending || sorted && insert_at > 0 {
        let separator = between(&at(insert_at - 1), key);
        // The left page keeps every record before the key and gets an upper fence on top.
        let gone: usize = (insert_at..count).map(|position| node.entry_bytes_at(position)).sum();
        if node.free_bytes() + gone >= separator.len() {
            return Cut { position: insert_at, separator };
        }
        // Move all records but one; that frees more than the key needs.
        if insert_at > 1 {
            let separator = between(&at(insert_at - 2), &at(insert_at - 1));
            return Cut { position: insert_at - 1, separator };
        }
    }
    if count == 1 {
        let only = at(0);
        return if key > only.as_slice() {
            Cut { position: 1, separator: between(&only, key) }
        } else {
            Cut { position: 0, separator: between(key, &only) }
        };
    }
    // Cut near half of the bytes, at the shortest separator.
    let total: usize = (0..count).map(|position| node.entry_bytes_at(position)).sum();
    let mut left = 0;
    let middle = (0..count)
        .find(|position| {
            left += node.entry_bytes_at(*position);
            left * 2 >= total
        })
        .unwrap_or(count / 2)
        .clamp(1, count - 1);
    let slack = count / 16;
    let (mut best, mut best_separator) = (middle, between(&at(middle - 1), &at(middle)));
    for position in middle.saturating_sub(slack).max(1)..(middle + slack).min(count) {
        let separator = between(&at(position - 1), &at(position));
        if separator.len() < best_separator.len() {
            (best, best_separator) = (position, separator);
        }
    }
    Cut { position: best, separator: best_separator }
}
