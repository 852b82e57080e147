//! Several lookups at the same time, as far as the processor's caches go: while the lines of one are on their way, the others
//! are gone on with. Nothing is read from the device, and nothing waits.

use qpair_format::page::{LEAF_SLOT_BYTES, Node, slots_offset};

use super::descend::Route;
use super::{CursorHint, Tree};
use crate::task::{Context, Descent, Need};

/// Lookups that go side by side: more than the processor keeps misses of, and few enough for their lines to stay.
pub(crate) const SIDE_BY_SIDE: usize = 24;

/// Finds where keys are, as many as go side by side, and asks for their records; nothing for a key whose leaf is not in
/// memory, or in the middle of a change.
pub(crate) fn prefetch<'k>(
    context: Context<'_>,
    keys: impl ExactSizeIterator<Item = (Tree, &'k [u8])> + Clone,
) -> [Option<CursorHint>; SIDE_BY_SIDE] {
    let context = Context { interleave: true, ..context };
    let mut cursor_hints = [None; SIDE_BY_SIDE];
    let mut descents = [Descent::default(); SIDE_BY_SIDE];
    // A bit for each that has not come to its end.
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

/// Asks for records that were found before, as far as they are where they were.
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
