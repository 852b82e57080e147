//! Several lookups at the same time, as far as the processor's caches go: while the lines of one are on their way, the others
//! are gone on with. Nothing is read from the device, and nothing waits.

use qpair_memory::{FrameIndex, OptimisticFrame};

use super::descend::{Route, read};
use super::{Spot, Tree};
use crate::page::{LEAF_SLOT_BYTES, Node, slots_offset};
use crate::swip::Swip;
use crate::task::{Context, Descent, Need};

/// Lookups that go side by side: more than the processor keeps misses of, and few enough for their lines to stay.
pub(crate) const SIDE_BY_SIDE: usize = 24;

/// Goes down with all keys side by side, as many as do, each to its page of this level: `arrive` is told which key came where. Keys
/// whose pages are not in memory, or in the middle of a change, do not arrive.
#[inline(always)]
fn side_by_side<'c, 'k, const LEVEL: u8>(
    context: Context<'c>,
    keys: impl ExactSizeIterator<Item = (Tree, &'k [u8])> + Clone,
    mut arrive: impl FnMut(usize, &'k [u8], OptimisticFrame<'c>),
) {
    let context = Context { interleave: true, ..context };
    let mut descents = [Descent::default(); SIDE_BY_SIDE];
    // A bit for each that has not come to its end.
    let mut open = (1u32 << keys.len().min(SIDE_BY_SIDE)) - 1;
    while open != 0 {
        for (i, (tree, key)) in keys.clone().take(SIDE_BY_SIDE).enumerate() {
            if open & 1 << i == 0 {
                continue;
            }
            match descents[i].walk::<LEVEL>(context, &tree, Route::To(key)) {
                Err(Need::Prefetch) => continue,
                Ok(page) => arrive(i, key, page),
                Err(_) => {}
            }
            open &= !(1 << i);
        }
    }
}

/// Finds where keys are, as many as go side by side, and asks for their records; nothing for a key whose leaf is not in
/// memory, or in the middle of a change.
pub(crate) fn prefetch<'k>(
    context: Context<'_>,
    keys: impl ExactSizeIterator<Item = (Tree, &'k [u8])> + Clone,
) -> [Option<Spot>; SIDE_BY_SIDE] {
    let mut spots = [None; SIDE_BY_SIDE];
    side_by_side::<0>(context, keys, |i, key, page| {
        let node = Node::new(page.bytes());
        let found = node.lower_bound(key);
        if found.1 {
            node.prefetch_record(found.0);
        }
        spots[i] = page.validate().then(|| Spot::new(page, found));
    });
    spots
}

/// Asks for records that were found before, as far as they are where they were.
pub(crate) fn prefetch_again(context: Context<'_>, spots: impl Iterator<Item = Spot> + Clone) {
    let frames = &context.shared.pool.frames;
    for Spot { leaf: (frame, _), position, .. } in spots.clone() {
        frames.prefetch(frame, 1);
        frames.prefetch_at(frame, slots_offset(true) + usize::from(position) * LEAF_SLOT_BYTES);
    }
    for Spot { leaf: (frame, version), position, found } in spots {
        let page = frames.resume(frame, version);
        if found && page.validate() {
            Node::new(page.bytes()).prefetch_record(position.into());
        }
    }
}

/// Looks which keys' leaves are in memory, as many as go side by side, without a look at the leaves; those that are stay for
/// a while. Advice: the leaf of a key that is in the middle of a change counts as one that is not.
pub(crate) fn find_in_memory<'k>(
    context: Context<'_>,
    keys: impl ExactSizeIterator<Item = (Tree, &'k [u8])> + Clone,
) -> [bool; SIDE_BY_SIDE] {
    let frames = &context.shared.pool.frames;
    let mut leaves: [Option<FrameIndex>; SIDE_BY_SIDE] = [None; SIDE_BY_SIDE];
    side_by_side::<1>(context, keys, |i, key, page| {
        let node = Node::new(page.bytes());
        let leaf = match node.is_leaf() {
            true => Swip::Hot(page.index()),
            false => Swip::decode(node.child(node.child_position(key))),
        };
        if page.validate()
            && let Swip::Hot(leaf) = leaf
            && frames.contains(leaf)
        {
            frames.prefetch(leaf, 0);
            leaves[i] = Some(leaf);
        }
    });
    // What is read there tells that it is not being loaded, and makes it stay.
    leaves.map(|leaf| leaf.is_some_and(|leaf| read(context, leaf).is_ok()))
}

const _: () = assert!(SIDE_BY_SIDE < 32);
