//! Workers without threads: the thread that opened the store steps them, in an order that a seed
//! determines. For deterministic simulation; see docs/design/simulation.md.
//!
//! - A stepped store belongs to the thread that opened it, and all its calls are made there.
//! - At most one worker is being stepped at a time; [`super::current`] names it. No step begins
//!   inside another one.
//! - Time is that of the virtual clock. Each step takes a little of it, so that a task that only
//!   yields does not stop the clock. When no worker has anything to do, the clock jumps to the next
//!   completion.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use qpair_block::time::SimClock;
use qpair_format::{Error, ErrorKind};

use super::worker::{Pace, Turn, Worker};
use crate::shared::Shared;

/// Selects how the workers of a store run.
#[derive(Clone, Debug, Default)]
pub enum Runtime {
    /// Each worker is a thread.
    #[default]
    Threads,
    /// The workers are objects on the thread that opens the store, which steps them while it waits
    /// for a result.
    Stepped {
        /// The seed of the order in which workers are stepped.
        seed: u64,
        /// The virtual time, which the store's devices share.
        clock: SimClock,
    },
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A task made progress, or may do so in the next step.
    Progress,
    /// Every task waits, and nothing that could wake one is under way.
    Stuck,
}

/// The longest turn of a worker, in virtual nanoseconds.
const TURN_NS_MAX: u64 = 2000;

/// The number of rounds in which all workers only wait for frames, after which the store counts as
/// stuck. A worker gives up after 2000.
const STARVED_ROUNDS_MAX: u32 = 10_000;

struct Member {
    worker: Rc<Worker>,
    pace: Pace,
    done: bool,
    /// Whether the worker had nothing to do when it was stepped last, and no other worker has done
    /// anything since.
    idle: bool,
}

impl Member {
    fn could_run(&self) -> bool {
        !self.done && (!self.idle || self.worker.handle().is_pending())
    }
}

struct WorkerSet {
    shared: Arc<Shared>,
    members: RefCell<Vec<Member>>,
    rng: RefCell<fastrand::Rng>,
    clock: SimClock,
    starved_rounds: Cell<u32>,
}

thread_local! {
    static WORKER_SETS: RefCell<Vec<Rc<WorkerSet>>> = const { RefCell::new(Vec::new()) };
    static STEPPING: RefCell<Option<Rc<Worker>>> = const { RefCell::new(None) };
    /// Stores whose last clone was dropped by a task: they are closed between steps.
    static DROPPED: RefCell<Vec<Box<dyn FnOnce()>>> = const { RefCell::new(Vec::new()) };
}

/// Returns the worker that this thread is stepping at the moment.
#[cold]
pub(super) fn stepping() -> Option<Rc<Worker>> {
    STEPPING.try_with(|stepping| stepping.borrow().clone()).ok().flatten()
}

/// Makes `worker` the current one until this is dropped.
struct AsCurrent(Option<Rc<Worker>>);

impl AsCurrent {
    fn new(worker: &Rc<Worker>) -> Self {
        Self(STEPPING.with(|stepping| stepping.borrow_mut().replace(worker.clone())))
    }
}

impl Drop for AsCurrent {
    fn drop(&mut self) {
        let before = self.0.take();
        // The previous worker is dropped after the borrow.
        let _worker =
            STEPPING.with(|stepping| std::mem::replace(&mut *stepping.borrow_mut(), before));
    }
}

/// Gives a store's workers to this thread.
pub(crate) fn enlist(shared: &Arc<Shared>, workers: Vec<Rc<Worker>>, seed: u64, clock: SimClock) {
    let members = workers
        .into_iter()
        .map(|worker| Member { pace: worker.pace(), worker, done: false, idle: false })
        .collect();
    let worker_set = WorkerSet {
        shared: shared.clone(),
        members: RefCell::new(members),
        rng: RefCell::new(fastrand::Rng::with_seed(seed)),
        clock,
        starved_rounds: Cell::new(0),
    };
    WORKER_SETS.with(|worker_sets| worker_sets.borrow_mut().push(Rc::new(worker_set)));
}

/// Whether this thread has stepped workers.
pub fn is_stepped_here() -> bool {
    WORKER_SETS.try_with(|worker_sets| !worker_sets.borrow().is_empty()).unwrap_or(false)
}

fn worker_set_of(shared: &Arc<Shared>) -> Option<Rc<WorkerSet>> {
    WORKER_SETS.with(|worker_sets| {
        worker_sets
            .borrow()
            .iter()
            .find(|worker_set| Arc::ptr_eq(&worker_set.shared, shared))
            .cloned()
    })
}

fn dismiss(shared: &Arc<Shared>) -> Option<Rc<WorkerSet>> {
    WORKER_SETS.with(|worker_sets| {
        let mut worker_sets = worker_sets.borrow_mut();
        let position =
            worker_sets.iter().position(|worker_set| Arc::ptr_eq(&worker_set.shared, shared))?;
        Some(worker_sets.remove(position))
    })
}

/// Returns the runtime for an auxiliary store: stepped together with this store, if this thread
/// steps it.
pub(crate) fn like(shared: &Arc<Shared>) -> Runtime {
    worker_set_of(shared).map_or(Runtime::Threads, |worker_set| Runtime::Stepped {
        seed: worker_set.rng.borrow_mut().u64(..),
        clock: worker_set.clock.clone(),
    })
}

