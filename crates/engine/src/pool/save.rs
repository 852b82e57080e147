//! Chooses where pages are written. A page gets another place in each checkpoint image.
//!
//! All of this runs on workers, under the exclusive latch of the page, within one turn of a worker.
//! A checkpoint lets every worker finish its turn after the epoch moved before it relies on the new
//! one.

use std::ops::Range;

use qpair_format::Result;
use qpair_format::page::{Node, NodeMut};
use qpair_format::place::{PAGES_MAX, page_of};
use qpair_format::swip::Swip;
use qpair_memory::{Blocked, ExclusiveFrame, FrameIndex, RacyBytesMut};

use super::{Checkpoints, Epoch, Pool, state};
use crate::space::{Purpose, Space};

/// Returns the target word for a place in an epoch's image: the page id, and the epoch's low bits
/// above it.
fn target_word(epoch: Epoch, page_id: u64) -> u64 {
    u64::from(epoch.number) << PAGES_MAX.ilog2() | page_id
}

/// Returns the place that a target word names, if it belongs to this epoch.
fn target_of(word: u64, epoch: Epoch) -> Option<u64> {
    let page_id = page_of(word);
    (word == target_word(epoch, page_id) && page_id != 0).then_some(epoch.place(page_id))
}

impl Pool {
    /// Whether the image under way still needs the page as it is in the frame.
    pub(crate) fn is_unsaved(&self, frame: FrameIndex, node: Node<'_>, epoch: Epoch) -> bool {
        epoch.saving
            && self.frames.epoch(frame) != epoch.number
            && (!node.is_leaf() || self.frames.is_dirty(frame))
    }

    /// Returns the address of a page in the image under way. The page or its parent chooses it,
    /// whichever is saved first.
    fn image_place(&self, space: &Space, frame: FrameIndex, epoch: Epoch) -> Result<u64> {
        if let Some(place) = target_of(self.frames.target(frame), epoch) {
            return Ok(place);
        }
        let page_id = space.allocate(1, Purpose::Checkpoint)?;
        let mut spare = page_id..page_id + 1;
        let place = self.image_place_from(frame, epoch, &mut spare);
        if !spare.is_empty() {
            space.free(page_id, 1);
        }
        Ok(place)
    }

    /// Returns the place of a page in the image under way: the one chosen already, or else the
    /// first of `spare`.
    pub(crate) fn image_place_from(
        &self,
        frame: FrameIndex,
        epoch: Epoch,
        spare: &mut Range<u64>,
    ) -> u64 {
        let word = self.frames.target(frame);
        if let Some(place) = target_of(word, epoch) {
            return place;
        }
        let page_id = spare.start;
        match self.frames.change_target(frame, word, target_word(epoch, page_id)) {
            Ok(()) => spare.start += 1,
            // Another thread can have stored only the present epoch's word in between.
            Err(other) => return target_of(other, epoch).unwrap_or(epoch.place(page_id)),
        }
        epoch.place(page_id)
    }

    /// Notes that a copy of the leaf in its present state goes to its place in the image. The leaf
    /// is dirty until the copy is written.
    pub(crate) fn take_image_place(
        &self,
        (space, checkpoints): (&Space, &Checkpoints),
        page: &mut ExclusiveFrame<'_>,
        place: u64,
        epoch: Epoch,
    ) {
        let frame = page.index();
        self.take_place(space, checkpoints, frame, place);
        NodeMut::new(page.bytes_mut()).set_place(place);
        self.frames.set_dirty(frame, true);
        self.frames.set_epoch(frame, epoch.number);
    }

    /// Returns the place that was chosen in an epoch for a page that was never written there.
    /// Saving has ended.
    pub(crate) fn unused_place(&self, frame: FrameIndex, epoch: Epoch) -> Option<u64> {
        let place = target_of(self.frames.target(frame), epoch)?;
        (self.frames.epoch(frame) != epoch.number).then_some(place)
    }

