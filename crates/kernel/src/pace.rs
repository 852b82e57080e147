//! The sleeps of a wait: turns [`WaitOptions`] into one sleep after the other.

use std::time::{Duration, Instant};

use qpair_block::WaitOptions;

/// The maximum length of a sleep for several completions that a wake event should be able to end.
///
/// While a wait lingers for more than one completion, the event alone does not end the kernel's
/// sleep. This time therefore bounds how late a wake-up is noticed.
pub(crate) const WAKE_DELAY_MAX: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sleep {
    /// The number of completions to wait for.
    pub(crate) want: u32,
    /// The time after which one completion is enough; zero to wait for `want` until the time-out.
    pub(crate) linger: Duration,
    pub(crate) timeout: Option<Duration>,
}

pub(crate) struct Pace {
    options: WaitOptions,
    can_wake: bool,
    /// The start of the wait; set only if time matters.
    started: Option<Instant>,
    rounds: u32,
}

impl Pace {
    /// Begins a wait. `can_wake` says that an event may end it.
    #[inline]
    pub(crate) fn new(options: WaitOptions, can_wake: bool) -> Self {
        let lingers =
            options.want > 1 && !options.linger.is_zero() && options.linger != Duration::MAX;
        let timed = options.timeout.is_some() || lingers;
        Self { options, can_wake, started: timed.then(Instant::now), rounds: 0 }
    }

    /// Returns the next sleep, with `got` completions taken and `pending` requests at the device.
    /// Returns `None` if the wait is over.
    #[inline]
    pub(crate) fn next(&mut self, got: u32, pending: u32) -> Option<Sleep> {
        let elapsed = match (self.rounds, self.started) {
            (0, _) | (_, None) => Duration::ZERO,
            (_, Some(started)) => started.elapsed(),
        };
        self.rounds += 1;
        self.next_at(elapsed, got, pending)
    }

    fn next_at(&self, elapsed: Duration, got: u32, pending: u32) -> Option<Sleep> {
        let want = self.options.want.min(got.saturating_add(pending)).max(1);
        let linger = self.options.linger.saturating_sub(elapsed);
        if got >= want || (got > 0 && linger.is_zero()) {
            return None;
        }
        let timeout = match self.options.timeout {
            Some(timeout) if timeout <= elapsed => return None,
            Some(timeout) => Some(timeout - elapsed),
            // Nothing could ever end this sleep.
            None if pending == 0 && !self.can_wake => return None,
            None => None,
        };
        if self.options.linger == Duration::MAX && timeout.is_none() && !self.can_wake {
            // Wait for all wanted completions, however long that takes: the kernel needs no timer
            // for that.
            return Some(Sleep { want: want - got, linger: Duration::ZERO, timeout: None });
        }
        let slice = if self.can_wake { linger.min(WAKE_DELAY_MAX) } else { linger };
        Some(if got > 0 {
            // One completion was taken: the others have only the rest of the linger.
            let timeout = timeout.map_or(slice, |timeout| timeout.min(slice));
            Sleep { want: want - got, linger: Duration::ZERO, timeout: Some(timeout) }
        } else if want > 1 && !linger.is_zero() {
            Sleep { want, linger: slice, timeout }
        } else {
            Sleep { want: 1, linger: Duration::ZERO, timeout }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn pace(want: u32, linger: Duration, timeout: Option<Duration>, can_wake: bool) -> Pace {
        Pace::new(WaitOptions { want, linger, timeout }, can_wake)
    }

    fn sleep(want: u32, linger: Duration, timeout: Option<Duration>) -> Option<Sleep> {
        Some(Sleep { want, linger, timeout })
    }

    #[test]
    fn without_linger_one_is_enough() {
        let pace = pace(8, Duration::ZERO, None, false);
        assert_eq!(pace.next_at(Duration::ZERO, 0, 9), sleep(1, Duration::ZERO, None));
        assert_eq!(pace.next_at(Duration::ZERO, 1, 8), None);
    }

    #[test]
    fn lingers_for_a_batch() {
        let pace = pace(8, 5 * MS, Some(20 * MS), false);
        assert_eq!(pace.next_at(Duration::ZERO, 0, 99), sleep(8, 5 * MS, Some(20 * MS)));
        assert_eq!(pace.next_at(2 * MS, 3, 96), sleep(5, Duration::ZERO, Some(3 * MS)));
        assert_eq!(pace.next_at(5 * MS, 3, 96), None);
        assert_eq!(pace.next_at(6 * MS, 0, 99), sleep(1, Duration::ZERO, Some(14 * MS)));
        assert_eq!(pace.next_at(20 * MS, 0, 99), None);
        // `want` is limited by the number in flight.
        assert_eq!(pace.next_at(Duration::ZERO, 0, 3), sleep(3, 5 * MS, Some(20 * MS)));
        assert_eq!(pace.next_at(Duration::ZERO, 3, 0), None);
    }

    #[test]
    fn an_endless_linger_waits_for_all_without_a_timer() {
        let pace = pace(8, Duration::MAX, None, false);
        assert_eq!(pace.next_at(Duration::ZERO, 0, 99), sleep(8, Duration::ZERO, None));
        assert_eq!(pace.next_at(Duration::ZERO, 3, 96), sleep(5, Duration::ZERO, None));
        assert_eq!(pace.next_at(Duration::ZERO, 3, 2), sleep(2, Duration::ZERO, None));
        assert_eq!(pace.next_at(Duration::ZERO, 3, 0), None);
    }

    #[test]
    fn never_sleeps_for_nothing() {
        assert_eq!(pace(1, Duration::ZERO, None, false).next_at(Duration::ZERO, 0, 0), None);
        let idle = pace(1, Duration::ZERO, None, true);
        assert_eq!(idle.next_at(Duration::ZERO, 0, 0), sleep(1, Duration::ZERO, None));
    }

    #[test]
    fn a_wake_is_seen_in_time() {
        let pace = pace(8, 50 * MS, None, true);
        assert_eq!(pace.next_at(Duration::ZERO, 0, 9), sleep(8, WAKE_DELAY_MAX, None));
        assert_eq!(pace.next_at(3 * MS, 1, 8), sleep(7, Duration::ZERO, Some(WAKE_DELAY_MAX)));
    }
}
