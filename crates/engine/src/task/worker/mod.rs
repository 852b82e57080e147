//! The worker: one channel, one loop; a thread of its own, unless it is stepped
//! ([`super::stepped`]).

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use qpair_block::time::SimClock;
use qpair_block::{Arena, ChannelStatistics, Completion, IoChannel, Request, WaitOptions};
use qpair_format::Error;
use qpair_memory::FrameIndex;

use super::stepped;
use super::tasks::Tasks;
use super::upkeep::Upkeep;
use crate::canary::Canary;
use crate::metrics::Part;
use crate::panics::guarded_future;
use crate::shared::Shared;
use crate::sync::{LocalFuture, TaskRef, Waiters, WorkerHandle};

mod cycles;
mod deadlines;
mod frames;
mod limiter;
mod log;
mod paging;
mod reads;
mod task_io;

pub(crate) use deadlines::Deadline;
pub(crate) use frames::latch_free;
pub(crate) use log::log_arena;
pub(crate) use paging::{Loading, verify};

use cycles::Cycles;
use deadlines::Deadlines;
use reads::Reads;
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

/// The kind of a completion, kept in its tag.
enum Tag {
    /// A page load, for the task named.
    Load,
    /// A write-back.
    WriteBack,
    /// A request of a task's own.
    Own,
    /// The write of a copy of a page.
    Copy,
    Log,
}

const TAG_SHIFT: u32 = 61;
/// The bit of a load's tag that holds the phase in which the load is counted.
const LOAD_PHASE_SHIFT: u32 = 60;

fn tag(kind: Tag, value: u64) -> u64 {
    (kind as u64) << TAG_SHIFT | value
}

fn load_tag(task: TaskRef, phase: u64) -> u64 {
    let task = u64::from(task.generation) | u64::from(task.slot) << 32;
    tag(Tag::Load, task | phase << LOAD_PHASE_SHIFT)
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

/// The maximum time for which requests are gathered, and completions not polled, while tasks run.
const LOOK_AFTER: Duration = Duration::from_micros(100);
/// The number of tasks that run before the worker checks how late it is.
const TASKS_PER_LOOK: usize = 8;
/// The number of looks at the inbox before a worker sleeps, if its tasks wait for other workers:
/// some ten microseconds.
const SPINS_BEFORE_SLEEP: u32 = 300;

/// The number of operations that a task may begin before other tasks get their turn.
const BUDGET_OPERATIONS: u32 = 64;
/// The number of operations for a task that holds what others may come to wait for: stopping it
/// would make them wait for a whole turn.
const BUDGET_AT_ONCE_OPERATIONS: u32 = 1024;

/// The number of panics of a worker's loop after which it ends, as at a close. The first panic
/// already failed every waiting task.
const PANICS_MAX: u32 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Busy,
    /// There is nothing to run until a completion or a message comes, or another worker frees a
    /// frame.
    Idle,
    /// The worker was told to stop, has no tasks left, and has nothing in flight.
    Done,
}

