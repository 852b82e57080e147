//! The worker: one channel, one loop; a thread of its own, unless it is stepped
//! ([`super::stepped`]).

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use qpair_block::time::SimClock;
use qpair_block::{Arena, ChannelStatistics, IoChannel, Request};
use qpair_format::Error;
use qpair_memory::FrameIndex;

use super::stepped;
use super::tasks::Tasks;
use super::upkeep::Upkeep;
use crate::panics::guarded_future;
use crate::readers::RecordReader;
use crate::shared::Shared;
use crate::sync::{LocalFuture, TaskRef, Waiters, WorkerHandle};

mod cycles;
mod deadlines;
mod frames;
mod limiter;
mod log;
mod paging;
mod reads;
mod request;
mod task_io;
mod turn;

pub(crate) use deadlines::Deadline;
pub(crate) use frames::latch_free;
pub(crate) use log::log_arena;
pub(crate) use paging::{Loading, verify};
pub(crate) use turn::{Pace, Turn};

use cycles::Cycles;
use deadlines::Deadlines;
use reads::Reads;
use request::{Tag, load_tag, tag};
use task_io::TaskIo;

thread_local! {
    static CURRENT: OnceCell<Rc<Worker>> = const { OnceCell::new() };
}

/// Calls `use_it` with the worker that this thread is, or is stepping at the moment, if there is
/// one.
#[inline]
pub(crate) fn current<T>(use_it: impl FnOnce(&Rc<Worker>) -> T) -> Option<T> {
    CURRENT.with(|current| {
        let stepping;
        let worker = match current.get() {
            Some(worker) => worker,
            None => {
                stepping = stepped::stepping()?;
                &stepping
            }
        };
        Some(use_it(worker))
    })
}

#[derive(Clone)]
pub(crate) struct WorkerOptions {
    pub(crate) depth: u32,
    /// The maximum number of page reads among them; 0 leaves the number to the limiter.
    pub(crate) reads: u32,
    /// The number of completions that a busy worker takes at once, if possible.
    pub(crate) batch: u32,
    /// The time that a worker waits for that many completions before one is enough.
    pub(crate) linger: Duration,
    /// Whether to measure where the time is spent.
    pub(crate) cycles: bool,
    pub(crate) clock: Option<SimClock>,
    pub(crate) upkeep: Arc<dyn Upkeep>,
}

/// The state of a worker, which only the worker's own thread accesses.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    handle: Arc<WorkerHandle>,
    pub(crate) number: usize,
    options: WorkerOptions,
    channel: RefCell<Box<dyn IoChannel>>,
    log: log::WorkerLog,
    log_arena: Arc<Arena>,
    tasks: RefCell<Tasks>,
    running: Cell<TaskRef>,
    /// Requests that the channel had no room for.
    backlog: RefCell<VecDeque<Request>>,
    reads: Reads,
    /// Requests submitted since the doorbell rang.
    staged: Cell<u32>,
    free: RefCell<Vec<FrameIndex>>,
    frame_waiters: RefCell<VecDeque<TaskRef>>,
    load_errors: RefCell<Vec<(TaskRef, u64, Error)>>,
    /// Scratch memory for a page's fences.
    fence: Cell<Vec<u8>>,
    broken: RefCell<Vec<FrameIndex>>,
    task_io: RefCell<TaskIo>,
    /// The number of consecutive turns in which tasks waited for frames and no frame became free.
    starved: Cell<u32>,
    write_backs: Cell<u32>,
    /// The number of page transfers in flight, by the phase in which they began.
    transfers: [Cell<u32>; 2],
    /// The tasks that wait for the end of the transfers of a phase.
    drains: Waiters,
    /// The number of operations that the running task has begun since it was given the worker.
    spent: Cell<u32>,
    /// The number of lookups begun in this turn.
    lookups: Cell<u32>,
    /// The tag of the load that is being timed, and the time at which it began.
    timed: Cell<Option<(u64, Instant)>>,
    /// The waker of the running task, and those of futures within it that wait for this worker with
    /// another waker.
    running_waker: Cell<*const ()>,
    within: RefCell<Vec<Waker>>,
    /// The number of tasks that wait for tasks of other workers: for rows or commits.
    waits_for_others: Cell<u32>,
    deadlines: Deadlines,
    cycles: Cycles,
    panics: Cell<u32>,
    /// The reader of checkpoint records of a store beside a writer.
    records: RefCell<Option<RecordReader>>,
    /// Whether all tasks were woken since the engine panicked.
    told_of_panic: Cell<bool>,
}

/// A guard: while it exists, a task waits for tasks of other workers, see
/// [`Worker::wait_for_others`].
pub(crate) struct WaitsForOthers {
    worker: Rc<Worker>,
    task: TaskRef,
}

impl Drop for WaitsForOthers {
    fn drop(&mut self) {
        self.worker.waits_for_others.set(self.worker.waits_for_others.get() - 1);
        self.worker.tasks.borrow_mut().set_urgent(self.task, false);
    }
}

/// The number of operations that a task may begin before other tasks get their turn.
const BUDGET_OPERATIONS: u32 = 64;
/// The number of operations for a task that holds what others may come to wait for: stopping it
/// would make them wait for a whole turn.
const BUDGET_AT_ONCE_OPERATIONS: u32 = 1024;

