//! Several lookups that overlap their cache misses: while the cache lines of one are loaded, the
//! others continue. Nothing is read from the device, and nothing waits.

use qpair_format::page::{LEAF_SLOT_BYTES, Node, slots_offset};

use super::descend::Route;
use super::{CursorHint, Tree};
use crate::task::{Context, Descent, Need};

/// The number of lookups that overlap: more than the processor keeps misses of, and few enough for
/// their lines to stay cached.
pub(crate) const SIDE_BY_SIDE: usize = 24;

/// Finds the positions of keys, several at a time, and asks for the cache lines of their records. A
/// key whose leaf is not in memory, or is being changed, has no result.
pub(crate) fn prefetch<'k>(
    context: Context<'_>,
    keys: impl ExactSizeIterator<Item = (Tree, &'k [u8])> + Clone,
) -> [Option<CursorHint>; SIDE_BY_SIDE] {
    let context = Context { interleave: true, ..context };
    let mut cursor_hints = [None; SIDE_BY_SIDE];
    let mut descents = [Descent::default(); SIDE_BY_SIDE];
    // A bit for each lookup that has not ended.
    let mut open = (1u32 << keys.len().min(SIDE_BY_SIDE)) - 1;
    while open != 0 {
        for (i, (tree, key)) in keys.clone().take(SIDE_BY_SIDE).enumerate() {
            if open & 1 << i == 0 {
                continue;
            }
            match descents[i].walk_to_leaf(context, &tree, Route::To(key)) {
                Err(Need::Prefetch) => continue,
                Ok(page) => {
                    let node = Node::new(page.bytes());
                    let found = node.lower_bound(key);
                    if found.1 {
                        node.prefetch_record(found.0);
                    }
                    cursor_hints[i] = page.validate().then(|| CursorHint::new(page, found));
                }
                Err(_) => {}
            }
            open &= !(1 << i);
        }
    }
    cursor_hints
}

/// Asks for the cache lines of records that were found before, unless they have moved.
pub(crate) fn prefetch_again(
    context: Context<'_>,
    cursor_hints: impl Iterator<Item = CursorHint> + Clone,
) {
    let frames = &context.shared.pool.frames;
    for CursorHint { leaf: (frame, _), position, .. } in cursor_hints.clone() {
        frames.prefetch(frame, 1);
        frames.prefetch_at(frame, slots_offset(true) + usize::from(position) * LEAF_SLOT_BYTES);
    }
    for CursorHint { leaf: (frame, version), position, found } in cursor_hints {
        let page = frames.resume(frame, version);
        if found && page.validate() {
            Node::new(page.bytes()).prefetch_record(position.into());
        }
    }
}

const _: () = assert!(SIDE_BY_SIDE < 32);
