//! Awaitable requests of tasks, the frames that are their memory, and the pages that they are for.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use qpair_block::{Completion, Request};
use qpair_format::large::Extents;
use qpair_format::{Error, ErrorKind, Result};
use qpair_memory::FrameIndex;

use super::worker::{current, latch_free, verify};
use crate::pool::state;
use crate::shared::Shared;

/// Waits for a free frame, marked as memory for a transfer.
pub(crate) async fn scratch_frame() -> Result<FrameIndex> {
    poll_fn(|context| {
        current(|worker| match worker.take_frame() {
            Some(frame) => {
                worker.shared().pool.frames.set_state(frame, state::SCRATCH);
                Poll::Ready(Ok(frame))
            }
            None => worker.keep_waker(context.waker(), worker.wait_for_frame().map(Err)),
        })
        .unwrap_or_else(|| {
            Poll::Ready(Err(Error::new(ErrorKind::Invalid, "the call was not made on a worker")))
        })
    })
    .await
}

/// Returns a free frame for a transfer if one is at hand. A task with transfers in flight must not
/// wait for memory that only these, and transfers like them, may free.
pub(crate) fn scratch_frame_now() -> Option<FrameIndex> {
    current(|worker| {
        let frame = worker.take_frame()?;
        worker.shared().pool.frames.set_state(frame, state::SCRATCH);
        Some(frame)
    })
    .flatten()
}

/// Frees a frame that [`scratch_frame`] gave.
pub(crate) fn give_scratch(frame: FrameIndex) {
    current(|worker| {
        worker.shared().pool.frames.set_state(frame, state::FREE);
        worker.give_frame(frame);
    });
}

pub(crate) struct Transfer {
    ticket: Option<usize>,
    /// Pages that must not be used again before the request is done.
    pages: Option<Rc<Reserved>>,
}

impl Transfer {
    /// Submits a write to pages that are not freed before the write is done, like
    /// [`Transfer::submit`].
    pub(crate) fn submit_to(pages: Rc<Reserved>, request: Request) -> Self {
        let mut transfer = Self::submit(request);
        transfer.pages = Some(pages);
        transfer
    }

    /// Submits a request. Does nothing on a thread that is not a worker.
    pub(crate) fn submit(request: Request) -> Self {
        Self { ticket: current(|worker| worker.submit_own(request)), pages: None }
    }

    /// Begins to read a page into a frame that [`scratch_frame`] gave.
    pub(crate) fn read(shared: &Shared, frame: FrameIndex, place: u64) -> Self {
        let page = latch_free(shared, frame);
        shared.pool.frames.set_page_id(frame, place);
        let buffer = page.begin_read();
        Self::submit(Request::read(shared.offset_bytes(place), buffer.len() as u32, buffer, 0))
    }

    pub(crate) async fn done(mut self) -> Result<Completion> {
        let Some(ticket) = self.ticket else {
            return Err(Error::new(ErrorKind::Invalid, "the call was not made on a worker"));
        };
        let completion = poll_fn(|context| {
            current(|worker| worker.keep_waker(context.waker(), worker.poll_own(ticket)))
                .unwrap_or(Poll::Pending)
        })
        .await;
        self.ticket = None;
        Ok(completion)
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let pages = self.pages.take();
            current(|worker| worker.abandon_own(ticket, pages));
        }
    }
}

/// Reserved pages, which are freed on drop unless they are kept.
#[derive(Debug)]
pub(crate) struct Reserved {
    extents: RefCell<Extents>,
    kept: Cell<bool>,
}

impl Reserved {
    /// Takes ownership of pages that were reserved on this worker's store.
    pub(crate) fn of(extents: Extents) -> Self {
        Self { extents: RefCell::new(extents), kept: Cell::new(false) }
    }

    pub(crate) fn extents(&self) -> Extents {
        self.extents.borrow().clone()
    }

    pub(crate) fn page_id(&self) -> u64 {
        self.extents.borrow().first_page()
    }

    /// Gives back the pages of a run behind the first `pages`.
    pub(crate) fn shrink(&self, shared: &Shared, pages: u64) {
        if let Extents::Run(run) = &mut *self.extents.borrow_mut() {
            let end = run.start + pages;
            shared.space.free(end, run.end - end);
            run.end = end;
        }
    }

    /// Keeps the pages, because the trees refer to them now.
    pub(crate) fn keep(&self, shared: &Shared) {
        shared.link_extents(&self.extents.borrow());
        self.kept.set(true);
    }

    /// Keeps the pages, although nothing in the trees refers to them yet. The caller gives them
    /// back.
    pub(crate) fn keep_unlinked(&self) {
        self.kept.set(true);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        current(|worker| {
            let shared = worker.shared();
            if !self.kept.get() {
                shared.free_extents(&self.extents.borrow());
            }
            shared.space.leave();
        });
    }
}

/// Reads a page without the pool, and checks its checksum and id.
pub(crate) async fn read_page(shared: &Shared, page_id: u64) -> Result<Vec<u8>> {
    let frame = scratch_frame().await?;
    let completion = Transfer::read(shared, frame, page_id).done().await?;
    let Some(buffer) = completion.buffer else {
        return Err(Error::new(ErrorKind::Io, "a read came back without its memory"));
    };
    let page = shared.pool.frames.end_read(buffer);
    let bytes = page.as_slice().to_vec();
    shared.pool.end_read(page);
    give_scratch(frame);
    completion.result.map_err(|error| Error::io(error, format!("reading page {page_id}")))?;
    match verify(&bytes, page_id) {
        Some(error) => Err(error),
        None => Ok(bytes),
    }
}
