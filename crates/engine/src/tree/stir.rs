//! Make a page move.

use super::Tree;
use super::descend::{Route, latch, to_level};
use crate::place::page_of;
use crate::task::{Context, Descent, Need, Operation};

/// Marks a page of a tree as changed, if it is where it was seen: it gets a new place when it is written next.
pub(crate) struct Stir<'a> {
    tree: Tree,
    key: &'a [u8],
    level: u8,
    page_id: u64,
    descent: Descent,
}

impl<'a> Stir<'a> {
    /// The page that has the key, on that level.
    pub(crate) fn new(tree: Tree, key: &'a [u8], level: u8, page_id: u64) -> Self {
        Self { tree, key, level, page_id, descent: Descent::default() }
    }
}

impl Operation for Stir<'_> {
    type Output = ();

    fn step(&mut self, context: Context<'_>) -> Result<(), Need> {
        let route = Route::To(self.key);
        let Some(place) = to_level(context, &self.tree, route, self.level)? else { return Ok(()) };
        let (frames, frame) = (&context.shared.pool.frames, place.page.index());
        let page = latch(place.page)?;
        if page_of(frames.page_id(frame)) == self.page_id {
            context.begin_change(&page)?;
            frames.set_dirty(frame, true);
        }
        Ok(())
    }

    fn descent(&mut self) -> &mut Descent {
        &mut self.descent
    }
}
