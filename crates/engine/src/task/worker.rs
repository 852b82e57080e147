//! The worker: one thread, one channel, one loop.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use qpair_block::{
    Buffer, ChannelStatistics, Completion, IoChannel, IoError, Op, Request, WaitOptions,
};
use qpair_memory::{Blocked, FrameIndex, Version};

use super::operation::LoadPlan;
use super::remote::{LocalFuture, Remote};
use super::tasks::{TaskRef, Tasks};
use crate::error::{Error, ErrorKind, Result};
use crate::overflow::ReservedRun;
use crate::page::{self, Node, NodeMut};
use crate::pool::state;
use crate::shared::Shared;
use crate::swip::Swip;

thread_local! {
    static CURRENT: OnceCell<Rc<Worker>> = const { OnceCell::new() };
}

/// Calls `use_it` with the worker this thread is, if it is one.
#[inline]
pub(crate) fn current<T>(use_it: impl FnOnce(&Rc<Worker>) -> T) -> Option<T> {
    CURRENT.with(|current| current.get().map(use_it))
}

/// How a worker runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerOptions {
    /// Requests in flight at most.
    pub(crate) depth: u32,
    /// Completions a busy worker likes to take at once.
    pub(crate) batch: u32,
    /// How long it waits for that many before one is enough.
    pub(crate) linger: Duration,
}

/// What became of a load that was asked for.
pub(crate) enum Loading {
    /// The read is on its way; the parent now has this version; the task is woken at the end.
    Started(Version),
    /// The parent changed: look again.
    Stale,
    /// The parent is being written back: wait for that.
    ParentInFlight,
    /// No frame is free: wait for one.
    NoFrame,
    /// The same load failed for the same task before.
    Failed(Error),
}

/// What a tag says a completion is.
enum Tag {
    /// A page load, for the task named.
    Load,
    /// A write-back.
    WriteBack,
    /// A request of a task's own.
    Own,
}

const TAG_SHIFT: u32 = 62;

fn tag(kind: Tag, value: u64) -> u64 {
    (kind as u64) << TAG_SHIFT | value
}

fn load_tag(task: TaskRef) -> u64 {
    tag(Tag::Load, u64::from(task.generation) | u64::from(task.slot) << 32)
}

/// A request of a task's own, in flight or done.
enum OwnRequest {
    Vacant,
    InFlight(TaskRef),
    /// Its task went away; what comes back is dropped, and only then the pages it was for.
    Abandoned {
        _pages: Option<Rc<ReservedRun>>,
    },
    Done(Completion),
}

/// A worker's state; only its own thread has it.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    remote: Arc<Remote>,
    options: WorkerOptions,
    channel: RefCell<Box<dyn IoChannel>>,
    tasks: RefCell<Tasks>,
    running: Cell<TaskRef>,
    /// Requests the channel had no room for.
    backlog: RefCell<VecDeque<Request>>,
    /// Requests submitted since the doorbell rang.
    staged: Cell<u32>,
    free: RefCell<Vec<FrameIndex>>,
    frame_waiters: RefCell<VecDeque<TaskRef>>,
    load_errors: RefCell<Vec<(TaskRef, u64, Error)>>,
    broken: RefCell<Vec<FrameIndex>>,
    own: RefCell<Vec<OwnRequest>>,
    /// Turns in a row in which tasks waited for frames and none came free.
    starved: Cell<u32>,
    write_backs: Cell<u32>,
    /// Operations the running task has begun since it was given the worker.
    charged: Cell<u32>,
}

/// Operations a task may begin before others get their turn.
const CHARGE_MAX: u32 = 64;

impl Worker {
    /// Runs a worker on this thread until it is told to stop and has no tasks left. `started` is told once
    /// the channel is open, or why it is not.
    pub(crate) fn run(
        shared: Arc<Shared>,
        remote: Arc<Remote>,
        options: WorkerOptions,
        channel: Box<dyn IoChannel>,
    ) -> ChannelStatistics {
        let worker = Rc::new(Self {
            running: Cell::new(TaskRef { slot: u32::MAX, generation: 0 }),
            backlog: RefCell::default(),
            staged: Cell::new(0),
            free: RefCell::new(Vec::with_capacity(2 * shared.pool.local_max + 64)),
            frame_waiters: RefCell::default(),
            load_errors: RefCell::default(),
            broken: RefCell::default(),
            own: RefCell::default(),
            starved: Cell::new(0),
            write_backs: Cell::new(0),
            charged: Cell::new(0),
            tasks: RefCell::default(),
            channel: RefCell::new(channel),
            shared,
            remote,
            options,
        });
        CURRENT.with(|current| {
            let _ = current.set(worker.clone());
        });
        worker.turns();
        let statistics = worker.channel.borrow().statistics();
        worker.shared.pool.give_free(&mut worker.free.borrow_mut(), 0);
        statistics
    }

