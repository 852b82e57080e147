//! Eviction: the hands of the clock, and what happens to a page they take.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use qpair_block::Request;
use qpair_format::Error;
use qpair_format::page::{INNER_SLOT_BYTES, Node, NodeMut, checksum, slots_offset};
use qpair_format::place::page_of;
use qpair_format::swip::Swip;
use qpair_memory::locks::Mutex;
use qpair_memory::{Blocked, ExclusiveFrame, FrameIndex};

use super::{Checkpoints, Pool, Root, state};
use crate::space::Space;

/// The number of frames that the hands move over at once.
const STRIDE: u64 = 32;

/// The parts of the store that the pool needs to evict pages.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    pub(crate) space: &'a Space,
    pub(crate) checkpoints: &'a Checkpoints,
    /// The roots of the trees, by tree id.
    pub(crate) roots: &'a Mutex<BTreeMap<u32, Root>>,
    /// The error of the write that failed, if one did.
    pub(crate) failure: &'a OnceLock<Error>,
}

impl Around<'_> {
    fn root(&self, tree_id: u32) -> Option<Root> {
        self.roots.lock().get(&tree_id).copied()
    }
}

enum Taken {
    Freed,
    /// The page must be written first; the request is ready.
    Write(Request),
    /// The page stays: it was touched, is latched or in flight, or is a parent of pages in memory.
    Kept,
}

impl Pool {
    /// Moves the hands until `wanted` frames are freed or being written, or `budget` frames were
    /// passed. Freed frames go to `freed`, writes to `writes` with the tag `write_tag`. Without a
    /// tag nothing is written, and the hands stop where most of the cooling pages are dirty.
    /// Returns how many frames were passed.
    pub(crate) fn sweep(
        &self,
        around: Around<'_>,
        wanted: usize,
        budget: usize,
        write_tag: Option<u64>,
        freed: &mut Vec<FrameIndex>,
        writes: &mut Vec<Request>,
    ) -> usize {
        let count = u64::from(self.frames.len());
        let (freed_before, writes_before) = (freed.len(), writes.len());
        let mut passed = 0;
        let mut victims = [FrameIndex(0); STRIDE as usize];
        while passed < budget && freed.len() - freed_before + writes.len() - writes_before < wanted
        {
            if write_tag.is_none() && around.failure.get().is_none() && self.is_dirty_ahead() {
                break;
            }
            let back = self.hand.fetch_add(STRIDE, Ordering::Relaxed);
            let mut found = 0;
            for position in back..back + STRIDE {
                let front =
                    FrameIndex(((position + u64::from(self.cooling_distance)) % count) as u32);
                if self.frames.state(front) == state::HOT {
                    self.frames.change_state(front, state::HOT, state::COOLING);
                }
                let frame = FrameIndex((position % count) as u32);
                if matches!(self.frames.state(frame), state::COOLING | state::BROKEN) {
                    victims[found] = frame;
                    found += 1;
                    // Prefetch the memory that the second look will touch: the page's header, its
                    // parent's latch, and the reference there.
                    self.frames.prefetch(frame, 1);
                    if let Some((parent, position)) = self.frames.parent_hint(frame) {
                        self.frames.prefetch(parent, 1);
                        self.frames.prefetch_at(
                            parent,
                            slots_offset(false) + position * INNER_SLOT_BYTES + 8,
                        );
                    }
                }
            }
            for &frame in &victims[..found] {
                match self.take(around, frame, write_tag) {
                    Taken::Freed => freed.push(frame),
                    Taken::Write(request) => writes.push(request),
                    Taken::Kept => {}
                }
            }
            passed += STRIDE as usize;
        }
        self.evictions.fetch_add((freed.len() - freed_before) as u64, Ordering::Relaxed);
        passed
    }

    /// Whether most of the cooling pages that the back hand comes to next are dirty. Hands that may
    /// not write would skip those and take the clean pages before their time. The answer is a
    /// guess, since nothing is latched.
    fn is_dirty_ahead(&self) -> bool {
        let count = u64::from(self.frames.len());
        let back = self.hand.load(Ordering::Relaxed);
        let frames = (back..back + STRIDE).map(|position| FrameIndex((position % count) as u32));
        let cooling = frames.filter(|frame| self.frames.state(*frame) == state::COOLING);
        cooling.map(|frame| if self.frames.is_dirty(frame) { 1 } else { -1 }).sum::<i32>() > 0
    }

    fn take(&self, around: Around<'_>, frame: FrameIndex, write_tag: Option<u64>) -> Taken {
        let Ok(page) = self.frames.try_exclusive(frame) else { return Taken::Kept };
        // The state cannot change from here on.
        let now = self.frames.state(frame);
        if now == state::BROKEN {
            // The content of a broken page does not say where the page belongs.
            return if self.unlink(None, page) { Taken::Freed } else { Taken::Kept };
        }
        let node = Node::new(page.bytes());
        let epoch = around.checkpoints.epoch();
        if now != state::COOLING
            || has_children_in_memory(node)
            || !self.may_leave(frame, node, epoch)
            // The copy of an inner page may be part of an image that was given up.
            || (around.failure.get().is_some() && !node.is_leaf())
        {
            return Taken::Kept;
        }
        if !self.frames.is_dirty(frame) {
            return if self.unlink(Some(around), page) { Taken::Freed } else { Taken::Kept };
        }
        let Some(write_tag) = write_tag else { return Taken::Kept };
        self.move_out(around, page, write_tag)
    }

