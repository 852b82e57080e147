//! The virtual clock that simulated devices and stepped workers share.
//!
//! Time moves only when a caller says so: a turn of a worker takes a little ([`SimClock::pass`]),
//! and when no worker has anything to do it jumps to the next thing that is due
//! ([`SimClock::skip`]).

use qpair_memory::locks::Mutex;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Arc;

#[derive(Default)]
struct State {
    now_ns: u64,
    /// The times at which something will be ready, soonest on top; some may be past.
    due_ns: BinaryHeap<Reverse<u64>>,
}

/// Virtual time, nanoseconds from 0 on. Clones are the same clock.
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

    /// Notes that something will be ready at `at_ns`.
    pub fn schedule(&self, at_ns: u64) {
        self.state.lock().due_ns.push(Reverse(at_ns));
    }

    /// Jumps to the next time at which something is ready, or stays if something is ready already
    /// that no caller was told of. Returns `false` if nothing will ever be ready.
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
        // What was due at 5 may have been overlooked.
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