/// The state that the loop keeps from turn to turn.
pub(crate) struct Pace {
    completions: Vec<Completion>,
    stop: bool,
    turns: u32,
    unkicked_turns: u32,
    turns_since_poll: u32,
    /// The time at which the turn began, near enough for callers that go by time, and whether tasks
    /// ran in it.
    since: Instant,
    ran: bool,
    /// The time at which the worker last polled because it was late; `None` if it does not go by
    /// time, as in a simulation.
    looked: Option<Instant>,
}

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

    pub(crate) fn pace(&self) -> Pace {
        Pace {
            completions: Vec::with_capacity(self.options.depth as usize + 1),
            stop: false,
            turns: 0,
            unkicked_turns: 0,
            turns_since_poll: 0,
            since: Instant::now(),
            ran: false,
            looked: None,
        }
    }

    fn turns(&self) {
        let mut pace = Pace { looked: Some(Instant::now()), ..self.pace() };
        let mut is_over = false;
        while !is_over && self.panics.get() <= PANICS_MAX {
            self.survive(|| {
                let turn = self.turn(&mut pace);
                if std::mem::take(&mut pace.ran) {
                    let now = Instant::now();
                    let length = now.duration_since(pace.since);
                    self.shared.counters.of(self.number).count_turn(length);
                    pace.since = now;
                }
                match turn {
                    Turn::Busy => self.look_now_and_then(&mut pace),
                    Turn::Idle if self.hears_from_others() => {}
                    Turn::Idle => {
                        self.sleep(&mut pace.completions, pace.stop);
                        (pace.unkicked_turns, pace.turns_since_poll) = (0, 0);
                        pace.since = Instant::now();
                    }
                    Turn::Done => is_over = true,
                }
                self.take_completions(&mut pace.completions);
            });
        }
    }

    /// Runs a part of the loop. A panic in it is one of the engine: the store fails, and the loop
    /// continues, because others wait for the operations that this worker has under way. Returns
    /// `None` after a panic.
    fn survive<T>(&self, part: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(part)) {
            Ok(outcome) => Some(outcome),
            Err(_) => {
                self.shared.fail_by_panic();
                self.panics.set(self.panics.get() + 1);
                None
            }
        }
    }

    /// Runs one turn, up to the polling for completions.
    #[inline(always)]
    fn turn(&self, pace: &mut Pace) -> Turn {
        // The woken tasks check for the failure, which is set a moment later.
        let panicked =
            self.shared.lifecycle.panicked().is_some() && self.shared.lifecycle.failure().is_some();
        if panicked && !self.told_of_panic.replace(true) {
            // Some tasks wait for events that will never come.
            self.tasks.borrow_mut().make_all_ready();
        }
        self.deadlines.wake();
        if self.handle.is_pending() {
            pace.stop |= self.take_inbox();
        }
        self.enter(Part::Tasks);
        self.run_ready(pace);
        self.enter(Part::Log);
        self.wake_durable();
        self.pump_log();
        self.enter(Part::Rest);
        self.shared.space.grow_ahead();
        self.enter(Part::Evict);
        self.make_frames_free();
        self.drop_broken();
        self.enter(Part::Rest);
        // This inspects the state of all workers, so each worker does it only in some turns, unless
        // it has nothing else to do.
        pace.turns = pace.turns.wrapping_add(1);
        let looks =
            pace.turns.is_multiple_of(self.shared.worker_handles.len() as u32) || !self.has_ready();
        if looks && let Some(task) = self.options.upkeep.look() {
            self.spawn_own(task);
        }
        self.drain_backlog();
        if self.has_ready() || self.handle.is_pending() {
            Turn::Busy
        } else if pace.stop
            && self.tasks.borrow().alive == 0
            && self.channel.borrow().in_flight() == 0
        {
            Turn::Done
        } else {
            Turn::Idle
        }
    }

    /// Submits requests and polls for completions while there is other work, but not each time.
    #[inline(always)]
    fn look_now_and_then(&self, pace: &mut Pace) {
        // Gather requests over a few turns: one doorbell for many.
        pace.unkicked_turns += 1;
        let staged = self.staged.get();
        if staged >= 2 * self.options.batch || (staged > 0 && pace.unkicked_turns >= 16) {
            self.kick(pace);
        }
        // Completions can wait a little while there is other work; each look may be a system call.
        pace.turns_since_poll += 1;
        if pace.turns_since_poll >= 8 {
            self.poll(pace);
        }
    }

    fn kick(&self, pace: &mut Pace) {
        let outer = self.enter(Part::Submit);
        self.channel.borrow_mut().kick();
        self.staged.set(0);
        pace.unkicked_turns = 0;
        self.enter(outer);
    }

    fn poll(&self, pace: &mut Pace) {
        pace.turns_since_poll = 0;
        let mut channel = self.channel.borrow_mut();
        if channel.in_flight() > 0 {
            let outer = self.enter(Part::Poll);
            // The worker sleeps in the channel's own wait, so no wake-up through a descriptor is
            // needed.
            channel.look(&mut pace.completions);
            self.enter(outer);
        }
    }

    /// Submits requests and polls for completions within a turn, which may be long, so that an idle
    /// drive, or a commit that is durable, does not wait for the turn's end.
    #[inline]
    fn look_if_late(&self, pace: &mut Pace) {
        let Some(looked) = &mut pace.looked else { return };
        let staged = self.staged.get() > 0;
        if !staged && self.channel.borrow().in_flight() == 0 {
            return;
        }
        let now = Instant::now();
        if now.duration_since(*looked) < LOOK_AFTER {
            return;
        }
        *looked = now;
        if staged {
            self.kick(pace);
        }
        self.poll(pace);
        self.take_completions(&mut pace.completions);
    }

    #[inline(always)]
    fn take_completions(&self, completions: &mut Vec<Completion>) {
        let outer = self.enter(Part::Complete);
        self.prefetch(completions);
        // If handling one completion panics, the others are still in the list.
        completions.reverse();
        while let Some(completion) = completions.pop() {
            self.complete(completion);
        }
        self.take_ended_reads();
        self.enter(outer);
    }

    /// Runs one turn without ever sleeping. `look` makes it submit requests and poll for
    /// completions even if there is more to run.
    pub(crate) fn step(&self, pace: &mut Pace, look: bool) -> Turn {
        let turn = self.survive(|| self.step_once(pace, look)).unwrap_or(Turn::Busy);
        if self.panics.get() > PANICS_MAX { Turn::Done } else { turn }
    }

    fn step_once(&self, pace: &mut Pace, look: bool) -> Turn {
        let turn = self.turn(pace);
        if look || turn == Turn::Idle {
            self.kick(pace);
            self.channel.borrow_mut().poll(&mut pace.completions);
        }
        if pace.completions.is_empty() {
            return turn;
        }
        self.take_completions(&mut pace.completions);
        Turn::Busy
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

    /// Prefetches the cache lines that the ends of these requests will touch. They were last used
    /// when the requests began.
    fn prefetch(&self, completions: &[Completion]) {
        let frames = &self.shared.pool.frames;
        for buffer in completions.iter().filter_map(|completion| completion.buffer.as_ref()) {
            // The memory of another arena has other block numbers. The prefetch is then useless,
            // but harmless.
            let frame = FrameIndex(buffer.block().0);
            if frames.contains(frame) {
                frames.prefetch(frame, 2);
            }
        }
    }

    fn take_inbox(&self) -> bool {
        let (mut woken, mut spawned, mut stop) = (Vec::new(), Vec::new(), false);
        self.handle.take(|inbox| {
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
    fn run_ready(&self, pace: &mut Pace) {
        let mut budget = self.tasks.borrow().ready_len();
        pace.ran = budget > 0;
        let mut operations = 0;
        while budget > 0 {
            budget -= 1;
            if budget.is_multiple_of(TASKS_PER_LOOK) {
                self.look_if_late(pace);
            }
            // A task that another worker wakes has what other tasks wait for.
            if self.handle.is_pending() {
                pace.stop |= self.take_inbox();
            }
            let Some((task, mut body)) = self.tasks.borrow_mut().next() else { break };
            self.running.set(task);
            self.spent.set(0);
            if !body.within.is_empty() {
                self.wake_within(task, &mut body.within);
            }
            self.running_waker.set(body.waker.data());
            let mut context = Context::from_waker(&body.waker);
            let polled = catch_unwind(AssertUnwindSafe(|| body.future.as_mut().poll(&mut context)));
            operations += self.spent.get();
            match polled {
                Ok(Poll::Pending) => {
                    body.within.append(&mut self.within.borrow_mut());
                    self.tasks.borrow_mut().put_back(task, body);
                }
                // A panic ends its task only; the sender tells the task that waits for it.
                Ok(Poll::Ready(())) | Err(_) => {
                    self.within.borrow_mut().clear();
                    drop(body);
                    self.tasks.borrow_mut().finish(task);
                    if !self.load_errors.borrow().is_empty() {
                        self.load_errors.borrow_mut().retain(|(of, ..)| *of != task);
                    }
                }
            }
        }
        self.shared.counters.of(self.number).count_operations(operations, self.lookups.take());
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

    /// Wakes the futures within a task that is about to run. The task does not have to run again
    /// for that.
    #[cold]
    fn wake_within(&self, task: TaskRef, within: &mut Vec<Waker>) {
        self.tasks.borrow_mut().set_wakeable(task, false);
        // The wakers belong to other code, as the futures do, so they may panic.
        let _ = catch_unwind(AssertUnwindSafe(|| within.drain(..).for_each(Waker::wake)));
        self.tasks.borrow_mut().set_wakeable(task, true);
    }

    fn sleep(&self, completions: &mut Vec<Completion>, stop: bool) {
        let wake = &self.handle.wake;
        wake.prepare();
        if self.handle.is_pending() {
            wake.awake();
            return;
        }
        let in_flight = self.channel.borrow().in_flight();
        let starving = self.is_starving();
        // A task that waits for a durable commit should not wait for reads to gather.
        let want = match self.log_is_under_way() {
            true => 1,
            false => (in_flight / 4).clamp(1, self.options.batch),
        };
        let linger = if want > 1 { self.options.linger } else { Duration::ZERO };
        // Other workers may free frames without a message, so look again soon.
        let soon = (starving || (stop && in_flight == 0)).then_some(Duration::from_millis(1));
        let timeout = soon.into_iter().chain(self.deadlines.remaining()).min();
        let outer = self.enter(Part::Wait);
        self.channel.borrow_mut().wait(completions, WaitOptions { want, linger, timeout });
        self.enter(outer);
        self.staged.set(0);
        wake.awake();
    }

    /// Waits a moment, awake, for a message of another worker, if a task here waits for one:
    /// sleeping and being woken takes longer than most commits. Returns whether there is a message.
    fn hears_from_others(&self) -> bool {
        if self.waits_for_others.get() == 0 || self.shared.worker_handles.len() == 1 {
            return false;
        }
        let outer = self.enter(Part::Wait);
        self.channel.borrow_mut().kick();
        self.staged.set(0);
        let hears = (0..SPINS_BEFORE_SLEEP).any(|_| {
            std::hint::spin_loop();
            self.handle.is_pending()
        });
        self.enter(outer);
        hears
    }

    /// Notes that the running task waits for tasks of other workers, until the guard is dropped.
    pub(crate) fn wait_for_others(self: &Rc<Self>) -> WaitsForOthers {
        self.waits_for_others.set(self.waits_for_others.get() + 1);
        let task = self.running.get();
        self.tasks.borrow_mut().set_urgent(task, true);
        WaitsForOthers { worker: self.clone(), task }
    }

    pub(crate) fn submit(&self, request: Request) {
        let outer = self.enter(Part::Submit);
        let mut backlog = self.backlog.borrow_mut();
        if backlog.is_empty() {
            match self.channel.borrow_mut().submit(request) {
                Ok(()) => self.staged.set(self.staged.get() + 1),
                Err(request) => backlog.push_back(request),
            }
        } else {
            backlog.push_back(request);
        }
        self.enter(outer);
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
                self.shared.planted.strike(Canary::PanicInLoop);
                if let Some((timed, since)) = self.timed.get()
                    && timed == completion.tag
                {
                    self.timed.set(None);
                    self.shared.counters.of(self.number).count_read(since.elapsed());
                }
                let phase = value >> LOAD_PHASE_SHIFT;
                let slot = (value & ((1 << LOAD_PHASE_SHIFT) - 1)) >> 32;
                let task = TaskRef { slot: slot as u32, generation: value as u32 };
                self.end_transfer(phase);
                self.read_ended();
                self.loaded(task, buffer, completion.result);
            }
            (1, Some(buffer)) => {
                self.end_transfer(value);
                self.written(buffer, completion.result);
            }
            (3, Some(buffer)) => {
                self.end_transfer(value);
                self.saved(buffer, completion.result);
            }
            (4, buffer) => self.log_written(Completion { buffer, ..completion }),
            (_, buffer) => {
                let completion = Completion { buffer, ..completion };
                self.own_done(value as usize, completion);
            }
        }
    }
}
