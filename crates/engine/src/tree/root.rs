//! The read of a root, with which each descent begins.

use qpair_memory::{Blocked, OptimisticFrame};

use super::Tree;
use crate::task::{Context, Need};

impl Tree {
    /// Begins an optimistic read of the root.
    #[inline(always)]
    pub(super) fn read_root<'a>(&self, context: Context<'a>) -> Result<OptimisticFrame<'a>, Need> {
        let frames = &context.shared.pool.frames;
        let page = frames.optimistic(self.root);
        // Check this after the version was read: a frame that was given away since has another
        // version.
        if !self.is_there(&context.shared.pool) {
            return Err(Need::Table);
        }
        page.map_err(|blocked| match blocked {
            Blocked::InFlight => Need::Io(self.root),
            Blocked::Contended => Need::Retry,
        })
    }
}
