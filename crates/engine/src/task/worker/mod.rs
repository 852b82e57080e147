//! The worker: one thread, one channel, one loop.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use qpair_block::{ChannelStatistics, Completion, IoChannel, Request, WaitOptions};
use qpair_memory::FrameIndex;

use super::remote::{LocalFuture, Remote};
use super::tasks::{TaskRef, Tasks};
use crate::error::Error;
use crate::shared::Shared;

mod frames;
mod own;
mod paging;

pub(crate) use frames::latch_free;
pub(crate) use paging::{Loading, verify};

use own::OwnRequest;

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
            self.prefetch(&completions);
            for completion in completions.drain(..) {
                self.complete(completion);
            }
        }
        self.remote.take(|inbox| inbox.closed = true);
        // Futures are dropped outside of the borrow: they may use the worker.
        let left = self.tasks.borrow_mut().clear();
        drop(left);
    }

    /// Asks for the lines that the ends of these requests will touch; they were last used when the requests began.
    fn prefetch(&self, completions: &[Completion]) {
        let frames = &self.shared.pool.frames;
        for buffer in completions.iter().filter_map(|completion| completion.buffer.as_ref()) {
            // Memory of another arena has other numbers; then this fetches something of no use, and no more.
            let frame = FrameIndex(buffer.block().0);
            if frames.contains(frame) {
                frames.prefetch(frame, 2);
            }
        }
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
}