    /// Begins to write a dirty page to a new place. The parent's copy on the device is out of date
    /// from then on.
    fn move_out(&self, around: Around<'_>, mut page: ExclusiveFrame<'_>, tag: u64) -> Taken {
        let (space, checkpoints) = (around.space, around.checkpoints);
        let frame = page.index();
        let Some((parent, _)) = self.find_parent(Some(around), &page) else { return Taken::Kept };
        // Read the epoch with both pages latched, so that all of this belongs to one epoch.
        let epoch = checkpoints.epoch();
        if !self.is_unsaved(frame, Node::new(page.bytes()), epoch) {
            let above = parent.index();
            if self.is_unsaved(above, Node::new(parent.bytes()), epoch) {
                // The image needs the parent's old content. The checkpoint writer will save it.
                return Taken::Kept;
            }
            self.frames.set_epoch(above, epoch.number);
            self.frames.set_dirty(above, true);
        }
        if self.relocate(space, checkpoints, &mut page, epoch).is_err() {
            return Taken::Kept;
        }
        drop(parent);
        Taken::Write(self.write_back(page, tag))
    }

    /// Latches the parent of a page in memory, and finds the reference in it. Returns `None` if the
    /// parent is not available now.
    fn find_parent(
        &self,
        around: Option<Around<'_>>,
        page: &ExclusiveFrame<'_>,
    ) -> Option<(ExclusiveFrame<'_>, usize)> {
        let frame = page.index();
        let (parent, position) = match around.filter(|_| !self.parent_hints) {
            Some(around) => self.parent_from_root(around, Node::new(page.bytes()))?,
            None => self.frames.parent_hint(frame)?,
        };
        let parent = match self.frames.try_exclusive(parent) {
            Ok(parent) => parent,
            Err(Blocked::Contended | Blocked::InFlight) => return None,
        };
        let swip = Swip::Hot(frame).encode();
        let node = Node::new(parent.bytes());
        // A split or merge that moves the reference corrects the hint, but the hint may have been
        // read before.
        if node.is_leaf() {
            return None;
        }
        // The hint is usually right. References move when others are inserted or removed before
        // them.
        let position = if position <= node.count() && node.child(position) == swip {
            Some(position)
        } else {
            (0..=node.count()).find(|position| node.child(*position) == swip)
        }?;
        Some((parent, position))
    }

    /// Finds the parent of a page by a descent from the root to the page's lower fence.
    fn parent_from_root(&self, around: Around<'_>, page: Node<'_>) -> Option<(FrameIndex, usize)> {
        let mut key = Vec::new();
        page.lower_fence(&mut key);
        let Some(Root::Open(mut at)) = around.root(page.tree_id()) else {
            return None;
        };
        loop {
            let above = self.frames.optimistic(at).ok()?;
            let node = Node::new(above.bytes());
            if node.level() <= page.level() {
                return None;
            }
            let (level, position) = (node.level(), node.child_position(&key));
            let child = Swip::decode(node.child(position));
            if !above.validate() {
                return None;
            }
            match child {
                _ if level == page.level() + 1 => return Some((at, position)),
                Swip::Hot(child) if self.frames.contains(child) => at = child,
                _ => return None,
            }
        }
    }

    /// Seals a page and creates the request that writes it. Readers continue; writers wait for the
    /// completion.
    pub(crate) fn write_back(&self, mut page: ExclusiveFrame<'_>, tag: u64) -> Request {
        let sum = checksum(page.as_slice());
        NodeMut::new(page.bytes_mut()).set_checksum(sum);
        let page_id = page_of(self.frames.page_id(page.index()));
        let buffer = page.begin_write();
        let len_bytes = buffer.len() as u32;
        Request::write(page_id * u64::from(len_bytes), len_bytes, buffer, tag)
    }

    /// Ends a write-back that succeeded: the page is clean, and is evicted at once if it is still
    /// cooling. Returns the frame if it became free.
    pub(crate) fn written(&self, around: Around<'_>, frame: FrameIndex) -> Option<FrameIndex> {
        if self.frames.state(frame) != state::COOLING {
            return None;
        }
        match self.take(around, frame, None) {
            Taken::Freed => {
                self.evictions.fetch_add(1, Ordering::Relaxed);
                Some(frame)
            }
            Taken::Write(_) | Taken::Kept => None,
        }
    }

    /// Removes a broken page from its parent. Returns `Some(true)` if the frame is free now and the
    /// caller's, `Some(false)` if another worker removed the page, and `None` if it must be tried
    /// again.
    pub(crate) fn drop_broken(&self, frame: FrameIndex) -> Option<bool> {
        let page = self.frames.try_exclusive(frame).ok()?;
        if self.frames.state(frame) != state::BROKEN {
            return Some(false);
        }
        self.unlink(None, page).then_some(true)
    }

    /// Makes the parent's reference cold, and the frame free. Returns `false` if the parent is not
    /// available now.
    fn unlink(&self, around: Option<Around<'_>>, page: ExclusiveFrame<'_>) -> bool {
        let frame = page.index();
        let Some((mut parent, position)) = self.find_parent(around, &page) else { return false };
        NodeMut::new(parent.bytes_mut())
            .set_child(position, Swip::Cold(self.frames.page_id(frame)).encode());
        drop(parent);
        self.release_frame(page);
        true
    }

    /// Frees a frame that no page refers to. The caller puts it on a list.
    pub(crate) fn release_frame(&self, page: ExclusiveFrame<'_>) {
        let frame = page.index();
        self.frames.set_page_id(frame, u64::MAX);
        self.frames.set_parent_hint(frame, None);
        self.frames.set_dirty(frame, false);
        self.frames.set_state(frame, state::FREE);
    }
}

fn has_children_in_memory(node: Node<'_>) -> bool {
    !node.is_leaf()
        && (0..=node.count())
            .any(|position| matches!(Swip::decode(node.child(position)), Swip::Hot(_)))
}
