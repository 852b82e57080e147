//! An upper bound of the pages that a commit needs new places for, which [`crate::space::Space`]
//! reserves before the commit has its timestamp.

use qpair_format::page::Node;
use qpair_memory::FrameIndex;

use crate::pool::Pool;
use crate::space::Reservation;
use crate::tree::{Leaf, Tree};

/// The number of levels above the leaves whose pages are distinguished.
const LEVELS: usize = 12;

/// A count of the pages that a commit changes. Each leaf is added right after it was prepared, in
/// the order of keys.
pub(crate) struct Reach {
    /// The last leaf: the tree's id, the leaf, and its place.
    leaf: Option<(u32, Leaf, u64)>,
    /// The frames and places of the pages above the last leaf, from below.
    above: [(FrameIndex, u64); LEVELS],
    /// The number of levels above the leaves.
    levels: u64,
    pages: u64,
    /// The number of leaves that splits will create, and the bytes of the references to them.
    new_leaves: u64,
    reference_bytes: usize,
    page_size: usize,
}

impl Default for Reach {
    fn default() -> Self {
        Self {
            leaf: None,
            above: [(FrameIndex(u32::MAX), 0); LEVELS],
            levels: 0,
            pages: 0,
            new_leaves: 0,
            reference_bytes: 0,
            page_size: 1,
        }
    }
}

impl Reach {
    /// Returns the reservation for the pages that were counted so far.
    pub(crate) fn reservation(&self) -> Reservation {
        let made = match self.new_leaves {
            0 => 0,
            // Inner pages are at least a quarter full. Each level may have one more, and a root
            // whose entries move down another.
            leaves => leaves + (4 * self.reference_bytes / self.page_size) as u64 + self.levels + 1,
        };
        Reservation { changed: self.pages, made }
    }

    /// Adds a leaf that the commit changes. A page that others changed meanwhile may be counted
    /// twice, but none is omitted. `was_split`: the commit itself has split the leaf since its last
    /// change, so the leaf counts as the same one while its place is the same.
    pub(crate) fn add(&mut self, pool: &Pool, tree: Tree, leaf: Leaf, was_split: bool) {
        let is_new = self.leaf.is_none_or(|(of, known, place)| {
            let is_same = known == leaf
                || was_split && known.0 == leaf.0 && place == pool.frames.page_id(leaf.0);
            of != tree.id || !is_same
        });
        if is_new {
            self.pages += 1 + self.new_above(pool, tree, leaf.0);
        }
        if is_new || was_split {
            self.leaf = Some((tree.id, leaf, pool.frames.page_id(leaf.0)));
        }
    }

    /// Adds a new leaf: the present one will be split before a key of this length.
    pub(crate) fn add_new(&mut self, page_size: usize, key_len: usize) {
        self.new_leaves += 1;
        self.reference_bytes += Node::entry_bytes(false, key_len + 1, 0);
        self.page_size = page_size;
    }

    /// Returns the count of the pages above a leaf that are not above the previous one. Each counts
    /// twice: it may have left memory, with a new place, and be needed in memory again for a leaf
    /// without a place.
    fn new_above(&mut self, pool: &Pool, tree: Tree, leaf: FrameIndex) -> u64 {
        let (mut frame, mut pages) = (leaf, 0);
        for (known, level) in self.above.iter_mut().zip(0..) {
            self.levels = self.levels.max(level);
            if frame == tree.root {
                return pages;
            }
            // All ancestors of a page in memory are in memory, and each change of a reference
            // updates the hint. Without a hint the page has just left memory.
            let Some((above, _)) = pool.frames.parent_hint(frame) else { break };
            let here = (above, pool.frames.page_id(above));
            if *known == here {
                return pages;
            }
            *known = here;
            pages += 2;
            frame = above;
        }
        // The pages up to the root are unknown: assume the largest number.
        self.levels = LEVELS as u64;
        pages + 2 * LEVELS as u64
    }
}
