//! Puts many records at once, in the order of their keys. A leaf that has no room for them is
//! rebuilt, with new leaves beside it.
//!
//! Invariant: one step changes one leaf, and its parent if leaves are added, all of it under their
//! latches.

use std::ops::Range;

use qpair_format::page::{Node, NodeInit, NodeMut, Staged, separator_len, slots_offset};
use qpair_format::swip::Swip;
use qpair_memory::{ExclusiveFrame, FrameIndex};

use super::descend::{Route, latch, to_level};
use super::put::put_record;
use super::split::{fresh, push_root_down};
use super::{Change, NoUndo, Tree};
use crate::task::{Context, Descent, Need, Operation, Worker};

/// The maximum number of leaves that one step makes of one.
const LEAVES_MAX: usize = 16;
/// Up to this number of leaves are made equally full. If there are more, each but the last is made
/// full.
const LEAVES_ALIKE: usize = 3;

#[derive(Clone, Copy, Debug)]
pub(crate) struct FillRecord<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    /// Whether the value is a descriptor.
    pub(crate) overflow: bool,
    pub(crate) timestamp: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// So many of the records are in the tree; try again with the rest.
    Made(usize),
    /// The page above the leaf must be split first. It needs this many bytes for one more
    /// reference.
    ParentFull { needed_bytes: usize },
    /// The first record does not fit together with the content of the leaf; put it by itself.
    Apart,
}

/// Scratch memory that steps use one after the other.
#[derive(Default)]
pub(crate) struct FillSpace {
    /// Pages that were allocated for leaves, at least one.
    pub(crate) pages: Range<u64>,
    leaves: Vec<Staged>,
    keys: Vec<u8>,
    key_ends: Vec<usize>,
    /// Descriptors of large values that are replaced.
    replaced: Vec<Vec<u8>>,
}

/// Puts as many of the records as one leaf covers, or as fit into the leaves that are made of it.
pub(crate) struct Fill<'a> {
    tree: Tree,
    /// The records in the order of their keys, without duplicates.
    records: &'a [FillRecord<'a>],
    space: &'a mut FillSpace,
    descent: Descent,
}

impl<'a> Fill<'a> {
    pub(crate) fn new(tree: Tree, records: &'a [FillRecord<'a>], space: &'a mut FillSpace) -> Self {
        Self { tree, records, space, descent: Descent::default() }
    }
}

impl Operation for Fill<'_> {
    type Output = Filled;

    fn step(&mut self, context: Context<'_>) -> Result<Filled, Need> {
        let Some(worker) = context.worker else { return Err(Need::Worker) };
        let Some(first) = self.records.first() else { return Ok(Filled::Made(0)) };
        let Some(place) = to_level(context, &self.tree, Route::To(first.key), 0)? else {
            return Err(Need::Retry);
        };
        let mut page = latch(place.page)?;
        let covered = covered(Node::new(page.bytes()), self.records);
        let records = &self.records[..covered];
        if context.shared.large.lists.may_be() {
            let node = Node::new(page.bytes());
            for record in records {
                let (position, found) = node.lower_bound(record.key);
                context.want_list(node, found.then(|| node.value(position)))?;
            }
        }
        if has_room(Node::new(page.bytes()), records) {
            context.begin_change(&page)?;
            put_all(context, &mut page, records);
            return Ok(Filled::Made(covered));
        }
        let Some((parent, position)) = place.parent else {
            let frame = worker.take_frame().ok_or(Need::Frame)?;
            let outcome = context.begin_change(&page);
            match (&outcome, self.space.pages.next()) {
                (Ok(()), Some(page_id)) => {
                    push_root_down(context, &self.tree, page, frame, page_id);
                }
                _ => worker.give_frame(frame),
            }
            return outcome.map(|()| Filled::Made(0));
        };
        let parent = latch(parent)?;
        context.begin_change(&parent)?;
        context.begin_change(&page)?;
        let above = Node::new(parent.bytes());
        let reference_bytes = reference_bytes(above, Node::new(page.bytes()), records);
        let room = above.free_bytes() / reference_bytes;
        if room == 0 {
            return Ok(Filled::ParentFull { needed_bytes: reference_bytes });
        }
        let mut frames = Frames { worker, free: Vec::new() };
        let added = room.min(LEAVES_MAX - 1).min(self.space.pages.clone().count());
        while frames.free.len() < added
            && let Some(frame) = worker.take_frame()
        {
            frames.free.push(frame);
        }
        if frames.free.is_empty() {
            return Err(Need::Frame);
        }
        let node = Node::new(page.bytes());
        let Some(plan) = plan(self.space, node, page.as_slice(), records, frames.free.len() + 1)
        else {
            return Ok(Filled::Apart);
        };
        for descriptor in self.space.replaced.drain(..) {
            context.shared.free_large(&descriptor);
        }
        make(context, self.space, &plan, (parent, position), page, &mut frames);
        Ok(Filled::Made(plan.taken))
    }

    fn descent(&mut self) -> &mut Descent {
        &mut self.descent
    }
}

