//! Waits with a time limit.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use qpair_block::time::SimClock;

use super::Worker;

/// The deadlines of a worker's tasks, by time. Most of the time there are none, and the clock is
/// not read.
pub(super) struct Deadlines {
    start: Instant,
    clock: Option<SimClock>,
    /// The wakers by nanoseconds since the start, and a number.
    wakers: RefCell<BTreeMap<(u64, u64), Waker>>,
    number: Cell<u64>,
}

impl Deadlines {
    pub(super) fn new(clock: Option<SimClock>) -> Self {
        let (wakers, number) = (RefCell::default(), Cell::new(0));
        Self { start: Instant::now(), clock, wakers, number }
    }

    fn now_ns(&self) -> u64 {
        match &self.clock {
            Some(clock) => clock.now_ns(),
            None => nanoseconds(self.start.elapsed()),
        }
    }

    #[inline(always)]
    pub(super) fn wake(&self) {
        if !self.wakers.borrow().is_empty() {
            self.wake_some();
        }
    }

    #[cold]
    fn wake_some(&self) {
        let now_ns = self.now_ns();
        loop {
            let mut wakers = self.wakers.borrow_mut();
            let Some(first) = wakers.first_entry().filter(|it| it.key().0 <= now_ns) else {
                return;
            };
            let waker = first.remove();
            // The woken tasks may set deadlines of their own.
            drop(wakers);
            waker.wake();
        }
    }

    /// Returns the maximum time for which the worker may sleep.
    pub(super) fn remaining(&self) -> Option<Duration> {
        let (at_ns, _) = *self.wakers.borrow().first_key_value()?.0;
        Some(Duration::from_nanos(at_ns.saturating_sub(self.now_ns())))
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A task's deadline, which is removed when this is dropped.
pub(crate) struct Deadline {
    worker: Rc<Worker>,
    at: (u64, u64),
}

impl Deadline {
    /// Whether the deadline has passed. If not, `waker` is called once when it does.
    pub(crate) fn poll(&self, waker: &Waker) -> bool {
        let deadlines = &self.worker.deadlines;
        if deadlines.now_ns() >= self.at.0 {
            return true;
        }
        deadlines.wakers.borrow_mut().insert(self.at, waker.clone());
        false
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        let waker = self.worker.deadlines.wakers.borrow_mut().remove(&self.at);
        // Dropped after the borrow: this may drop the last reference to its task.
        drop(waker);
    }
}

impl Worker {
    pub(crate) fn deadline(self: &Rc<Self>, timeout: Duration) -> Deadline {
        let deadlines = &self.deadlines;
        let at_ns = deadlines.now_ns().saturating_add(nanoseconds(timeout));
        if let Some(clock) = &deadlines.clock {
            clock.schedule(at_ns);
        }
        let number = deadlines.number.get();
        deadlines.number.set(number + 1);
        Deadline { worker: self.clone(), at: (at_ns, number) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn wakes_what_is_due_in_the_order_of_time_and_no_more() {
        let clock = SimClock::new();
        let deadlines = Deadlines::new(Some(clock.clone()));
        let count = Arc::new(Count::default());
        for at in [(30, 0), (10, 1), (10, 2)] {
            deadlines.wakers.borrow_mut().insert(at, count.clone().into());
        }
        deadlines.wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        assert_eq!(deadlines.remaining(), Some(Duration::from_nanos(10)));
        clock.pass(10);
        deadlines.wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        clock.pass(50);
        assert_eq!(deadlines.remaining(), Some(Duration::ZERO));
        deadlines.wake();
        assert_eq!((count.0.load(Ordering::Relaxed), deadlines.remaining()), (3, None));
    }
}
