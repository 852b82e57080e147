//! How many pages a commit may have to find new places for: what [`crate::space::Space`] reserves for it before its timestamp.

use qpair_format::page::Node;
use qpair_memory::FrameIndex;

use crate::pool::Pool;
use crate::space::Reservation;
use crate::tree::{Leaf, Tree};

/// Levels above the leaves whose pages are told apart.
const LEVELS: usize = 12;

/// The pages that a commit changes, counted while its leaves are prepared in the order of keys, each right after it was.
pub(crate) struct Reach {
    /// The tree, the leaf, and its place.
    leaf: Option<(u32, Leaf, u64)>,
    /// The pages above it, from below: frame and place.
    above: [(FrameIndex, u64); LEVELS],
    /// Levels above the leaves.
    levels: u64,
    pages: u64,
    /// Leaves that will be made, and bytes that the references to them take.
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
    /// What was counted so far.
    pub(crate) fn reservation(&self) -> Reservation {
        let made = match self.new_leaves {
            0 => 0,
            // Inner pages are a quarter full at least; one more on each level, and one for a root whose content goes down.
            leaves => leaves + (4 * self.reference_bytes / self.page_size) as u64 + self.levels + 1,
        };
        Reservation { changed: self.pages, made }
    }

    /// A change goes to this leaf. A page that was changed by others meanwhile may be counted twice, and none is left out. `was_split`: the
    /// commit itself split the leaf since its last change, as which it counts where it is still.
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

    /// The leaf will be cut before a key of this length.
    pub(crate) fn add_new(&mut self, page_size: usize, key_len: usize) {
        self.new_leaves += 1;
        self.reference_bytes += Node::entry_bytes(false, key_len + 1, 0);
        self.page_size = page_size;
    }

    /// Counts the pages above a leaf that are not above the one before. Twice each: it may have left memory, with a new place, and be
    /// needed there once more for a leaf that has none yet.
    fn new_above(&mut self, pool: &Pool, tree: Tree, leaf: FrameIndex) -> u64 {
        let (mut frame, mut pages) = (leaf, 0);
        for (known, level) in self.above.iter_mut().zip(0..) {
            self.levels = self.levels.max(level);
            if frame == tree.root {
                return pages;
            }
            // Above a page in memory all are, and each change of a reference changes the hint: else it has just left.
            let Some((above, _)) = pool.frames.parent_hint(frame) else { break };
            let here = (above, pool.frames.page_id(above));
            if *known == here {
                return pages;
            }
            *known = here;
            pages += 2;
            frame = above;
        }
        // Not known to the top: as if there were so many more.
        self.levels = LEVELS as u64;
        pages + 2 * LEVELS as u64
    }
}
