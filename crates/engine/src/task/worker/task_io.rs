//! Requests that tasks make themselves, beside the trees: large values, lists, superblocks of a
//! bulk load.

use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use qpair_block::{Buffer, Completion, Op, Request};
use qpair_format::Error;
use qpair_memory::FrameIndex;

use super::{Tag, TaskRef, Worker, tag};
use crate::pool::state;
use crate::task::Reserved;

/// A request that a task made itself, in flight or done.
pub(super) enum TaskRequest {
    Vacant,
    InFlight(TaskRef),
    /// The task of the request was dropped. When the completion comes, it is dropped first, and
    /// then the pages it was for.
    Abandoned {
        _pages: Option<Rc<Reserved>>,
    },
    Done(Completion),
}

/// The requests that a worker's tasks made themselves, by ticket.
#[derive(Default)]
pub(super) struct TaskIo {
    all: Vec<TaskRequest>,
    vacant: Vec<usize>,
}

impl TaskIo {
    fn add(&mut self, request: TaskRequest) -> usize {
        let ticket = self.vacant.pop().unwrap_or(self.all.len());
        match self.all.get_mut(ticket) {
            Some(entry) => *entry = request,
            None => self.all.push(request),
        }
        ticket
    }

    /// Takes a request out; any other request may get its ticket, unless one is put back in its
    /// place.
    fn take(&mut self, ticket: usize) -> TaskRequest {
        self.vacant.push(ticket);
        std::mem::replace(&mut self.all[ticket], TaskRequest::Vacant)
    }

    /// Puts another request in the place of the one that was taken out just now.
    fn put_back(&mut self, ticket: usize, request: TaskRequest) {
        self.vacant.pop();
        self.all[ticket] = request;
    }
}

impl Worker {
    /// Submits a request of the running task. Returns the ticket for [`Worker::poll_own`].
    pub(crate) fn submit_own(&self, mut request: Request) -> usize {
        let ticket = self.task_io.borrow_mut().add(TaskRequest::InFlight(self.running.get()));
        request.tag = tag(Tag::Own, ticket as u64);
        self.submit(request);
        ticket
    }

    /// Returns the completion of a request of [`Worker::submit_own`], once it has arrived.
    pub(crate) fn poll_own(&self, ticket: usize) -> Poll<Completion> {
        let mut own = self.task_io.borrow_mut();
        match own.take(ticket) {
            TaskRequest::Done(completion) => Poll::Ready(completion),
            _ => {
                own.put_back(ticket, TaskRequest::InFlight(self.running.get()));
                Poll::Pending
            }
        }
    }

    /// Abandons a request whose task was dropped.
    pub(crate) fn abandon_own(&self, ticket: usize, pages: Option<Rc<Reserved>>) {
        let mut own = self.task_io.borrow_mut();
        match own.take(ticket) {
            TaskRequest::InFlight(_) => {
                own.put_back(ticket, TaskRequest::Abandoned { _pages: pages });
            }
            TaskRequest::Done(Completion { op, buffer: Some(buffer), .. }) => {
                drop(own);
                self.reclaim(op, buffer);
            }
            _ => {}
        }
    }

    pub(super) fn own_done(&self, ticket: usize, completion: Completion) {
        if completion.op == Op::Flush
            && let Err(error) = completion.result
        {
            // Fail whether a task waits or not: the device reports lost writes only once.
            self.shared.fail(Error::io(error, "flushing the store"));
        }
        let mut own = self.task_io.borrow_mut();
        match own.take(ticket) {
            TaskRequest::InFlight(task) => {
                own.put_back(ticket, TaskRequest::Done(completion));
                drop(own);
                self.make_ready(task);
            }
            _ => {
                drop(own);
                if let Some(buffer) = completion.buffer {
                    self.reclaim(completion.op, buffer);
                }
            }
        }
    }

    /// Takes back the memory of a request whose task was dropped.
    fn reclaim(&self, op: Op, buffer: Buffer) {
        let frames = &self.shared.pool.frames;
        if !Arc::ptr_eq(buffer.arena(), frames.arena()) {
            return; // It goes back to its arena.
        }
        let page = FrameIndex(buffer.block().0);
        if op == Op::Read {
            self.shared.pool.end_read(frames.end_read(buffer));
        } else {
            self.shared.pool.end_write(buffer);
        }
        frames.set_state(page, state::FREE);
        self.give_frame(page);
    }
}
