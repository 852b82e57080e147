//! How many pages a commit may have to find new places for: what [`crate::space::Space`] promises it before its stamp.

use qpair_memory::FrameIndex;

use crate::pool::Pool;
use crate::tree::{Leaf, Tree};

/// Levels above the leaves whose pages are told apart.
const LEVELS: usize = 12;

/// The pages that a commit changes, counted while its leaves are prepared in the order of keys, each right after it was.
pub(crate) struct Reach {
    leaf: Option<(u32, Leaf)>,
    /// Whether a record of that leaf goes.
    removes: bool,
    /// The pages above it, from below: frame and place.
    above: [(FrameIndex, u64); LEVELS],
    pages: u64,
}

impl Default for Reach {
    fn default() -> Self {
        Self { leaf: None, removes: false, above: [(FrameIndex(u32::MAX), 0); LEVELS], pages: 0 }
    }
}

impl Reach {
    /// The pages counted so far.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    /// A change goes to this leaf. A page that was changed by others meanwhile may be counted twice, and none is left out.
    pub(crate) fn add(&mut self, pool: &Pool, tree: Tree, leaf: Leaf, removes: bool) {
        let is_new = self.leaf != Some((tree.id, leaf));
        if is_new {
            self.leaf = Some((tree.id, leaf));
            self.removes = false;
            self.pages += 1 + self.new_above(pool, tree, leaf.0);
        }
        if removes && !self.removes {
            // The leaf may be merged, with a neighbour that is no concern of this commit.
            self.removes = true;
            self.pages += 1;
        }
    }

    /// Counts the pages above a leaf that are not above the one before. Twice each: it may have left memory, with a new place, and be
    /// needed there once more for a leaf that has none yet.
    fn new_above(&mut self, pool: &Pool, tree: Tree, leaf: FrameIndex) -> u64 {
        let (mut frame, mut pages) = (leaf, 0);
        for known in &mut self.above {
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
        pages + 2 * LEVELS as u64
    }
}