/// Frames that were taken. Unused ones are given back.
struct Frames<'a> {
    worker: &'a Worker,
    free: Vec<FrameIndex>,
}

impl Drop for Frames<'_> {
    fn drop(&mut self) {
        self.free.drain(..).for_each(|frame| self.worker.give_frame(frame));
    }
}

/// Returns how many of the records, from the first on, are below the leaf's upper fence.
fn covered(node: Node<'_>, records: &[FillRecord<'_>]) -> usize {
    if !node.has_upper_fence() {
        return records.len();
    }
    let mut upper = Vec::new();
    node.upper_fence(&mut upper);
    records.partition_point(|record| record.key < upper.as_slice())
}

fn needed_bytes(node: Node<'_>, record: &FillRecord<'_>) -> usize {
    Node::entry_bytes(true, record.key.len().saturating_sub(node.prefix_len()), record.value.len())
}

/// Whether the records can be put into the leaf one after the other.
fn has_room(node: Node<'_>, records: &[FillRecord<'_>]) -> bool {
    let free_bytes = node.free_bytes();
    let mut needed = 0;
    let all_fit = records.iter().all(|record| {
        needed += needed_bytes(node, record);
        needed <= free_bytes
    });
    if all_fit || node.count() == 0 {
        return all_fit;
    }
    // Existing records take the room of those that they replace.
    let mut taken = 0usize;
    records.iter().all(|record| {
        let (position, found) = node.lower_bound(record.key);
        let there = if found { node.entry_bytes_at(position) } else { 0 };
        let fits = taken + needed_bytes(node, record) <= free_bytes + there;
        taken = (taken + needed_bytes(node, record)).saturating_sub(there);
        fits
    })
}

