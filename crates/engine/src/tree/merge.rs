//! Gives pages back: merges a sparse page with its neighbour, or replaces a root by its only child.

use qpair_format::page::{Node, NodeInit, NodeMut, field, shared_prefix_len, slots_offset};
use qpair_format::place::page_of;
use qpair_format::swip::Swip;
use qpair_memory::ExclusiveFrame;

use super::Tree;
use super::descend::{Place, Route, child, latch, to_level};
use super::remove::is_sparse;
use super::split::{image, rehome};
use crate::task::{Context, Descent, Need, Operation, Worker};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merged {
    Nothing,
    /// A page was given back. `parent_sparse` says whether the level above should be looked at too.
    Merged {
        parent_sparse: bool,
    },
}

/// Merges the page of `level` that covers `key` with a neighbour, if it is sparse and both fit into
/// one.
pub(crate) struct Merge<'a> {
    tree: Tree,
    key: &'a [u8],
    level: u8,
    descent: Descent,
}

impl<'a> Merge<'a> {
    pub(crate) fn new(tree: Tree, key: &'a [u8], level: u8) -> Self {
        Self { tree, key, level, descent: Descent::default() }
    }

    /// Replaces a root that has only one child by that child's content.
    fn pull_up(
        &self,
        context: Context<'_>,
        worker: &Worker,
        place: &Place<'_>,
    ) -> Result<Merged, Need> {
        let node = Node::new(place.page.bytes());
        if node.is_leaf() || node.count() > 0 {
            return if place.page.validate() { Ok(Merged::Nothing) } else { Err(Need::Retry) };
        }
        let below = child(context, place.page, 0)?;
        let mut root = latch(place.page)?;
        let below = latch(below)?;
        context.begin_change(&root)?;
        context.begin_change(&below)?;
        let root_page = Node::new(root.bytes()).place();
        let source = Node::new(below.bytes());
        let level = source.level();
        let mut node = NodeMut::new(root.bytes_mut());
        node.init(NodeInit {
            level,
            tree_id: self.tree.id,
            page_id: root_page,
            lower: &[],
            upper: None,
        });
        node.append_range(source, 0, source.count());
        node.set_timestamp(source.timestamp());
        if level > 0 {
            node.set_last_child(source.child(source.count()));
        }
        rehome(context, &root);
        context.shared.pool.frames.set_dirty(root.index(), true);
        drop(root);
        give_back(context, worker, below);
        Ok(Merged::Merged { parent_sparse: level > 0 })
    }
}

/// Frees a page that nothing refers to any more, with its frame.
fn give_back(context: Context<'_>, worker: &Worker, page: ExclusiveFrame<'_>) {
    let frame = page.index();
    let place = context.shared.pool.frames.page_id(frame);
    context.shared.pool.release_frame(page);
    worker.give_frame(frame);
    context.shared.space.free(page_of(place), 1);
}

impl Operation for Merge<'_> {
    type Output = Merged;

    fn step(&mut self, context: Context<'_>) -> Result<Merged, Need> {
        let Some(worker) = context.worker else { return Err(Need::Worker) };
        let Some(place) = to_level(context, &self.tree, Route::To(self.key), self.level)? else {
            return Ok(Merged::Nothing);
        };
        let Some((parent, position)) = place.parent else {
            return self.pull_up(context, worker, &place);
        };
        let siblings = Node::new(parent.bytes()).count();
        let sparse = is_sparse(Node::new(place.page.bytes()));
        if !parent.validate() || !place.page.validate() {
            return Err(Need::Retry);
        }
        if !sparse || siblings == 0 {
            return Ok(Merged::Nothing);
        }
        let left_position = if position < siblings { position } else { position - 1 };
        let (left, right) = if position == left_position {
            (place.page, child(context, parent, position + 1)?)
        } else {
            (child(context, parent, left_position)?, place.page)
        };
        let mut parent = latch(parent)?;
        let mut left = latch(left)?;
        let right = latch(right)?;
        let mut separator = Vec::new();
        Node::new(parent.bytes()).key(left_position, &mut separator);
        if !fit_into_one(Node::new(left.bytes()), Node::new(right.bytes()), &separator) {
            return Ok(Merged::Nothing);
        }
        context.begin_change(&parent)?;
        context.begin_change(&left)?;
        context.begin_change(&right)?;
        join(&mut left, Node::new(right.bytes()), &separator, self.tree.id);
        rehome(context, &left);
        let mut above = NodeMut::new(parent.bytes_mut());
        above.remove(left_position);
        above.set_child(left_position, Swip::Hot(left.index()).encode());
        let frames = &context.shared.pool.frames;
        frames.set_dirty(left.index(), true);
        frames.set_dirty(parent.index(), true);
        let above = Node::new(parent.bytes());
        let parent_sparse =
            if parent.index() == self.tree.root { above.count() == 0 } else { is_sparse(above) };
        drop((left, parent));
        give_back(context, worker, right);
        Ok(Merged::Merged { parent_sparse })
    }

    fn descent(&mut self) -> &mut Descent {
        &mut self.descent
    }
}

/// Returns the outer fences of two neighbours.
fn fences(left: Node<'_>, right: Node<'_>) -> (Vec<u8>, Option<Vec<u8>>) {
    let (mut lower, mut upper) = (Vec::new(), Vec::new());
    left.lower_fence(&mut lower);
    right.upper_fence(&mut upper);
    (lower, right.has_upper_fence().then_some(upper))
}

fn fit_into_one(left: Node<'_>, right: Node<'_>, separator: &[u8]) -> bool {
    let size = left.bytes.len();
    let (lower, upper) = fences(left, right);
    let prefix = upper.as_deref().map_or(0, |upper| shared_prefix_len(&lower, upper));
    let leaf = left.is_leaf();
    let mut bytes = slots_offset(leaf) + lower.len() + upper.map_or(0, |upper| upper.len());
    for node in [left, right] {
        // Each page had its own prefix, which was at least as long.
        let more = node.prefix_len().saturating_sub(prefix);
        for position in 0..node.count() {
            let value_len = if leaf { node.value(position).len } else { 0 };
            bytes += Node::entry_bytes(leaf, node.suffix_len(position) + more, value_len);
            if bytes > size {
                return false;
            }
        }
    }
    if !leaf {
        bytes += Node::entry_bytes(false, separator.len().saturating_sub(prefix), 0);
    }
    bytes <= size
}

/// Rewrites `left` with the entries of both pages.
fn join(left: &mut ExclusiveFrame<'_>, right: Node<'_>, separator: &[u8], tree_id: u32) {
    let image = image(left.bytes());
    let old = Node::new(image.as_slice().into());
    let (lower, upper) = fences(old, right);
    let (level, page_id) = (old.level(), old.place());
    let mut node = NodeMut::new(left.bytes_mut());
    node.init(NodeInit { level, tree_id, page_id, lower: &lower, upper: upper.as_deref() });
    node.append_range(old, 0, old.count());
    if level > 0 {
        let count = node.read().count();
        let suffix = &separator[node.read().prefix_len()..];
        let fits = node.insert_child(count, suffix, old.bytes.load_u64(field::LAST_CHILD));
        debug_assert!(fits, "the entries were measured before");
    }
    node.append_range(right, 0, right.count());
    node.set_timestamp(old.timestamp().max(right.timestamp()));
    if level > 0 {
        node.set_last_child(right.bytes.load_u64(field::LAST_CHILD));
    }
}
