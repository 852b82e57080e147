//! Moves pages that lie behind a place of the device: they are marked dirty, and the worker that
//! writes them next finds them another place.

use std::cell::Cell;

use qpair_format::page::Node;
use qpair_format::place::page_of;
use qpair_format::swip::Swip;
use qpair_memory::ExclusiveFrame;

use super::Tree;
use super::descend::{Route, latch, to_level};
use crate::task::{Context, Descent, Need, Operation};

#[derive(Debug, Default)]
pub(crate) struct Visited {
    /// A key of each leaf right below the page that lies at or behind `front`.
    pub(crate) behind: Vec<Vec<u8>>,
    /// The first key after the page; `None` at the right edge.
    pub(crate) next: Option<Vec<u8>>,
}

/// Visits the inner page of a level that covers a key, or a root that is a leaf. Makes the page
/// leave its place if that is at or behind `front`, and finds the leaves below it that lie there.
pub(crate) struct Visit<'a> {
    pub(crate) tree: Tree,
    pub(crate) key: &'a [u8],
    pub(crate) level: u8,
    pub(crate) front: u64,
    pub(crate) displaced: &'a Cell<u64>,
    pub(crate) descent: Descent,
}

/// Makes a page leave its place if that is at or behind `front`, and counts it. A page that a
/// checkpoint under way has yet to save leaves its place by being saved.
fn displace(context: Context<'_>, page: &ExclusiveFrame<'_>, front: u64, displaced: &Cell<u64>) {
    let (pool, frame) = (&context.shared.pool, page.index());
    if page_of(pool.frames.page_id(frame)) < front {
        return;
    }
    displaced.set(displaced.get() + 1);
    let epoch = context.shared.checkpointing.epochs.epoch();
    if !pool.is_unsaved(frame, Node::new(page.bytes()), epoch) {
        // The order matters, as with a change: a clean leaf must not pass for one that is not
        // saved.
        pool.frames.set_epoch(frame, epoch.number);
        pool.frames.set_dirty(frame, true);
    }
}

impl Operation for Visit<'_> {
    /// The leaves found; `None` if the tree is not that high.
    type Output = Option<Visited>;

    fn step(&mut self, context: Context<'_>) -> Result<Self::Output, Need> {
        let Some(place) = to_level(context, &self.tree, Route::To(self.key), self.level)? else {
            return Ok(None);
        };
        let page = latch(place.page)?;
        let (pool, node) = (&context.shared.pool, Node::new(page.bytes()));
        displace(context, &page, self.front, self.displaced);
        let mut visited = Visited::default();
        for position in 0..=node.count() {
            let child = match Swip::decode(node.child(position)) {
                _ if self.level != 1 => break,
                Swip::Hot(child) => pool.frames.page_id(child),
                Swip::Cold(place) => place,
            };
            if page_of(child) >= self.front {
                let mut key = Vec::new();
                match position.checked_sub(1) {
                    None => node.lower_fence(&mut key),
                    Some(before) => node.key(before, &mut key),
                }
                visited.behind.push(key);
            }
        }
        if node.has_upper_fence() {
            let mut key = Vec::new();
            node.upper_fence(&mut key);
            visited.next = Some(key);
        }
        Ok(Some(visited))
    }

    fn descent(&mut self) -> &mut Descent {
        &mut self.descent
    }
}

pub(crate) struct Displace<'a> {
    pub(crate) tree: Tree,
    pub(crate) key: &'a [u8],
    pub(crate) front: u64,
    pub(crate) displaced: &'a Cell<u64>,
    pub(crate) descent: Descent,
}

impl Operation for Displace<'_> {
    type Output = ();

    fn step(&mut self, context: Context<'_>) -> Result<(), Need> {
        let leaf = self.descent.walk_to_leaf(context, &self.tree, Route::To(self.key))?;
        let page = latch(leaf)?;
        displace(context, &page, self.front, self.displaced);
        Ok(())
    }

    fn descent(&mut self) -> &mut Descent {
        &mut self.descent
    }
}
