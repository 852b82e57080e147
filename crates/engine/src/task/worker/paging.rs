//! Pages in and out: loads, write-backs, and their ends.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use qpair_block::{Buffer, IoError, Request};
use qpair_format::page::{self, Node, NodeMut, PageKind};
use qpair_format::place::page_of;
use qpair_format::swip::Swip;
use qpair_format::{Error, ErrorKind, Remedy, Result, SALVAGE};
use qpair_memory::{Blocked, ExclusiveFrame, FrameIndex, Version};

use super::{Tag, TaskRef, Worker, current, latch_free, load_tag, tag};
use crate::canary::Canary;
use crate::pool::{Epoch, state};
use crate::sync::Ticket;
use crate::task::operation::{LoadPlan, Need};

pub(crate) enum Loading {
    /// The read into this frame is in flight. The parent now has this version, and the task is
    /// woken at the end of the read.
    Started(FrameIndex, Version),
    /// The parent changed; the caller must look again.
    Stale,
    /// The parent is being written back; the caller must wait for that.
    ParentInFlight,
    /// No frame is free; the caller must wait for one.
    NoFrame,
    /// An earlier load of the same page failed for the same task.
    Failed(Error),
}

/// The properties that a parent page states for a page below it.
struct Above {
    level: u8,
    tree_id: u32,
    /// Whether the fences of the page are the keys on both sides of the reference.
    is_bound: bool,
}

impl Worker {
    /// Begins to load a page for the running task.
    pub(crate) fn load(&self, plan: LoadPlan) -> Loading {
        let task = self.running.get();
        if !self.load_errors.borrow().is_empty()
            && let Some(error) = self.take_load_error(task, plan.place)
        {
            return Loading::Failed(error);
        }
        let (page_id, capacity) = (page_of(plan.place), self.shared.space.capacity());
        if page_id >= capacity {
            return Loading::Failed(Error::new(
                ErrorKind::Corrupt,
                format!("a reference names page {page_id}, but the store has {capacity} pages"),
            ));
        }
        let Some(frame) = self.take_frame() else { return Loading::NoFrame };
        let frames = &self.shared.pool.frames;
        let mut parent = match frames.resume(plan.parent, plan.version).upgrade() {
            Ok(parent) => parent,
            Err(blocked) => {
                self.free.borrow_mut().push(frame);
                return if blocked == Blocked::InFlight {
                    Loading::ParentInFlight
                } else {
                    Loading::Stale
                };
            }
        };
        // Nothing changed between the version and the latch, so the reference is still cold.
        NodeMut::new(parent.bytes_mut()).set_child(plan.position, Swip::Hot(frame).encode());
        let child = latch_free(&self.shared, frame);
        frames.set_page_id(frame, plan.place);
        frames.set_parent_hint(frame, Some((plan.parent, plan.position)));
        frames.set_dirty(frame, false);
        frames.set_epoch(frame, self.shared.checkpointing.epochs.epoch().number);
        frames.set_state(frame, state::HOT);
        let buffer = child.begin_read();
        let version = parent.release();
        let len_bytes = buffer.len() as u32;
        let tag = load_tag(task, self.begin_transfer());
        if self.timed.get().is_none() {
            self.timed.set(Some((tag, Instant::now())));
        }
        let offset_bytes = self.shared.offset_bytes(plan.place);
        self.submit_read(Request::read(offset_bytes, len_bytes, buffer, tag));
        Loading::Started(frame, version)
    }

    /// Forgets the failed loads of the running task for which no operation has asked again. Returns
    /// their number.
    pub(crate) fn forget_load_errors(&self) -> usize {
        let (task, mut errors) = (self.running.get(), self.load_errors.borrow_mut());
        let before = errors.len();
        errors.retain(|(of, ..)| *of != task);
        before - errors.len()
    }

    fn take_load_error(&self, task: TaskRef, place: u64) -> Option<Error> {
        let mut errors = self.load_errors.borrow_mut();
        let position = errors.iter().position(|(of, page, _)| *of == task && *page == place)?;
        Some(errors.swap_remove(position).2)
    }

