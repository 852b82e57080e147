//! Eviction: the hands of the clock, and what happens to a page they take.

use std::sync::atomic::Ordering;

use qpair_block::Request;
use qpair_memory::{Blocked, ExclusiveFrame, FrameIndex};

use super::{Pool, state};
use crate::page::{INNER_SLOT_BYTES, Node, NodeMut, checksum, slots_offset};
use crate::swip::Swip;

/// Frames the hands move over at once.
const STRIDE: u64 = 32;

/// What became of a page the back hand took.
enum Taken {
    /// Its frame is free.
    Freed,
    /// It must be written first; the request is ready.
    Write(Request),
    /// It stays: touched, latched, in flight, or a parent of pages in memory.
    Kept,
}

impl Pool {
    /// Moves the hands until `wanted` frames are freed or being written, or `budget` frames were passed.
    /// Freed frames go to `freed`, writes to `writes` (tagged `write_tag`); how many frames were passed.
    pub(crate) fn sweep(
        &self,
        wanted: usize,
        budget: usize,
        write_tag: u64,
        may_write: bool,
        freed: &mut Vec<FrameIndex>,
        writes: &mut Vec<Request>,
    ) -> usize {
        let count = u64::from(self.frames.len());
        let (freed_before, writes_before) = (freed.len(), writes.len());
        let mut passed = 0;
        let mut victims = [FrameIndex(0); STRIDE as usize];
        while passed < budget && freed.len() - freed_before + writes.len() - writes_before < wanted
        {
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
                    // What the second look will touch: the page's header, its parent's latch, and the reference there.
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
                match self.take(frame, write_tag, may_write) {
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

    /// Evicts one page if it may go.
    fn take(&self, frame: FrameIndex, write_tag: u64, may_write: bool) -> Taken {
        let Ok(page) = self.frames.try_exclusive(frame) else { return Taken::Kept };
        // Only now does the state stand still.
        let now = self.frames.state(frame);
        if now == state::BROKEN {
            return if self.unlink(page) { Taken::Freed } else { Taken::Kept };
        }
        if now != state::COOLING || has_children_in_memory(Node::new(page.bytes())) {
            return Taken::Kept;
        }
        if !self.frames.is_dirty(frame) {
            return if self.unlink(page) { Taken::Freed } else { Taken::Kept };
        }
        if !may_write {
            return Taken::Kept;
        }
        Taken::Write(self.write_back(page, write_tag))
    }

    /// Seals a page and makes the request that writes it. Readers go on; writers wait for the completion.
    pub(crate) fn write_back(&self, mut page: ExclusiveFrame<'_>, tag: u64) -> Request {
        let sum = checksum(page.as_slice());
        NodeMut::new(page.bytes_mut()).set_checksum(sum);
        let page_id = self.frames.page_id(page.index());
        let buffer = page.begin_write();
        let len_bytes = buffer.len() as u32;
        Request::write(page_id * u64::from(len_bytes), len_bytes, buffer, tag)
    }

    /// Ends a write-back that succeeded: the page is clean, and goes at once if it is still cooling. The
    /// frame, if it became free.
    pub(crate) fn written(&self, frame: FrameIndex) -> Option<FrameIndex> {
        if self.frames.state(frame) != state::COOLING {
            return None;
        }
        match self.take(frame, 0, false) {
            Taken::Freed => Some(frame),
            Taken::Write(_) | Taken::Kept => None,
        }
    }

    /// Takes a broken page out of its parent; `Some(true)` if its frame is free now and the caller's, `Some(false)`
    /// if somebody else did it, `None` if it must be tried again.
    pub(crate) fn drop_broken(&self, frame: FrameIndex) -> Option<bool> {
        let page = self.frames.try_exclusive(frame).ok()?;
        if self.frames.state(frame) != state::BROKEN {
            return Some(false);
        }
        self.unlink(page).then_some(true)
    }

    /// Turns the parent's reference cold, and the frame free; `false` if the parent is not to be had now.
    fn unlink(&self, page: ExclusiveFrame<'_>) -> bool {
        let frame = page.index();
        let Some((parent, position)) = self.frames.parent_hint(frame) else { return false };
        let mut parent = match self.frames.try_exclusive(parent) {
            Ok(parent) => parent,
            Err(Blocked::Contended | Blocked::InFlight) => return false,
        };
        let swip = Swip::Hot(frame).encode();
        let node = Node::new(parent.bytes());
        // Whoever moves a reference to another page corrects the hint, but we may have read it before.
        if node.is_leaf() {
            return false;
        }
        // Most often the hint is right; references move along when others come or go before them.
        let position = if position <= node.count() && node.child(position) == swip {
            Some(position)
        } else {
            (0..=node.count()).find(|position| node.child(*position) == swip)
        };
        let Some(position) = position else { return false };
        NodeMut::new(parent.bytes_mut())
            .set_child(position, Swip::Cold(self.frames.page_id(frame)).encode());
        drop(parent);
        self.release_frame(page);
        true
    }

    /// Makes a frame that no page refers to free; it goes onto a list by the caller.
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