/// Puts records that fit.
fn put_all(context: Context<'_>, page: &mut ExclusiveFrame<'_>, records: &[FillRecord<'_>]) {
    for FillRecord { key, value, overflow, timestamp } in records {
        let at = Node::new(page.bytes()).lower_bound(key);
        let change = Change { timestamp: *timestamp, undo: NoUndo };
        put_record(context, page, (key, value, *overflow), at, change);
    }
    context.shared.pool.frames.set_dirty(page.index(), true);
}

/// Returns the bytes that a reference to one more leaf may need in the page above.
fn reference_bytes(above: Node<'_>, node: Node<'_>, records: &[FillRecord<'_>]) -> usize {
    let mut key = Vec::new();
    let longest_old = (0..node.count()).map(|position| {
        key.clear();
        node.key(position, &mut key);
        key.len()
    });
    let longest = longest_old.chain(records.iter().map(|record| record.key.len())).max();
    // A fence is no longer than a key, or a byte longer than one.
    let fence_len = longest.unwrap_or_default() + 1;
    Node::entry_bytes(false, fence_len.saturating_sub(above.prefix_len()), 0)
}

/// A plan to rebuild a leaf from the first `leaves` of the staged leaves.
struct Plan {
    leaves: usize,
    /// The number of records that those leaves have.
    taken: usize,
    timestamp: u64,
    upper: Option<Vec<u8>>,
}

/// Distributes the content of the leaf and the records over at most `leaves_max` leaves. Returns
/// `None` if that cannot be done.
fn plan(
    space: &mut FillSpace,
    node: Node<'_>,
    bytes: &[u8],
    records: &[FillRecord<'_>],
    leaves_max: usize,
) -> Option<Plan> {
    let page_size = bytes.len();
    let FillSpace { leaves, keys, key_ends, replaced, .. } = space;
    keys.clear();
    key_ends.clear();
    replaced.clear();
    for position in 0..node.count() {
        node.key(position, keys);
        key_ends.push(keys.len());
    }
    let old_at = |position: usize| {
        let start = position.checked_sub(1).map_or(0, |before| key_ends[before]);
        let value = node.value(position);
        let bytes = bytes.get(value.offset..value.offset + value.len).unwrap_or_default();
        (&keys[start..key_ends[position]], bytes, value.overflow)
    };
    let (mut lower, mut upper) = (Vec::new(), Vec::new());
    node.lower_fence(&mut lower);
    node.upper_fence(&mut upper);
    let upper = node.has_upper_fence().then_some(upper);
    let new_bytes: usize = records.iter().map(|record| needed_bytes(node, record)).sum();
    let old_bytes: usize = (0..node.count()).map(|position| node.entry_bytes_at(position)).sum();
    let alike = (new_bytes + old_bytes).div_ceil(page_size - slots_offset(true));
    let full = match alike {
        0..=LEAVES_ALIKE => (new_bytes + old_bytes).div_ceil(alike.max(2)),
        _ => page_size,
    };
    if leaves.is_empty() {
        leaves.push(Staged::default());
    }
    leaves[0].restart(&lower);
    let (mut used, mut old, mut new) = (1, 0, 0);
    // This is the last possible leaf, so all remaining old records must go into it.
    let mut last = leaves_max == 1;
    let mut timestamp = node.timestamp();
    loop {
        let (is_new, replaces) = match (records.get(new), (old < node.count()).then(|| old_at(old)))
        {
            (Some(_), _) if last => match old < node.count() {
                true => (false, false),
                false => break,
            },
            (Some(record), Some((key, ..))) => {
                let order = record.key.cmp(key);
                (order.is_le(), order.is_eq())
            }
            (Some(_), None) => (true, false),
            (None, Some(_)) => (false, false),
            (None, None) => break,
        };
        let (key, value, overflow) = match records.get(new) {
            Some(record) if is_new => (record.key, record.value, record.overflow),
            _ => old_at(old),
        };
        let leaf = &mut leaves[used - 1];
        let fits = leaf.fits(0, key, Some(value.len()), page_size);
        if let Some(before) = leaf.last_key()
            && !last
            && (!fits || leaf.entry_bytes() >= full)
        {
            let mut fence = key[..separator_len(before, key)].to_vec();
            if !leaf.fits_below(0, Some(&fence), page_size) {
                fence = [before, &[0]].concat();
            }
            used += 1;
            if leaves.len() < used {
                leaves.push(Staged::default());
            }
            leaves[used - 1].restart(&fence);
            last = used == leaves_max;
            continue;
        }
        leaf.push(0, key, value, overflow);
        if is_new {
            timestamp = timestamp.max(records[new].timestamp);
            new += 1;
        }
        if replaces && let (_, descriptor, true) = old_at(old) {
            replaced.push(descriptor.to_vec());
        }
        old += usize::from(!is_new || replaces);
    }
    if !leaves[used - 1].fits_below(0, upper.as_deref(), page_size) {
        if used == leaves_max || leaves[used - 1].len() < 2 {
            return None;
        }
        let (_, second) = leaves[used - 1].halve(0);
        if !second.fits_below(0, upper.as_deref(), page_size) {
            return None;
        }
        leaves.truncate(used);
        leaves.push(second);
        used += 1;
    }
    let bounds = |leaf: usize| leaves[..used].get(leaf + 1).map(|next| next.lower.as_slice());
    let fit = (0..used)
        .all(|leaf| leaves[leaf].fits_below(0, bounds(leaf).or(upper.as_deref()), page_size));
    (fit && new > 0).then_some(Plan { leaves: used, taken: new, timestamp, upper })
}

/// Makes the leaves of a plan, and the references to them.
fn make(
    context: Context<'_>,
    space: &mut FillSpace,
    plan: &Plan,
    (mut parent, position): (ExclusiveFrame<'_>, usize),
    mut page: ExclusiveFrame<'_>,
    frames: &mut Frames<'_>,
) {
    let table = &context.shared.pool.frames;
    let FillSpace { pages, leaves, .. } = space;
    let (tree_id, first_id) = {
        let node = Node::new(page.bytes());
        (node.tree_id(), node.place())
    };
    let leaves = &leaves[..plan.leaves];
    let upper_of = |leaf: usize| match leaves.get(leaf + 1) {
        Some(next) => Some(next.lower.as_slice()),
        None => plan.upper.as_deref(),
    };
    let mut made = vec![page.index()];
    for (index, leaf) in leaves.iter().enumerate().skip(1) {
        // As many frames and pages were taken as the plan needs.
        let (Some(frame), Some(page_id)) = (frames.free.pop(), pages.next()) else { return };
        let mut right = fresh(context, frame, page_id, (parent.index(), position + index));
        let mut node = NodeMut::new(right.bytes_mut());
        let (lower, upper) = (leaf.lower.as_slice(), upper_of(index));
        node.init(NodeInit { level: 0, tree_id, page_id, lower, upper });
        leaf.fill(0, &mut node);
        node.set_timestamp(plan.timestamp);
        made.push(frame);
    }
    let mut node = NodeMut::new(page.bytes_mut());
    let (lower, upper) = (leaves[0].lower.as_slice(), upper_of(0));
    node.init(NodeInit { level: 0, tree_id, page_id: first_id, lower, upper });
    leaves[0].fill(0, &mut node);
    node.set_timestamp(plan.timestamp);
    table.set_dirty(page.index(), true);
    // The reference to the old leaf now leads to the last new one. References to the others come
    // before it.
    let mut above = NodeMut::new(parent.bytes_mut());
    let prefix_len = above.read().prefix_len();
    let reference = |frame: FrameIndex| Swip::Hot(frame).encode();
    above.set_child(position, reference(made[plan.leaves - 1]));
    for (index, next) in leaves.iter().enumerate().skip(1) {
        let suffix = next.lower.get(prefix_len..).unwrap_or_default();
        let fits = above.insert_child(position + index - 1, suffix, reference(made[index - 1]));
        debug_assert!(fits, "room was measured before");
    }
    table.set_parent_hint(page.index(), Some((parent.index(), position)));
    table.set_dirty(parent.index(), true);
}
