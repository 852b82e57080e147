//! The virtual clock that simulated devices and stepped workers share.
//!
//! Time passes only when a caller says so: a turn of a worker takes a little ([`SimClock::pass`]),
//! and when no worker has anything to do, the clock jumps to the next event ([`SimClock::skip`]).

use qpair_memory::locks::Mutex;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Arc;

#[derive(Default)]
struct State {
    now_ns: u64,
    /// The times of scheduled events, the soonest on top. Some may be past.
    due_ns: BinaryHeap<Reverse<u64>>,
}

/// Virtual time in nanoseconds, from 0 on. Clones are the same clock.
#[derive(Clone, Default)]
pub struct SimClock {
    state: Arc<Mutex<State>>,
}

impl SimClock {
    /// Creates a clock at 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the time in nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.state.lock().now_ns
    }

    /// Lets `ns` nanoseconds pass.
    pub fn pass(&self, ns: u64) {
        let mut state = self.state.lock();
        state.now_ns = state.now_ns.saturating_add(ns);
    }

    /// Lets time pass until `at_ns`, unless that is past.
    pub fn pass_until(&self, at_ns: u64) {
        let mut state = self.state.lock();
        state.now_ns = state.now_ns.max(at_ns);
    }

    /// Schedules an event at `at_ns`.
    pub fn schedule(&self, at_ns: u64) {
        self.state.lock().due_ns.push(Reverse(at_ns));
    }

    /// Jumps to the time of the next event. Stays if there is a past event that was not reported
    /// yet. Returns `false` if there are no more events.
    #[must_use]
    pub fn skip(&self) -> bool {
        let mut state = self.state.lock();
        let Some(Reverse(at_ns)) = state.due_ns.pop() else { return false };
        state.now_ns = state.now_ns.max(at_ns);
        while state.due_ns.peek().is_some_and(|Reverse(next_ns)| *next_ns <= state.now_ns) {
            state.due_ns.pop();
        }
        true
    }
}

impl fmt::Debug for SimClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimClock at {} ns", self.now_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_to_what_is_due_next_and_never_back() {
        let clock = SimClock::new();
        for at_ns in [50, 20, 20, 5] {
            clock.schedule(at_ns);
        }
        clock.pass(10);
        // The event at 5 may have been missed.
        assert!(clock.skip());
        assert_eq!(clock.now_ns(), 10);
        assert!(clock.skip());
        assert_eq!(clock.now_ns(), 20);
        assert!(clock.skip());
        assert_eq!(clock.now_ns(), 50);
        assert!(!clock.skip());
        clock.pass_until(40);
        assert_eq!(clock.now_ns(), 50);
    }
}