/// Steps one worker of one of this thread's stores.
pub(super) fn step_any() -> Step {
    if stepping().is_some() {
        return Step::Stuck;
    }
    // The stores of this thread take turns.
    let worker_sets = WORKER_SETS.with(|worker_sets| worker_sets.borrow().clone());
    let mut outcome = Step::Stuck;
    for worker_set in worker_sets {
        if worker_set.step() == Step::Progress {
            outcome = Step::Progress;
        }
    }
    outcome
}

/// Steps one worker of a store. Returns [`Step::Stuck`] on a thread that does not have the store's
/// workers.
pub(crate) fn step(shared: &Arc<Shared>) -> Step {
    match worker_set_of(shared) {
        Some(worker_set) if stepping().is_none() => worker_set.step(),
        _ => Step::Stuck,
    }
}

/// Steps a store's workers, which were told to stop, until all of them have stopped.
pub(crate) fn finish(shared: &Arc<Shared>) {
    let Some(worker_set) = worker_set_of(shared) else { return };
    while !worker_set.is_done() && worker_set.step() == Step::Progress {}
    crash(shared);
}

/// Drops a store's workers and all their tasks as they are.
pub(crate) fn crash(shared: &Arc<Shared>) {
    let Some(worker_set) = dismiss(shared) else { return };
    for member in worker_set.members.take() {
        let _current = AsCurrent::new(&member.worker);
        member.worker.end();
    }
    close_dropped();
}

/// Drops the workers of all stepped stores of this thread, as a crash does. For after a panic.
#[doc(hidden)]
pub fn abandon_stepped() {
    STEPPING.with(RefCell::take);
    while let Some(worker_set) =
        WORKER_SETS.with(|worker_sets| worker_sets.borrow().first().cloned())
    {
        worker_set.shared.begin_closing();
        crash(&worker_set.shared);
    }
}

/// Lets `close` close a store between two steps.
pub(crate) fn close_later(close: Box<dyn FnOnce()>) {
    DROPPED.with(|dropped| dropped.borrow_mut().push(close));
}

fn close_dropped() {
    while stepping().is_none()
        && let Some(close) = DROPPED.with(|dropped| dropped.borrow_mut().pop())
    {
        close();
    }
}

pub(crate) fn deadlock() -> Error {
    Error::new(
        ErrorKind::Closed,
        "deadlock: the result is missing, no task can run, and no transfer is in flight",
    )
}

impl WorkerSet {
    fn is_done(&self) -> bool {
        self.members.borrow().iter().all(|member| member.done)
    }

    fn step(&self) -> Step {
        let outcome = self.step_one();
        close_dropped();
        outcome
    }

    fn step_one(&self) -> Step {
        let (chosen, look, turn_ns) = {
            let (members, mut rng) = (self.members.borrow(), self.rng.borrow_mut());
            let could: Vec<usize> =
                (0..members.len()).filter(|index| members[*index].could_run()).collect();
            // All other workers are idle: they are asked again once something has happened.
            let Some(chosen) = rng.choice(could) else {
                drop((members, rng));
                return self.all_idle();
            };
            (chosen, rng.bool(), rng.u64(1..=TURN_NS_MAX))
        };
        let mut members = self.members.borrow_mut();
        let worker = members[chosen].worker.clone();
        // Code that runs in a step never reaches the worker set, because stepping is not reentrant.
        let turn = {
            let _current = AsCurrent::new(&worker);
            worker.step(&mut members[chosen].pace, look)
        };
        self.clock.pass(turn_ns);
        match turn {
            Turn::Busy => {
                // The worker may have sent messages or freed frames.
                members.iter_mut().for_each(|member| member.idle = false);
                self.starved_rounds.set(0);
            }
            Turn::Idle => members[chosen].idle = true,
            Turn::Done => {
                members[chosen].done = true;
                let _current = AsCurrent::new(&worker);
                worker.end();
            }
        }
        Step::Progress
    }

    /// Handles a round in which every worker waits: for the device, for frames, or forever.
    fn all_idle(&self) -> Step {
        let mut members = self.members.borrow_mut();
        let mut waiting = members.iter().filter(|member| !member.done).peekable();
        if waiting.peek().is_none() {
            return Step::Stuck;
        }
        if !self.clock.skip() {
            if !waiting.any(|member| member.worker.is_starving()) {
                return Step::Stuck;
            }
            self.starved_rounds.set(self.starved_rounds.get() + 1);
            if self.starved_rounds.get() > STARVED_ROUNDS_MAX {
                return Step::Stuck;
            }
        }
        members.iter_mut().for_each(|member| member.idle = false);
        drop(members);
        self.wake_others();
        Step::Progress
    }

    /// Wakes other stores of this thread, because the clock has jumped and one of them may wait for
    /// that time.
    fn wake_others(&self) {
        let worker_sets = WORKER_SETS.with(|worker_sets| worker_sets.borrow().clone());
        for worker_set in
            worker_sets.iter().filter(|worker_set| !std::ptr::eq(&***worker_set, self))
        {
            worker_set.members.borrow_mut().iter_mut().for_each(|member| member.idle = false);
        }
    }
}