impl Worker {
    /// Creates a worker that has not begun.
    pub(crate) fn new(
        shared: Arc<Shared>,
        handle: Arc<WorkerHandle>,
        options: WorkerOptions,
        channel: Box<dyn IoChannel>,
        log_arena: Arc<Arena>,
    ) -> Rc<Self> {
        let number =
            shared.worker_handles.iter().position(|of| Arc::ptr_eq(of, &handle)).unwrap_or(0);
        let reads = Reads::new(options.reads, options.depth);
        shared.counters.of(number).set_reads_max(reads.limit());
        Rc::new(Self {
            number,
            log: log::WorkerLog::default(),
            log_arena,
            running: Cell::new(TaskRef { slot: u32::MAX, generation: 0 }),
            backlog: RefCell::default(),
            reads,
            staged: Cell::new(0),
            free: RefCell::new(Vec::with_capacity(2 * shared.pool.local_max() + 64)),
            frame_waiters: RefCell::default(),
            load_errors: RefCell::default(),
            fence: Cell::default(),
            broken: RefCell::default(),
            task_io: RefCell::default(),
            starved: Cell::new(0),
            write_backs: Cell::new(0),
            transfers: Default::default(),
            drains: Waiters::default(),
            spent: Cell::new(0),
            lookups: Cell::new(0),
            timed: Cell::new(None),
            running_waker: Cell::new(std::ptr::null()),
            within: RefCell::default(),
            waits_for_others: Cell::new(0),
            deadlines: Deadlines::new(options.clock.clone()),
            cycles: Cycles::new(options.cycles),
            panics: Cell::new(0),
            records: RefCell::default(),
            told_of_panic: Cell::new(false),
            tasks: RefCell::default(),
            channel: RefCell::new(channel),
            shared,
            handle,
            options,
        })
    }

    /// Runs a worker on this thread until it is told to stop and has no tasks left.
    pub(crate) fn run(
        shared: Arc<Shared>,
        handle: Arc<WorkerHandle>,
        options: WorkerOptions,
        channel: Box<dyn IoChannel>,
        log_arena: Arc<Arena>,
    ) -> ChannelStatistics {
        let worker = Self::new(shared, handle, options, channel, log_arena);
        CURRENT.with(|current| {
            let _ = current.set(worker.clone());
        });
        worker.turns();
        worker.end()
    }

    #[inline(always)]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn shared_arc(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    pub(crate) fn upkeep(&self) -> Arc<dyn Upkeep> {
        self.options.upkeep.clone()
    }

    pub(crate) fn handle(&self) -> &Arc<WorkerHandle> {
        &self.handle
    }

    pub(crate) fn statistics(&self) -> ChannelStatistics {
        self.channel.borrow().statistics()
    }

    /// Starts a task of the engine.
    pub(crate) fn spawn_own(&self, future: impl Future<Output = ()> + 'static) {
        let shared = self.shared.clone();
        self.spawn(Box::pin(async move { guarded_future(&shared, future).await }));
    }

    fn spawn(&self, future: LocalFuture) {
        self.tasks.borrow_mut().spawn(future, &self.handle);
    }

    #[inline(always)]
    pub(crate) fn has_ready(&self) -> bool {
        self.tasks.borrow().ready_len() > 0
    }

    #[inline]
    pub(crate) fn make_ready(&self, task: TaskRef) {
        self.tasks.borrow_mut().make_ready(task);
    }

    /// Notes that the running task begins an operation. Returns whether the task must yield first.
    /// `may_wait` says that no other task can be waiting for it.
    #[inline(always)]
    pub(crate) fn spend_budget(&self, may_wait: bool) -> bool {
        let spent = self.spent.get() + 1;
        self.spent.set(spent);
        spent > if may_wait { BUDGET_OPERATIONS } else { BUDGET_AT_ONCE_OPERATIONS }
    }

    #[inline(always)]
    pub(crate) fn count_lookup(&self) {
        self.lookups.set(self.lookups.get() + 1);
    }

    /// Puts the running task at the end of the ready queue.
    #[inline]
    pub(crate) fn requeue(&self) {
        self.make_ready(self.running.get());
    }

    /// Lets a few other tasks run before the running task tries again: it holds what others may
    /// come to wait for.
    pub(crate) fn requeue_urgent(&self) {
        self.tasks.borrow_mut().make_ready_urgent(self.running.get());
    }

    /// Whether tasks wait for something that may come without a message, such as a frame that
    /// another worker frees.
    pub(crate) fn is_starving(&self) -> bool {
        !self.frame_waiters.borrow().is_empty() || !self.broken.borrow().is_empty()
    }

    /// Ends a worker: no thread can reach it from here on, and its remaining tasks are dropped.
    pub(crate) fn end(&self) -> ChannelStatistics {
        let mut left = Vec::new();
        self.handle.take(|inbox| {
            inbox.closed = true;
            std::mem::swap(&mut left, &mut inbox.spawned);
        });
        drop(left);
        // Futures are dropped outside of the borrow: they may use the worker.
        let left = self.tasks.borrow_mut().clear();
        drop(left);
        let statistics = self.channel.borrow().statistics();
        self.shared.pool.give_free(&mut self.free.borrow_mut(), 0);
        statistics
    }

    /// Registers a future of the running task that waits for this worker, which wakes tasks. Code
    /// that gathers futures may poll only those whose own waker was called.
    #[inline]
    pub(crate) fn keep_waker<T>(&self, waker: &Waker, polled: Poll<T>) -> Poll<T> {
        if polled.is_pending() && waker.data() != self.running_waker.get() {
            self.within.borrow_mut().push(waker.clone());
        }
        polled
    }

    /// Notes that the running task waits for tasks of other workers, until the guard is dropped.
    pub(crate) fn wait_for_others(self: &Rc<Self>) -> WaitsForOthers {
        self.waits_for_others.set(self.waits_for_others.get() + 1);
        let task = self.running.get();
        self.tasks.borrow_mut().set_urgent(task, true);
        WaitsForOthers { worker: self.clone(), task }
    }
}