    #[inline]
    pub(super) fn loaded(&self, task: TaskRef, buffer: Buffer, result: Result<(), IoError>) {
        let pool = &self.shared.pool;
        let page = pool.frames.end_read(buffer);
        let frame = page.index();
        let place = pool.frames.page_id(frame);
        let fault = match result {
            Ok(()) => verify(page.as_slice(), place)
                .filter(|_| !self.shared.planted.is(Canary::UncheckedPages))
                .or_else(|| self.misplaced(Node::new(page.bytes()), frame, page_of(place))),
            Err(error) => Some(Error::io(error, format!("reading page {}", page_of(place)))),
        };
        // No task has seen the page yet, so any image under way has it at the place it was read
        // from.
        pool.frames.set_epoch(frame, self.shared.checkpointing.epochs.epoch().number);
        if let Some(error) = fault {
            pool.frames.set_state(frame, state::BROKEN);
            // The task that asked may have ended meanwhile.
            if self.tasks.borrow().is_alive(task) {
                self.load_errors.borrow_mut().push((task, place, error));
            }
            self.broken.borrow_mut().push(frame);
        }
        pool.end_read(page);
        self.make_ready(task);
    }

    /// Returns the error of a page whose own bytes are right, but which does not belong in its
    /// place: a page of another kind or level, or one that refers to frames, would lead readers
    /// astray.
    #[inline]
    fn misplaced(&self, node: Node<'_>, frame: FrameIndex, page_id: u64) -> Option<Error> {
        let kind = if node.is_leaf() { PageKind::Leaf } else { PageKind::Inner };
        let above = self.parent_of(node, frame);
        let refers_to_frames = || {
            !node.is_leaf()
                && (0..=node.count())
                    .any(|position| matches!(Swip::decode(node.child(position)), Swip::Hot(_)))
        };
        let what = match above {
            _ if node.kind_byte() != kind as u8 => format!("is of kind {}", node.kind_byte()),
            Some(Above { level, .. }) if node.level().checked_add(1) != Some(level) => {
                format!("is of level {} below one of level {level}", node.level())
            }
            Some(Above { tree_id, .. }) if tree_id != node.tree_id() => {
                format!("is of tree {} below one of tree {tree_id}", node.tree_id())
            }
            Some(Above { is_bound: false, .. }) => {
                "has other bounds than its parent page gives it".to_owned()
            }
            _ if refers_to_frames() => "refers to memory".to_owned(),
            _ => return None,
        };
        Some(Error::with_remedy(
            ErrorKind::Corrupt,
            format!("page {page_id} {what}, though its checksum is right"),
            format!("the device lost a write, or another program wrote the page; {SALVAGE}"),
            Remedy::Repair,
        ))
    }

    /// Returns the properties that the parent of a loaded page states for it. The parent stays in
    /// memory while its child is loaded, and the keys beside the reference change only with the
    /// child latched; the reference itself may have moved. Returns `None` if the parent is latched
    /// at the moment.
    #[inline]
    fn parent_of(&self, node: Node<'_>, frame: FrameIndex) -> Option<Above> {
        let frames = &self.shared.pool.frames;
        let (parent, hint) = frames.parent_hint(frame)?;
        let parent = frames.optimistic(parent).ok()?;
        let above = Node::new(parent.bytes());
        let refers = |position: &usize| Swip::decode(above.child(*position)) == Swip::Hot(frame);
        let position = Some(hint)
            .filter(|hint| *hint <= above.count() && refers(hint))
            .or_else(|| (0..=above.count()).find(refers))?;
        let mut key = self.fence.take();
        let is_bound = above.bounds(position, node, &mut key);
        self.fence.set(key);
        let found = Above { level: above.level(), tree_id: above.tree_id(), is_bound };
        parent.validate().then_some(found)
    }

    pub(super) fn written(&self, buffer: Buffer, result: Result<(), IoError>) {
        let pool = &self.shared.pool;
        let frame = FrameIndex(buffer.block().0);
        if let Err(error) = result {
            let page_id = page_of(pool.frames.page_id(frame));
            // No other task can change the page yet. It must stay in memory, the only place that
            // has its content.
            pool.frames.set_dirty(frame, true);
            self.shared.fail(Error::io(error, format!("writing page {page_id}")));
        }
        let frame = pool.end_write(buffer);
        self.write_backs.set(self.write_backs.get().saturating_sub(1));
        if result.is_ok()
            && let Some(frame) = pool.written(self.shared.around(), frame)
        {
            self.give_frame(frame);
        }
    }

