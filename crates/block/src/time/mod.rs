//! The clock of drivers and software devices: the machine's, or a virtual clock on a thread that
//! simulates.
//!
//! Drivers have time-outs, and software devices have delays. If both run on one thread in a
//! simulation, the seed must determine when they end, so neither reads the machine's clock
//! directly. Code that waits for people or for tests reads the machine's clock, and never runs on a
//! thread that simulates.

mod clock;

use std::cell::RefCell;
use std::time::{Duration, Instant};

pub use clock::SimClock;

/// The virtual time that [`yield_now`] takes.
const TURN: Duration = Duration::from_micros(10);

struct Virtual {
    clock: SimClock,
    /// The instant that corresponds to 0 of the clock.
    zero: Instant,
}

thread_local! {
    static VIRTUAL: RefCell<Option<Virtual>> = const { RefCell::new(None) };
}

fn with_virtual<T>(with: impl FnOnce(&Virtual) -> T) -> Option<T> {
    // A thread that is ending uses the machine's time.
    VIRTUAL.try_with(|it| it.borrow().as_ref().map(with)).ok().flatten()
}

/// Returns the time on this thread.
#[must_use]
pub fn now() -> Instant {
    with_virtual(|it| it.zero + Duration::from_nanos(it.clock.now_ns()))
        .unwrap_or_else(Instant::now)
}

/// Waits for `duration`; on a thread that simulates, advances the virtual clock instead.
pub fn sleep(duration: Duration) {
    let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    if with_virtual(|it| it.clock.pass(ns)).is_none() {
        std::thread::sleep(duration);
    }
}

/// Yields to other threads.
pub fn yield_now() {
    if with_virtual(|it| it.clock.pass(TURN.as_nanos() as u64)).is_none() {
        std::thread::yield_now();
    }
}

/// Whether this thread simulates. Then no other thread does the work that it waits for.
#[must_use]
pub fn is_virtual() -> bool {
    with_virtual(|_| ()).is_some()
}

/// A guard: while it exists, the time on the thread that created it is that of a virtual clock.
#[doc(hidden)]
#[derive(Debug)]
pub struct VirtualTime(std::marker::PhantomData<*const ()>);

impl VirtualTime {
    /// Switches this thread to the time of `clock`.
    #[must_use]
    pub fn begin(clock: &SimClock) -> Self {
        let it = Virtual { clock: clock.clone(), zero: Instant::now() };
        VIRTUAL.with(|held| *held.borrow_mut() = Some(it));
        Self(std::marker::PhantomData)
    }
}

impl Drop for VirtualTime {
    fn drop(&mut self) {
        let _ = VIRTUAL.try_with(|held| held.borrow_mut().take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_simulates_has_the_time_of_its_clock() {
        let clock = SimClock::new();
        let time = VirtualTime::begin(&clock);
        let start = now();
        sleep(Duration::from_secs(3600));
        assert_eq!(now() - start, Duration::from_secs(3600));
        yield_now();
        assert_eq!(clock.now_ns(), 3_600_000_010_000);
        assert!(std::thread::spawn(|| !is_virtual()).join().unwrap());
        drop(time);
        assert!(!is_virtual() && now() < start + Duration::from_secs(3600));
    }
}
