//! The timeout policy: how long a queue without work is polled before it goes idle.

use std::time::Duration;

/// The longest and the shortest useful times. Below the shortest, a queue goes idle at once.
const LONGEST: Duration = Duration::from_micros(200);
const SHORTEST: Duration = Duration::from_micros(10);

/// The time for which a queue is polled, as learnt so far. It is doubled when polling for at most
/// `LONGEST` would have seen the next work, and halved when it would not. A guest with long pauses
/// then costs no processor time, and a quick one no wake-ups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PollTime(Duration);

impl PollTime {
    pub(crate) fn new() -> Self {
        Self(LONGEST)
    }

    /// Returns how long to poll now.
    pub(crate) fn time(self) -> Duration {
        self.0
    }

    /// Learns that the queue went idle and had something to do again after this time.
    pub(crate) fn learn(&mut self, idle: Duration) {
        self.0 = match self.0 + idle < LONGEST {
            true => (2 * self.0).clamp(SHORTEST, LONGEST),
            false if self.0 < 2 * SHORTEST => Duration::ZERO,
            false => self.0 / 2,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_pays_ends_and_what_would_have_paid_comes_back() {
        let mut poll_time = PollTime::new();
        let mut times = Vec::new();
        for idle_us in [50, 1_000, 1_000, 1_000, 1_000, 50, 199, 200, 50, 50, 50, 50, 50, 30] {
            poll_time.learn(Duration::from_micros(idle_us));
            times.push(poll_time.time().as_nanos() / 100);
        }
        assert_eq!(times, [1_000, 500, 250, 125, 0, 100, 0, 0, 100, 200, 400, 800, 1_600, 2_000]);
    }
}
