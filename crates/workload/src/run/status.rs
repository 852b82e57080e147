//! The state of a run in progress: fio's `status-interval`.
//!
//! The watcher asks by incrementing a number. Each job's thread checks the number between two
//! turns, and leaves a copy of its results so far. Nothing is locked while no state is requested.
//!
//! Invariants:
//! - a thread answers each number at most once, and leaves its last answer when it ends;
//! - states are due at multiples of their interval from the beginning of the run; states that
//!   become due while one is late are skipped.

use qpair_block::locks::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::cpu::Usage;
use super::thread::Outcome;

/// The longest time that the watcher waits for answers. A thread whose device has stalled is
/// reported with its last known state.
const ANSWERS: Duration = Duration::from_secs(1);
/// The number of a job's last answer.
const LAST: u64 = u64::MAX;

/// The answer of a job's thread to a request for its state.
#[derive(Clone)]
pub(super) struct Answer {
    number: u64,
    pub(super) outcome: Outcome,
    /// Resources that the thread has used since it began.
    pub(super) usage: Usage,
}

/// The desk at which the watcher asks one job's thread for its state, and finds the answer.
pub(super) struct Desk {
    asked: AtomicU64,
    answer: Mutex<Option<Answer>>,
    watcher: Thread,
}

impl Desk {
    pub(super) fn new() -> Self {
        Self { asked: AtomicU64::new(0), answer: Mutex::new(None), watcher: std::thread::current() }
    }

    /// The number of the last question.
    #[inline]
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    fn ask(&self, number: u64) {
        self.asked.store(number, Ordering::Relaxed);
    }

    pub(super) fn leave(&self, number: u64, outcome: Outcome) {
        *self.answer.lock() = Some(Answer { number, outcome, usage: Usage::of_thread() });
        self.watcher.unpark();
    }

    pub(super) fn leave_last(&self, outcome: Outcome) {
        self.leave(LAST, outcome);
    }

    fn has_answered(&self, number: u64) -> bool {
        self.answer.lock().as_ref().is_some_and(|answer| answer.number >= number)
    }

    /// Returns the last answer to any question; `None` if the job has not begun.
    pub(super) fn last(&self) -> Option<Answer> {
        self.answer.lock().clone()
    }
}

struct Open {
    at: Instant,
    /// Resources that the process had used when the question was asked.
    process: Usage,
}

/// The times at which states are due, over all stages of a run.
pub(super) struct Schedule {
    every: Option<Duration>,
    begun: Instant,
    due: Instant,
    number: u64,
    open: Option<Open>,
}

impl Schedule {
    pub(super) fn new(every: Option<Duration>, begun: Instant) -> Self {
        let every = every.filter(|every| !every.is_zero());
        let due = begun + every.unwrap_or_default();
        Self { every, begun, due, number: 0, open: None }
    }

    pub(super) fn is_on(&self) -> bool {
        self.every.is_some()
    }

    /// Drops an open question, because the threads that were asked have ended.
    pub(super) fn close(&mut self) {
        self.open = None;
    }

    /// Returns the time that the watcher may sleep: until a state is due, or until answers are
    /// late.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        match (&self.open, self.every) {
            (Some(open), _) => (open.at + ANSWERS).saturating_duration_since(now),
            (None, Some(_)) => self.due.saturating_duration_since(now),
            (None, None) => Duration::MAX,
        }
    }

    /// Asks the threads at `desks` if a state is due. Once all running threads have answered, or
    /// their time is over, returns the resources that the process had used when they were asked.
    pub(super) fn step<'a>(
        &mut self,
        now: Instant,
        desks: impl Iterator<Item = (&'a Desk, bool)>,
    ) -> Option<Usage> {
        let every = self.every?;
        let Some(open) = &self.open else {
            if now >= self.due {
                self.number += 1;
                desks.for_each(|(desk, _)| desk.ask(self.number));
                self.open = Some(Open { at: now, process: Usage::of_process() });
                let passed = now.duration_since(self.begun).as_nanos() / every.as_nanos();
                self.due = self.begun + multiple(every, passed + 1);
            }
            return None;
        };
        let is_late = now >= open.at + ANSWERS;
        let mut running = desks.filter(|(_, is_running)| *is_running);
        let is_complete = is_late || running.all(|(desk, _)| desk.has_answered(self.number));
        if !is_complete {
            return None;
        }
        self.open.take().map(|open| open.process)
    }
}

fn multiple(every: Duration, times: u128) -> Duration {
    let ns = u64::try_from(every.as_nanos().saturating_mul(times)).unwrap_or(u64::MAX);
    Duration::from_nanos(ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::failed;

    /// A state is due at each multiple of its interval. A late state makes later ones be skipped.
    #[test]
    fn states_are_due_at_multiples() {
        let (begun, ms) = (Instant::now(), Duration::from_millis);
        let mut schedule = Schedule::new(Some(ms(100)), begun);
        let desk = Desk::new();
        let mut step = |at: u64| {
            let of = std::iter::once((&desk, true));
            let told = schedule.step(begun + ms(at), of).is_some();
            (told, desk.asked(), schedule.wait(begun + ms(at)))
        };
        assert_eq!(step(99), (false, 0, ms(1)));
        assert_eq!(step(130), (false, 1, ANSWERS));
        assert_eq!(step(140), (false, 1, ANSWERS - ms(10)));
        desk.leave(1, failed("an answer"));
        assert_eq!(step(150), (true, 1, ms(50)));
        // After a second without an answer, later states are skipped, and the last answer is used.
        assert_eq!(step(200), (false, 2, ANSWERS));
        assert!(!step(1199).0);
        assert_eq!(step(1200), (true, 2, Duration::ZERO));
        assert_eq!(step(1201), (false, 3, ANSWERS));
        desk.leave_last(failed("the end"));
        assert_eq!(step(1202), (true, 3, ms(98)));
        assert_eq!(step(1300), (false, 4, ANSWERS));
        assert!(step(1300).0);
        assert_eq!(desk.last().unwrap().outcome.error.unwrap().what, "the end");
    }

    #[test]
    fn without_an_interval_there_is_no_state() {
        let now = Instant::now();
        for every in [None, Some(Duration::ZERO)] {
            let mut schedule = Schedule::new(every, now);
            assert!(!schedule.is_on() && schedule.wait(now) == Duration::MAX);
            assert!(schedule.step(now + Duration::from_secs(9), std::iter::empty()).is_none());
        }
    }
}
