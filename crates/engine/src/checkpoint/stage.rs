//! Writes the pages of a checkpoint. Leaves are copied one behind the other and many are written at
//! once; inner pages are written one by one.
//!
//! The copies have memory of their own. All frames may hold pages that cannot leave before the
//! pages above them are saved, so a writer that waited for a frame would never end.
//!
//! Invariant: a leaf that was copied counts as saved, but stays dirty until its copy is written, so
//! that it does not leave memory as a clean page before. A leaf that was touched since it was
//! copied stays dirty. No transfer to an allocated place is in flight once [`Stage::finish`] has
//! returned, whether the writes succeeded or not.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use qpair_block::{Arena, Buffer, Request};
use qpair_format::page::{Node, seal};
use qpair_format::{Error, Result};
use qpair_memory::{FrameIndex, Version};

use crate::pool::{Epoch, state};
use crate::shared::Shared;
use crate::space::Purpose;
use crate::task::{Transfer, current};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    Saved,
    /// The frame was not available; try the page again.
    Busy,
    /// The page is not a leaf that can be copied here.
    Other,
    /// The leaf is to be written to this place.
    Leaf(u64),
}

/// Leaves whose copies go to places that follow one another, or an inner page.
struct Extent {
    first_place: u64,
    /// The leaves, each with its version when it was copied.
    pages: Vec<(FrameIndex, Version)>,
}

/// The pages that one worker has copied and is writing.
pub(super) struct Stage<'a> {
    shared: &'a Shared,
    epoch: Epoch,
    arena: Arc<Arena>,
    pages_max: usize,
    /// Places that were allocated and not chosen for a page yet.
    spare: Range<u64>,
    open: Option<(Buffer, Extent)>,
    writing: VecDeque<(Transfer, Extent)>,
}

impl<'a> Stage<'a> {
    pub(super) fn new(shared: &'a Shared, epoch: Epoch) -> Result<Self> {
        let worker = current(|worker| worker.number).unwrap_or(0);
        let arena = shared.checkpointing.copies.of_worker(worker)?.clone();
        let pages_max = arena.block_size() / shared.page_size;
        let (spare, open, writing) = (0..0, None, VecDeque::new());
        Ok(Self { shared, epoch, arena, pages_max, spare, open, writing })
    }