    #[inline(always)]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn remote(&self) -> &Arc<Remote> {
        &self.remote
    }

    /// Counters of this worker's channel.
    pub(crate) fn statistics(&self) -> ChannelStatistics {
        self.channel.borrow().statistics()
    }

    /// Starts a task.
    pub(crate) fn spawn(&self, future: LocalFuture) {
        self.tasks.borrow_mut().spawn(future, &self.remote);
    }

    /// Whether another task could run now.
    #[inline(always)]
    pub(crate) fn has_ready(&self) -> bool {
        !self.tasks.borrow().ready.is_empty()
    }

    #[inline]
    pub(crate) fn make_ready(&self, task: TaskRef) {
        self.tasks.borrow_mut().make_ready(task);
    }

    /// Notes that the running task begins an operation; whether it must yield first.
    #[inline(always)]
    pub(crate) fn charge(&self) -> bool {
        let charged = self.charged.get() + 1;
        self.charged.set(charged);
        charged > CHARGE_MAX
    }

    /// Puts the running task at the end of the ready queue.
    #[inline]
    pub(crate) fn requeue(&self) {
        self.make_ready(self.running.get());
    }

    fn turns(self: &Rc<Self>) {
        let mut completions = Vec::with_capacity(self.options.depth as usize + 1);
        let mut stop = false;
        let (mut unkicked_turns, mut turns_since_poll) = (0, 0);
        loop {
            if self.remote.is_pending() {
                stop |= self.take_inbox();
            }
            self.run_ready();
            self.make_frames_free();
            self.drop_broken();
            self.drain_backlog();
            if self.has_ready() || self.remote.is_pending() {
                // Gather requests over a few turns: one doorbell for many.
                unkicked_turns += 1;
                let staged = self.staged.get();
                if staged >= 2 * self.options.batch || (staged > 0 && unkicked_turns >= 16) {
                    self.channel.borrow_mut().kick();
                    self.staged.set(0);
                    unkicked_turns = 0;
                }
                // Completions can wait a little while there is other work; each look may be a system call.
                turns_since_poll += 1;
                if turns_since_poll >= 8 {
                    turns_since_poll = 0;
                    if self.channel.borrow().in_flight() > 0 {
                        self.channel.borrow_mut().poll(&mut completions);
                    }
                }
            } else {
                if stop && self.tasks.borrow().alive == 0 && self.channel.borrow().in_flight() == 0
                {
                    break;
                }
                self.sleep(&mut completions, stop);
                (unkicked_turns, turns_since_poll) = (0, 0);
            }
            for completion in completions.drain(..) {
                self.complete(completion);
            }
        }
        self.remote.take(|inbox| inbox.closed = true);
        // Futures are dropped outside of the borrow: they may use the worker.
        let left = self.tasks.borrow_mut().clear();
        drop(left);
    }

    fn take_inbox(&self) -> bool {
        let (mut woken, mut spawned, mut stop) = (Vec::new(), Vec::new(), false);
        self.remote.take(|inbox| {
            std::mem::swap(&mut woken, &mut inbox.woken);
            std::mem::swap(&mut spawned, &mut inbox.spawned);
            stop = inbox.stop;
        });
        for task in woken {
            self.make_ready(task);
        }
        for make in spawned {
            self.spawn(make());
        }
        stop
    }

    /// Runs what is ready now; tasks that become ready meanwhile get the next turn.
    fn run_ready(&self) {
        let mut budget = self.tasks.borrow().ready.len();
        while budget > 0 {
            budget -= 1;
            let Some((task, mut body)) = self.tasks.borrow_mut().next() else { break };
            self.running.set(task);
            self.charged.set(0);
            let mut context = Context::from_waker(&body.waker);
            let polled = catch_unwind(AssertUnwindSafe(|| body.future.as_mut().poll(&mut context)));
            match polled {
                Ok(Poll::Pending) => self.tasks.borrow_mut().put_back(task, body),
                // A panic ends its task only; whoever waits for the task is told by its promise.
                Ok(Poll::Ready(())) | Err(_) => {
                    drop(body);
                    self.tasks.borrow_mut().finish(task);
                    if !self.load_errors.borrow().is_empty() {
                        self.load_errors.borrow_mut().retain(|(of, ..)| *of != task);
                    }
                }
            }
        }
    }

    fn sleep(&self, completions: &mut Vec<Completion>, stop: bool) {
        let wake = &self.remote.wake;
        wake.prepare();
        if self.remote.is_pending() {
            wake.awake();
            return;
        }
        let in_flight = self.channel.borrow().in_flight();
        let starving = !self.frame_waiters.borrow().is_empty() || !self.broken.borrow().is_empty();
        let want = (in_flight / 4).clamp(1, self.options.batch);
        let linger = if want > 1 { self.options.linger } else { Duration::ZERO };
        // Frames may come free on other workers, without a message: look again soon.
        let timeout = (starving || (stop && in_flight == 0)).then_some(Duration::from_millis(1));
        self.channel.borrow_mut().wait(completions, WaitOptions { want, linger, timeout });
        self.staged.set(0);
        wake.awake();
    }

    /// Hands a request to the channel, or keeps it until there is room.
    pub(crate) fn submit(&self, request: Request) {
        let mut backlog = self.backlog.borrow_mut();
        if backlog.is_empty() {
            match self.channel.borrow_mut().submit(request) {
                Ok(()) => self.staged.set(self.staged.get() + 1),
                Err(request) => backlog.push_back(request),
            }
        } else {
            backlog.push_back(request);
        }
    }

    fn drain_backlog(&self) {
        let mut backlog = self.backlog.borrow_mut();
        while let Some(request) = backlog.pop_front() {
            match self.channel.borrow_mut().submit(request) {
                Ok(()) => self.staged.set(self.staged.get() + 1),
                Err(request) => {
                    backlog.push_front(request);
                    break;
                }
            }
        }
    }

    /// Takes a free frame from the worker's own store of them.
    pub(crate) fn take_frame(&self) -> Option<FrameIndex> {
        let mut free = self.free.borrow_mut();
        if free.is_empty() {
            self.shared.pool.take_free((self.shared.pool.local_max / 2).max(1), &mut free);
        }
        free.pop()
    }

    /// Gives a frame back.
    pub(crate) fn give_frame(&self, frame: FrameIndex) {
        let mut free = self.free.borrow_mut();
        free.push(frame);
        if free.len() > self.shared.pool.local_max {
            self.shared.pool.give_free(&mut free, self.shared.pool.local_max / 2);
        }
    }

    /// Parks the running task until a frame may be free; an error if that is hopeless.
    pub(crate) fn wait_for_frame(&self) -> Poll<Error> {
        /// Turns of a millisecond without any frame coming free.
        const STARVED_MAX: u32 = 2000;
        if self.starved.get() > STARVED_MAX {
            self.starved.set(0);
            return Poll::Ready(match self.shared.failure() {
                Some(_) => self.shared.check_writable().err().unwrap_or_else(no_memory),
                None => no_memory(),
            });
        }
        self.frame_waiters.borrow_mut().push_back(self.running.get());
        Poll::Pending
    }

    /// Evicts when frames run low, and wakes those who wait for one.
    fn make_frames_free(&self) {
        let pool = &self.shared.pool;
        let waiting = self.frame_waiters.borrow().len();
        let at_hand = self.free.borrow().len();
        if waiting == 0 && at_hand + pool.free_count() >= pool.free_low {
            return;
        }
        let pending = self.write_backs.get() as usize;
        let wanted = (pool.local_max / 2).max(1);
        let mut writes = Vec::new();
        let mut freed = std::mem::take(&mut *self.free.borrow_mut());
        let before = freed.len();
        // As many writes in flight as the pool can spare; reads must find room on the device too.
        let may_write = self.shared.failure().is_none() && pending < pool.local_max;
        let write_tag = tag(Tag::WriteBack, 0);
        pool.sweep(wanted, (wanted * 16).max(512), write_tag, may_write, &mut freed, &mut writes);
        let made = freed.len() - before;
        *self.free.borrow_mut() = freed;
        self.write_backs.set(self.write_backs.get() + writes.len() as u32);
        let progress = made > 0 || !writes.is_empty() || self.channel.borrow().in_flight() > 0;
        for request in writes {
            self.submit(request);
        }
        if self.free.borrow().len() > 2 * pool.local_max {
            pool.give_free(&mut self.free.borrow_mut(), pool.local_max);
        }
        self.starved.set(if progress || waiting == 0 { 0 } else { self.starved.get() + 1 });
        let hopeless = self.starved.get() > 2000;
        let available = self.free.borrow().len() + pool.free_count();
        let wake = if hopeless { waiting } else { waiting.min(available) };
        for _ in 0..wake {
            let Some(task) = self.frame_waiters.borrow_mut().pop_front() else { break };
            self.make_ready(task);
        }
    }

    /// Takes pages that could not be loaded out of their parents.
    fn drop_broken(&self) {
        if self.broken.borrow().is_empty() {
            return;
        }
        let mut broken = std::mem::take(&mut *self.broken.borrow_mut());
        broken.retain(|frame| match self.shared.pool.drop_broken(*frame) {
            Some(true) => {
                self.give_frame(*frame);
                false
            }
            Some(false) => false,
            None => true,
        });
        self.broken.borrow_mut().append(&mut broken);
    }

    /// Begins to load a page for the running task.
    pub(crate) fn load(&self, plan: LoadPlan) -> Loading {
        let task = self.running.get();
        if !self.load_errors.borrow().is_empty()
            && let Some(error) = self.take_load_error(task, plan.page_id)
        {
            return Loading::Failed(error);
        }
        if plan.page_id >= self.shared.space.high_water() {
            return Loading::Failed(Error::new(
                ErrorKind::Corrupt,
                format!(
                    "a reference to page {} of a store of {} pages",
                    plan.page_id,
                    self.shared.space.high_water()
                ),
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
        // Between the version and the latch nothing changed, so the reference is still cold.
        NodeMut::new(parent.bytes_mut()).set_child(plan.position, Swip::Hot(frame).encode());
        let child = latch_free(&self.shared, frame);
        frames.set_page_id(frame, plan.page_id);
        frames.set_parent_hint(frame, Some((plan.parent, plan.position)));
        frames.set_dirty(frame, false);
        frames.set_state(frame, state::HOT);
        let buffer = child.begin_read();
        let version = parent.release();
        let len_bytes = buffer.len() as u32;
        self.submit(Request::read(
            self.shared.offset_bytes(plan.page_id),
            len_bytes,
            buffer,
            load_tag(task),
        ));
        Loading::Started(version)
    }

    fn take_load_error(&self, task: TaskRef, page_id: u64) -> Option<Error> {
        let mut errors = self.load_errors.borrow_mut();
        let position = errors.iter().position(|(of, page, _)| *of == task && *page == page_id)?;
        Some(errors.swap_remove(position).2)
    }

    #[inline]
    fn complete(&self, completion: Completion) {
        let value = completion.tag & ((1 << TAG_SHIFT) - 1);
        match (completion.tag >> TAG_SHIFT, completion.buffer) {
            (0, Some(buffer)) => {
                let task = TaskRef { slot: (value >> 32) as u32, generation: value as u32 };
                self.loaded(task, buffer, completion.result);
            }
            (1, Some(buffer)) => self.written(buffer, completion.result),
            (_, buffer) => {
                let completion = Completion { buffer, ..completion };
                self.own_done(value as usize, completion);
            }
        }
    }

    #[inline]
    fn loaded(&self, task: TaskRef, buffer: Buffer, result: Result<(), IoError>) {
        let pool = &self.shared.pool;
        let page = pool.frames.end_read(buffer);
        let frame = page.index();
        let page_id = pool.frames.page_id(frame);
        let fault = match result {
            Ok(()) => verify(page.as_slice(), page.bytes(), page_id),
            Err(error) => Some(Error::io(error, format!("reading page {page_id}"))),
        };
        if let Some(error) = fault {
            pool.frames.set_state(frame, state::BROKEN);
            self.load_errors.borrow_mut().push((task, page_id, error));
            self.broken.borrow_mut().push(frame);
        }
        pool.end_read(page);
        self.make_ready(task);
    }

    fn written(&self, buffer: Buffer, result: Result<(), IoError>) {
        let pool = &self.shared.pool;
        let frame = FrameIndex(buffer.block().0);
        let page_id = pool.frames.page_id(frame);
        match result {
            // While the write is in flight nobody can change the page: it is clean now.
            Ok(()) => pool.frames.set_dirty(frame, false),
            Err(error) => self.shared.fail(Error::io(error, format!("writing page {page_id}"))),
        }
        let frame = pool.end_write(buffer);
        self.write_backs.set(self.write_backs.get().saturating_sub(1));
        if result.is_ok()
            && let Some(frame) = pool.written(frame)
        {
            self.give_frame(frame);
        }
    }

    /// Submits a request of the running task's own; the ticket is for [`Worker::poll_own`].
    pub(crate) fn submit_own(&self, mut request: Request) -> usize {
        let mut own = self.own.borrow_mut();
        let entry = OwnRequest::InFlight(self.running.get());
        let ticket = match own.iter().position(|request| matches!(request, OwnRequest::Vacant)) {
            Some(vacant) => {
                own[vacant] = entry;
                vacant
            }
            None => {
                own.push(entry);
                own.len() - 1
            }
        };
        drop(own);
        request.tag = tag(Tag::Own, ticket as u64);
        self.submit(request);
        ticket
    }

    /// The completion of an own request, once it is there.
    pub(crate) fn poll_own(&self, ticket: usize) -> Poll<Completion> {
        let mut own = self.own.borrow_mut();
        match std::mem::replace(&mut own[ticket], OwnRequest::Vacant) {
            OwnRequest::Done(completion) => Poll::Ready(completion),
            _ => {
                own[ticket] = OwnRequest::InFlight(self.running.get());
                Poll::Pending
            }
        }
    }

    /// Lets go of an own request whose task went away.
    pub(crate) fn abandon_own(&self, ticket: usize, pages: Option<Rc<ReservedRun>>) {
        let mut own = self.own.borrow_mut();
        match std::mem::replace(&mut own[ticket], OwnRequest::Vacant) {
            OwnRequest::InFlight(_) => own[ticket] = OwnRequest::Abandoned { _pages: pages },
            OwnRequest::Done(Completion { op, buffer: Some(buffer), .. }) => {
                drop(own);
                self.reclaim(op, buffer);
            }
            _ => {}
        }
    }

    fn own_done(&self, ticket: usize, completion: Completion) {
        let mut own = self.own.borrow_mut();
        match std::mem::replace(&mut own[ticket], OwnRequest::Vacant) {
            OwnRequest::InFlight(task) => {
                if completion.op == Op::Flush
                    && let Err(error) = completion.result
                {
                    self.shared.fail(Error::io(error, "flushing the store"));
                }
                own[ticket] = OwnRequest::Done(completion);
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
}

impl Worker {
    /// Takes back the memory of a request whose task went away.
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

/// Latches a frame that is free: nobody else has a use for it, but a sweep may look at it for a moment.
pub(crate) fn latch_free(shared: &Shared, frame: FrameIndex) -> qpair_memory::ExclusiveFrame<'_> {
    loop {
        if let Ok(page) = shared.pool.frames.try_exclusive(frame) {
            return page;
        }
        std::hint::spin_loop();
    }
}

fn no_memory() -> Error {
    Error::with_hint(
        ErrorKind::NoMemory,
        "no page can leave memory: all are in use by operations under way",
        "give the store more memory, or run fewer tasks at once",
    )
}

/// What is wrong with a page that came from the device, if anything.
#[inline]
fn verify(bytes: &[u8], page: qpair_memory::RacyBytes<'_>, page_id: u64) -> Option<Error> {
    let node = Node::new(page);
    let sum = page::checksum(bytes);
    let stored = page.load_u32(page::field::CHECKSUM);
    if sum == stored && node.page_id() == page_id {
        return None;
    }
    Some(corrupt(bytes, stored, sum, node.page_id(), page_id))
}

/// The error for a page whose checksum or id is wrong.
#[cold]
pub(crate) fn corrupt(bytes: &[u8], stored: u32, sum: u32, stored_id: u64, page_id: u64) -> Error {
    let what = if bytes.iter().all(|byte| *byte == 0) {
        "is all zeroes".to_owned()
    } else if stored != sum {
        format!("has checksum {stored:08x}, its bytes give {sum:08x}")
    } else {
        format!("says it is page {stored_id}")
    };
    Error::with_hint(
        ErrorKind::Corrupt,
        format!(
            "page {page_id}, at byte {} of the store's pages, {what}",
            page_id * bytes.len() as u64
        ),
        "the device or something else changed it; `qpair check` lists all such pages; restore the store from its source",
    )
}