    /// Moves a page to a new place, to which its present content is about to be written.
    ///
    /// # Errors
    /// `NoSpace`; nothing is changed then.
    pub(crate) fn relocate(
        &self,
        space: &Space,
        checkpoints: &Checkpoints,
        page: &mut ExclusiveFrame<'_>,
        epoch: Epoch,
    ) -> Result<()> {
        let frame = page.index();
        let of_image = epoch.saving && self.frames.epoch(frame) != epoch.number;
        let place = match of_image {
            true => self.image_place(space, frame, epoch)?,
            false => {
                let from = page_of(self.frames.page_id(frame));
                checkpoints.versions.moved(space.allocate_to_move(from)?)
            }
        };
        self.take_place(space, checkpoints, frame, place);
        NodeMut::new(page.bytes_mut()).set_place(place);
        // From here on the page's content is accounted for, in the image or apart from it.
        self.frames.set_epoch(frame, epoch.number);
        self.frames.set_dirty(frame, false);
        Ok(())
    }

    fn take_place(&self, space: &Space, checkpoints: &Checkpoints, frame: FrameIndex, place: u64) {
        let before = self.frames.page_id(frame);
        space.moved(page_of(before), page_of(place), || {
            let now = checkpoints.epoch();
            now.saving && self.frames.epoch(frame) != now.number
        });
        self.frames.set_page_id(frame, place);
    }

    /// Puts the image's copy of a page into `copy`, to be sealed and written to the returned place.
    /// The page may be changed afterwards.
    ///
    /// # Errors
    /// `NoSpace`; nothing is changed then.
    pub(crate) fn save_copy(
        &self,
        (space, checkpoints): (&Space, &Checkpoints),
        page: &ExclusiveFrame<'_>,
        mut copy: RacyBytesMut<'_>,
        epoch: Epoch,
    ) -> Result<u64> {
        let frame = page.index();
        let node = Node::new(page.bytes());
        let place = self.image_place(space, frame, epoch)?;
        copy.copy_from(0, page.as_slice());
        let mut copy = NodeMut::new(copy);
        if !node.is_leaf() {
            let children_are_leaves = node.level() == 1;
            for position in 0..=node.count() {
                let Swip::Hot(child) = Swip::decode(node.child(position)) else { continue };
                // The page's latch keeps its children in memory. A child that is not saved yet will
                // be saved, and its place is settled here. A clean leaf will not be saved, even if
                // another worker makes it dirty just now. Nor will a page that is still being read:
                // it gets the new epoch before any thread sees it. Therefore the read is checked
                // first.
                let is_read = self.frames.optimistic(child).err() == Some(Blocked::InFlight);
                let unsaved = match children_are_leaves {
                    _ if is_read => false,
                    true => self.frames.is_dirty_before(child, epoch.number),
                    false => self.frames.epoch(child) != epoch.number,
                };
                let child_place = match unsaved {
                    true => self.image_place(space, child, epoch)?,
                    false => self.frames.page_id(child),
                };
                copy.set_child(position, Swip::Cold(child_place).encode());
            }
        }
        self.take_place(space, checkpoints, frame, place);
        copy.set_place(place);
        // Until the copy is written, its place has other content, so the page must not leave memory
        // as a clean page. No code tracks whether that write has ended, so the page is written once
        // more when it leaves.
        self.frames.set_dirty(frame, true);
        self.frames.set_epoch(frame, epoch.number);
        Ok(place)
    }

    /// Whether a page may leave memory, as far as the image under way is concerned.
    pub(crate) fn may_leave(&self, frame: FrameIndex, node: Node<'_>, epoch: Epoch) -> bool {
        node.is_leaf() || !epoch.saving || self.frames.epoch(frame) == epoch.number
    }

    /// Whether a frame holds a page of a tree whose place is `place` or behind it.
    pub(crate) fn is_behind(&self, frame: FrameIndex, place: u64) -> bool {
        let Ok(page) = self.frames.try_exclusive(frame) else { return false };
        self.holds_page(frame) && page_of(self.frames.page_id(page.index())) >= place
    }

    pub(crate) fn holds_page(&self, frame: FrameIndex) -> bool {
        matches!(self.frames.state(frame), state::HOT | state::COOLING | state::PINNED)
    }
}
