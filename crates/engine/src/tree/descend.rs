//! The descent from the root of a tree.

use qpair_format::page::{LEAF_SLOT_BYTES, Node, slots_offset};
use qpair_format::swip::Swip;
use qpair_memory::{Blocked, FrameIndex, FrameTable, OptimisticFrame};

use super::{Leaf, Tree};
use crate::pool::state;
use crate::task::{Context, Descent, LoadPlan, Need};

/// Selects the child to go to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Route<'k> {
    /// The child that covers the key.
    To(&'k [u8]),
    /// The child that covers the greatest keys below the key.
    Before(&'k [u8]),
    Last,
}

impl Route<'_> {
    #[inline(always)]
    pub(crate) fn child_position(self, node: Node<'_>) -> usize {
        match self {
            Self::To(key) => node.child_position(key),
            Self::Before(key) => node.lower_bound(key).0,
            Self::Last => node.count(),
        }
    }
}

/// The most cache lines of a leaf to ask for before it is searched. Processors fetch about as many
/// at a time, so that lines in vain delay others.
const LEAF_LINES_MAX: u16 = 12;
/// The number of lines for a tree of which nothing is known: a header, and forty slots.
const LEAF_LINES: u16 = 6;
/// One leaf in so many, by its frame, corrects what is known of its tree.
const SAMPLED: u32 = 64;

impl Tree {
    /// Returns the number of cache lines that leaves of the tree are likely to have in their header
    /// and slots.
    #[inline(always)]
    fn leaf_lines(&self, frames: &FrameTable) -> usize {
        match frames.root_note(self.root) {
            0 => LEAF_LINES.into(),
            lines => lines.min(LEAF_LINES_MAX).into(),
        }
    }

    /// Moves that number towards the one of this leaf. Differences of one are left, so that the
    /// root's frame is seldom written.
    #[cold]
    fn correct_leaf_lines(&self, frames: &FrameTable, leaf: Node<'_>) {
        let lines = (slots_offset(true) + leaf.count() * LEAF_SLOT_BYTES).div_ceil(64);
        let lines = (lines as u16).min(LEAF_LINES_MAX);
        let known = frames.root_note(self.root).min(LEAF_LINES_MAX);
        let corrected = match known {
            0 => lines,
            _ if lines > known + 1 => known + 1,
            _ if lines + 1 < known => known - 1,
            _ => return,
        };
        frames.set_root_note(self.root, corrected);
    }
}

/// Begins an optimistic read of a frame that a page refers to.
#[inline(always)]
fn read<'a>(context: Context<'a>, frame: FrameIndex) -> Result<OptimisticFrame<'a>, Need> {
    let pool = &context.shared.pool;
    let page = pool.frames.optimistic(frame).map_err(|blocked| match blocked {
        Blocked::InFlight => Need::Io(frame),
        Blocked::Contended => Need::Retry,
    })?;
    match pool.frames.state(frame) {
        state::COOLING => pool.touch(frame),
        // The broken page will leave in a moment, and can be loaded again then.
        state::BROKEN => return Err(Need::Retry),
        _ => {}
    }
    Ok(page)
}

impl Descent {
    /// Begins at a leaf of the tree that was seen before, if the leaf covers the key and has not
    /// changed since.
    pub(crate) fn begin_near(&mut self, context: Context<'_>, leaf: Leaf, key: &[u8]) {
        let page = context.shared.pool.frames.resume(leaf.0, leaf.1);
        if self.at.is_none() && Node::new(page.bytes()).covers(key) && page.validate() {
            self.at = Some(leaf);
        }
    }