    /// Checks whether the page in a frame is a leaf that the image needs, and chooses its place.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(super) fn look(&mut self, frame: FrameIndex) -> Result<Looked> {
        let pool = &self.shared.pool;
        if !pool.holds_page(frame) || pool.frames.epoch(frame) == self.epoch.number {
            return Ok(Looked::Saved);
        }
        let Ok(page) = pool.frames.try_exclusive(frame) else { return Ok(Looked::Busy) };
        let node = Node::new(page.bytes());
        if !pool.holds_page(frame) || !pool.is_unsaved(frame, node, self.epoch) {
            return Ok(Looked::Saved);
        }
        if !node.is_leaf() || pool.frames.state(frame) == state::PINNED {
            return Ok(Looked::Other);
        }
        if self.spare.is_empty() {
            let space = &self.shared.space;
            self.spare = space.allocate_some(self.pages_max as u64, Purpose::Checkpoint)?;
        }
        let place = pool.image_place_from(frame, self.epoch, &mut self.spare);
        Ok(Looked::Leaf(place))
    }

    /// Copies a leaf for its place, if the image still needs it. Returns whether the leaf must be
    /// tried again.
    pub(super) async fn add(&mut self, frame: FrameIndex, place: u64) -> Result<bool> {
        let goes_on = |(_, extent): &(Buffer, Extent)| {
            extent.pages.len() < self.pages_max
                && extent.first_place + extent.pages.len() as u64 == place
        };
        if !self.open.as_ref().is_some_and(goes_on) {
            self.write();
            let buffer = self.lease().await?;
            self.open = Some((buffer, Extent { first_place: place, pages: Vec::new() }));
        }
        let (pool, page_bytes) = (&self.shared.pool, self.shared.page_bytes);
        let Some((buffer, extent)) = &mut self.open else { return Ok(true) };
        let Ok(mut page) = pool.frames.try_exclusive(frame) else { return Ok(true) };
        if !pool.holds_page(frame) || !pool.is_unsaved(frame, Node::new(page.bytes()), self.epoch) {
            return Ok(false);
        }
        pool.take_image_place(self.shared.places(), &mut page, place, self.epoch);
        let offset = extent.pages.len() * self.shared.page_size;
        buffer.part_mut(offset, page_bytes).copy_from(0, page.as_slice());
        extent.pages.push((frame, page.release()));
        seal(buffer, offset, page_bytes);
        Ok(false)
    }

    /// Saves an inner page or a root by way of a copy, if the image still needs it. Returns `false`
    /// if the page must be tried again.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(super) async fn save(&mut self, frame: FrameIndex) -> Result<bool> {
        let (shared, page_bytes) = (self.shared, self.shared.page_bytes);
        let pool = &shared.pool;
        let mut buffer = self.lease().await?;
        let Ok(page) = pool.frames.try_exclusive(frame) else { return Ok(false) };
        let node = Node::new(page.bytes());
        if !pool.holds_page(frame) || !pool.is_unsaved(frame, node, self.epoch) {
            return Ok(true);
        }
        if node.is_leaf() && pool.frames.state(frame) != state::PINNED {
            // The page was of another kind a moment ago: a leaf to be copied with others.
            return Ok(false);
        }
        let place =
            pool.save_copy(shared.places(), &page, buffer.part_mut(0, page_bytes), self.epoch)?;
        drop(page);
        seal(&mut buffer, 0, page_bytes);
        self.submit(buffer, Extent { first_place: place, pages: Vec::new() }, 1);
        Ok(true)
    }

    async fn lease(&mut self) -> Result<Buffer> {
        loop {
            if let Some(buffer) = self.arena.lease() {
                return Ok(buffer);
            }
            if self.writing.is_empty() {
                self.write();
            }
            self.finish_one().await?;
        }
    }

    fn write(&mut self) {
        let Some((buffer, extent)) = self.open.take() else { return };
        if extent.pages.is_empty() {
            return;
        }
        let pages = extent.pages.len();
        self.submit(buffer, extent, pages);
    }

    fn submit(&mut self, buffer: Buffer, extent: Extent, pages: usize) {
        let offset_bytes = self.shared.offset_bytes(extent.first_place);
        let len_bytes = (pages * self.shared.page_size) as u32;
        let transfer = Transfer::submit(Request::write(offset_bytes, len_bytes, buffer, 0));
        self.writing.push_back((transfer, extent));
    }

    /// Waits for the oldest write. Its pages are then clean, unless they were touched since.
    async fn finish_one(&mut self) -> Result<()> {
        let Some((transfer, Extent { first_place, pages })) = self.writing.pop_front() else {
            return Ok(());
        };
        let frames = &self.shared.pool.frames;
        match transfer.done().await?.result {
            Ok(()) => {
                for (place, (frame, version)) in (first_place..).zip(pages) {
                    if let Ok(page) = frames.resume(frame, version).upgrade()
                        && frames.page_id(frame) == place
                    {
                        frames.set_dirty(frame, false);
                        drop(page);
                    }
                }
            }
            Err(error) => {
                self.shared.fail(Error::io(error, format!("writing pages from {first_place} on")));
            }
        }
        Ok(())
    }

    /// Writes the remaining copies, and waits until nothing is in flight.
    pub(super) async fn finish(mut self) -> Result<()> {
        self.write();
        let mut outcome = Ok(());
        while !self.writing.is_empty() {
            outcome = outcome.and(self.finish_one().await);
        }
        if !self.spare.is_empty() {
            self.shared.space.free(self.spare.start, self.spare.end - self.spare.start);
        }
        outcome
    }
}