    /// Handles the end of the write of a copy: its frame is free.
    pub(super) fn saved(&self, buffer: Buffer, result: Result<(), IoError>) {
        let pool = &self.shared.pool;
        let frame = pool.end_write(buffer);
        if let Err(error) = result {
            let page_id = page_of(pool.frames.page_id(frame));
            self.shared.fail(Error::io(error, format!("writing page {page_id}")));
        }
        pool.frames.set_state(frame, state::FREE);
        self.give_frame(frame);
        self.write_backs.set(self.write_backs.get().saturating_sub(1));
    }

    /// Counts a page transfer that is about to begin. Returns its phase, for
    /// [`Worker::end_transfer`].
    #[inline(always)]
    pub(super) fn begin_transfer(&self) -> u64 {
        let phase = self.shared.checkpointing.epochs.phase();
        self.begin_transfer_in(phase);
        phase
    }

    /// Counts a page transfer in a phase that was looked up before, in this turn.
    #[inline(always)]
    pub(super) fn begin_transfer_in(&self, phase: u64) {
        let pending = &self.transfers[phase as usize];
        pending.set(pending.get() + 1);
    }

    #[inline(always)]
    pub(super) fn end_transfer(&self, phase: u64) {
        let pending = &self.transfers[(phase & 1) as usize];
        pending.set(pending.get() - 1);
        if pending.get() == 0 {
            self.drains.wake_all();
        }
    }

    /// Waits until no transfer of a page that the running task's worker began in a phase is in
    /// flight.
    pub(crate) async fn wait_transfers(phase: u64) {
        let mut ticket = Ticket::default();
        poll_fn(|context| {
            let wait = |worker: &Rc<Self>| {
                let is_over = worker.transfers[(phase & 1) as usize].get() == 0;
                if is_over || worker.shared.lifecycle.panicked().is_some() {
                    return Poll::Ready(());
                }
                worker.drains.wait(&mut ticket, phase, context.waker());
                Poll::Pending
            };
            current(wait).unwrap_or(Poll::Ready(()))
        })
        .await;
    }

    /// Writes the image's copy of a page that is about to be changed, or that the checkpoint writer
    /// has reached.
    ///
    /// # Errors
    /// `Need::Frame`, `Need::NoSpace`.
    pub(crate) fn save_page(&self, page: &ExclusiveFrame<'_>, epoch: Epoch) -> Result<(), Need> {
        let copy = self.take_frame().ok_or(Need::Frame)?;
        let pool = &self.shared.pool;
        pool.frames.set_state(copy, state::SCRATCH);
        let mut image = latch_free(&self.shared, copy);
        match pool.save_copy(self.shared.places(), page, image.bytes_mut(), epoch) {
            Ok(place) => {
                pool.frames.set_page_id(copy, place);
                let phase = self.begin_transfer();
                self.write_backs.set(self.write_backs.get() + 1);
                self.submit(pool.write_back(image, tag(Tag::Copy, phase)));
                Ok(())
            }
            Err(_) => {
                drop(image);
                pool.frames.set_state(copy, state::FREE);
                self.give_frame(copy);
                Err(Need::NoSpace)
            }
        }
    }
}

/// Returns the error of a page that differs from what was written in its place, if it does.
#[inline]
pub(crate) fn verify(page: &[u8], place: u64) -> Option<Error> {
    page::damage(page, place).map(|what| corrupt(&what, page.len(), page_of(place)))
}

#[cold]
fn corrupt(what: &str, page_size: usize, page_id: u64) -> Error {
    Error::with_remedy(
        ErrorKind::Corrupt,
        format!(
            "page {page_id}, at byte {} of the store's pages, {what}",
            page_id * page_size as u64
        ),
        format!(
            "the device or another program changed it; a check lists all such pages; {SALVAGE}"
        ),
        Remedy::Check,
    )
}
