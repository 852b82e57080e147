//! Commit timestamps: dense, and applied without gaps up to `applied`.
//!
//! Invariants: timestamps are given out in order, one after the other. Every commit with a
//! timestamp of `applied` or less is fully applied to the trees, so a reader at or before `applied`
//! sees whole commits only. `applied` never decreases, and never passes a commit that failed while
//! it was being applied.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use qpair_format::{Error, Result};
use qpair_memory::locks::Mutex;

use crate::sync::{Ticket, Waiters};

#[derive(Default)]
struct State {
    /// The newest timestamp that was given out.
    last: u64,
    /// For each given timestamp above `applied`, whether its commit is applied.
    ended: VecDeque<bool>,
    closed: bool,
    /// The error of a commit that could not be fully applied: `applied` stays where it is.
    failure: Option<Error>,
}

/// Gives out timestamps and knows up to which of them all commits are applied.
pub(crate) struct TimestampOracle {
    applied: AtomicU64,
    state: Mutex<State>,
    /// Tasks that wait for `applied` to reach a timestamp.
    waiters: Waiters,
}

impl TimestampOracle {
    /// Creates an oracle whose first timestamp is the one after `start`.
    pub(crate) fn new(start: u64) -> Self {
        let state = Mutex::new(State { last: start, ..State::default() });
        Self { applied: start.into(), state, waiters: Waiters::default() }
    }

    /// Continues after a timestamp that is fully applied. Must be called before the first commit.
    pub(crate) fn start(&self, timestamp: u64) {
        let mut state = self.state.lock();
        state.last = timestamp;
        self.applied.store(timestamp, Ordering::Release);
    }

    /// Returns the greatest timestamp such that all commits at or below it are applied.
    #[inline(always)]
    pub(crate) fn applied(&self) -> u64 {
        // Acquire: pairs with the store in `end_commit`; a reader that sees the timestamp sees the
        // applied changes.
        self.applied.load(Ordering::Acquire)
    }

    pub(crate) fn last(&self) -> u64 {
        self.state.lock().last
    }

    /// Calls `before` and returns the newest timestamp that was given out. Commits that take a
    /// later one see the effects of `before`.
    pub(crate) fn last_given<T>(&self, before: impl FnOnce() -> T) -> u64 {
        let state = self.state.lock();
        before();
        state.last
    }

    /// Takes the next timestamp. The commit must then end with [`TimestampOracle::end_commit`] or
    /// [`TimestampOracle::fail`].
    ///
    /// # Errors
    /// `Closed` if the store is being closed; the failure of an earlier commit.
    pub(crate) fn begin_commit(&self) -> Result<u64> {
        let mut state = self.state.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        if state.closed {
            return Err(Error::closed());
        }
        state.last += 1;
        state.ended.push_back(false);
        Ok(state.last)
    }

    pub(crate) fn end_commit(&self, timestamp: u64) {
        let mut state = self.state.lock();
        let applied = self.applied.load(Ordering::Relaxed);
        if let Some(ended) = state.ended.get_mut((timestamp - applied - 1) as usize) {
            *ended = true;
        }
        let mut now = applied;
        while state.ended.front() == Some(&true) {
            state.ended.pop_front();
            now += 1;
        }
        if now == applied {
            return;
        }
        self.applied.store(now, Ordering::Release);
        drop(state);
        // A waiter looks at `applied` under the lock before it enters itself.
        self.waiters.wake_up_to(now);
    }

    /// Notes that a commit could not be fully applied: no timestamp from that one on becomes
    /// applied, and tasks that wait for one get the error.
    pub(crate) fn fail(&self, error: Error) {
        let mut state = self.state.lock();
        state.failure.get_or_insert(error);
        drop(state);
        self.waiters.wake_all();
    }

    /// Waits until all commits up to this timestamp are applied.
    ///
    /// # Errors
    /// The failure of a commit before it.
    pub(crate) async fn wait_applied(&self, timestamp: u64) -> Result<()> {
        if self.applied() >= timestamp {
            return Ok(());
        }
        let mut ticket = Ticket::default();
        poll_fn(|context| {
            let state = self.state.lock();
            if self.applied() >= timestamp {
                return Poll::Ready(Ok(()));
            }
            if let Some(failure) = &state.failure {
                return Poll::Ready(Err(failure.clone()));
            }
            self.waiters.wait(&mut ticket, timestamp, context.waker());
            Poll::Pending
        })
        .await
    }

    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use qpair_format::ErrorKind;

    use super::*;

    /// Commits that end in any order: `applied` is always the end of the run without gaps.
    #[test]
    fn stable_has_no_gaps() {
        let mut random = fastrand::Rng::with_seed(7);
        let oracle = TimestampOracle::new(100);
        let (mut open, mut ended) = (Vec::new(), std::collections::BTreeSet::new());
        for _ in 0..20_000 {
            if random.bool() {
                open.push(oracle.begin_commit().unwrap());
            } else if !open.is_empty() {
                let timestamp = open.swap_remove(random.usize(..open.len()));
                oracle.end_commit(timestamp);
                ended.insert(timestamp);
            }
            let expected = (101..).find(|timestamp| !ended.contains(timestamp)).unwrap() - 1;
            assert_eq!(oracle.applied(), expected);
            if ended.len() > 500 {
                let applied = oracle.applied();
                if applied > 400 {
                    break;
                }
            }
        }
    }

    #[test]
    fn waits_end_when_stable_or_failed() {
        let oracle = TimestampOracle::new(0);
        let (first, second) = (oracle.begin_commit().unwrap(), oracle.begin_commit().unwrap());
        let mut context = Context::from_waker(Waker::noop());
        let mut wait = pin!(oracle.wait_applied(second));
        oracle.end_commit(second);
        assert!(wait.as_mut().poll(&mut context).is_pending());
        oracle.end_commit(first);
        assert!(wait.as_mut().poll(&mut context).is_ready());
        let third = oracle.begin_commit().unwrap();
        let mut wait = pin!(oracle.wait_applied(third));
        assert!(wait.as_mut().poll(&mut context).is_pending());
        oracle.fail(Error::new(ErrorKind::Io, "broken"));
        assert!(matches!(wait.as_mut().poll(&mut context), Poll::Ready(Err(_))));
        assert!(oracle.begin_commit().is_err());
        assert_eq!(oracle.applied(), second);
    }
}