    #[inline(always)]
    pub(crate) fn walk_to_leaf<'a>(
        &mut self,
        context: Context<'a>,
        tree: &Tree,
        route: Route<'_>,
    ) -> Result<OptimisticFrame<'a>, Need> {
        let frames = &context.shared.pool.frames;
        let mut page = match self.at {
            Some((frame, version)) => frames.resume(frame, version),
            None => tree.read_root(context)?,
        };
        loop {
            let node = Node::new(page.bytes());
            let child = match self.next.take() {
                Some(child) => child,
                None => {
                    let level = node.level();
                    if level == 0 {
                        if !page.validate() {
                            self.restart();
                            return Err(Need::Retry);
                        }
                        self.at = Some((page.index(), page.version()));
                        if page.index().0.is_multiple_of(SAMPLED) {
                            tree.correct_leaf_lines(frames, node);
                        }
                        return Ok(page);
                    }
                    let position = route.child_position(node);
                    let swip = Swip::decode(node.child(position));
                    if !page.validate() {
                        self.restart();
                        return Err(Need::Retry);
                    }
                    self.at = Some((page.index(), page.version()));
                    match swip {
                        Swip::Cold(place) => {
                            let (parent, version) = (page.index(), page.version());
                            return Err(Need::Load(LoadPlan { parent, version, position, place }));
                        }
                        Swip::Hot(child) => {
                            if level <= 2 && frames.contains(child) {
                                // The misses on latch, header and slots overlap, instead of
                                // following one another.
                                let lines = if level == 1 { tree.leaf_lines(frames) } else { 2 };
                                frames.prefetch(child, lines);
                                if level == 2
                                    && let Route::To(key) = route
                                    && let Some(offset) = node.likely_offset(position, key)
                                {
                                    frames.prefetch_at(child, offset.saturating_sub(64));
                                    frames.prefetch_at(child, offset);
                                    frames.prefetch_at(child, offset + 64);
                                }
                                if context.interleave {
                                    self.next = Some(child);
                                    return Err(Need::Prefetch);
                                }
                            }
                            child
                        }
                    }
                }
            };
            if !frames.contains(child) {
                self.restart();
                return Err(Need::Retry);
            }
            let below = match read(context, child) {
                Ok(below) => below,
                // The reference may have been stale. Wait for this child only if the page above is
                // unchanged.
                Err(_) if !page.validate() => {
                    self.restart();
                    return Err(Need::Retry);
                }
                Err(need) => return Err(need),
            };
            // The child's version was read while the parent still referred to it.
            if !page.validate() {
                self.restart();
                return Err(Need::Retry);
            }
            page = below;
            self.at = Some((page.index(), page.version()));
        }
    }
}

/// A page on a given level, and the page above it.
pub(crate) struct Place<'a> {
    /// The parent, and the child's position in it; `None` for the root.
    pub(crate) parent: Option<(OptimisticFrame<'a>, usize)>,
    pub(crate) page: OptimisticFrame<'a>,
}

/// Goes down from the root to the page of `level` that a route leads to; `None` if the tree is not
/// that high.
pub(crate) fn to_level<'a>(
    context: Context<'a>,
    tree: &Tree,
    route: Route<'_>,
    level: u8,
) -> Result<Option<Place<'a>>, Need> {
    let mut parent = None;
    let mut page = tree.read_root(context)?;
    loop {
        let node = Node::new(page.bytes());
        let here = node.level();
        if here <= level {
            return if !page.validate() {
                Err(Need::Retry)
            } else {
                Ok((here == level).then_some(Place { parent, page }))
            };
        }
        let position = route.child_position(node);
        let below = child(context, page, position)?;
        parent = Some((page, position));
        page = below;
    }
}

/// Begins an optimistic read of a page's child.
pub(crate) fn child<'a>(
    context: Context<'a>,
    page: OptimisticFrame<'a>,
    position: usize,
) -> Result<OptimisticFrame<'a>, Need> {
    let swip = Swip::decode(Node::new(page.bytes()).child(position));
    if !page.validate() {
        return Err(Need::Retry);
    }
    match swip {
        Swip::Cold(place) => Err(Need::Load(LoadPlan {
            parent: page.index(),
            version: page.version(),
            position,
            place,
        })),
        Swip::Hot(frame) => {
            let below = read(context, frame)?;
            if page.validate() { Ok(below) } else { Err(Need::Retry) }
        }
    }
}

/// Turns an optimistic read into the exclusive latch, or returns the condition to wait for.
pub(crate) fn latch<'a>(
    page: OptimisticFrame<'a>,
) -> Result<qpair_memory::ExclusiveFrame<'a>, Need> {
    page.upgrade().map_err(|blocked| match blocked {
        Blocked::InFlight => Need::Io(page.index()),
        Blocked::Contended => Need::Retry,
    })
}
