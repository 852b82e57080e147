//! The loop of a worker: turns in which tasks run, requests go out and completions come in, and
//! sleep between them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use qpair_block::{Completion, IoError, Op, WaitOptions};
use qpair_format::ErrorKind;

use super::{TaskRef, Worker};
use crate::canary::Canary;
use crate::metrics::Part;
use crate::readers::Witness;

/// The maximum time for which requests are gathered, and completions not polled, while tasks run.
const LOOK_AFTER: Duration = Duration::from_micros(100);
/// The number of tasks that run before the worker checks how late it is.
const TASKS_PER_LOOK: usize = 8;
/// The number of looks at the inbox before a worker sleeps, if its tasks wait for other workers:
/// some ten microseconds.
const SPINS_BEFORE_SLEEP: u32 = 300;
/// The number of panics of a worker's loop after which it ends, as at a close. The first panic
/// already failed every waiting task.
const PANICS_MAX: u32 = 64;

/// The result of one turn of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// There are tasks or completions to run now.
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
    /// Whether the worker was told to stop.
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
    /// Creates a new state of the loop.
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

    pub(super) fn turns(&self) {
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
        if let Some(witness) = &self.shared.witness {
            self.doubt_reads(witness, completions);
        }
        self.prefetch(completions);
        // If handling one completion panics, the others are still in the list.
        completions.reverse();
        while let Some(completion) = completions.pop() {
            self.complete(completion);
        }
        self.take_ended_reads();
        self.enter(outer);
    }

    /// Makes reads fail whose bytes may be of a later checkpoint than the one that this store sees.
    #[cold]
    fn doubt_reads(&self, witness: &Witness, completions: &mut [Completion]) {
        let is_read = |completion: &&mut Completion| completion.op == Op::Read;
        let mut reads = completions.iter_mut().filter(is_read).peekable();
        if reads.peek().is_none() || self.shared.planted.is(Canary::UncheckedReader) {
            return;
        }
        let error = match witness.check(&mut self.records.borrow_mut()) {
            Ok(()) => return,
            Err(error) if error.kind() == ErrorKind::SnapshotLost => IoError::STALE,
            // The device does not tell.
            Err(_) => IoError::IO,
        };
        reads.for_each(|completion| completion.result = Err(error));
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
}
