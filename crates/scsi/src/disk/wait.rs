//! Waits for completions, by polling or asleep.

use std::time::{Duration, Instant};

use qpair_block::{Completion, WaitClock, WaitOptions};

use super::channel::ScsiChannel;

/// The number of polls of the queue between two checks of the clock and the wake event.
const LOOKS: u32 = 64;
/// The longest sleep while a flush waits for other threads.
const LOOK_SLEEP: Duration = Duration::from_millis(1);

impl ScsiChannel {
    pub(crate) fn wait_for(
        &mut self,
        completions: &mut Vec<Completion>,
        options: WaitOptions,
    ) -> usize {
        let before = completions.len();
        self.turn(completions);
        let in_flight = self.taken + (completions.len() - before) as u32;
        let clock = WaitClock::start(options, in_flight);
        let sleeps = self.queue().interrupt().is_some();
        let mut looks = 0u32;
        loop {
            let got = completions.len() - before;
            if clock.is_enough(got) {
                break;
            }
            let end = clock.end(got);
            if self.taken == 0 {
                // Only the time-out can end this wait.
                if end.is_none() && self.wake.is_none() {
                    break;
                }
                if end.is_some_and(|end| end <= Instant::now()) || self.sleep(end) {
                    break;
                }
                continue;
            }
            if sleeps {
                // Do work that others wait for, and check the clock. Then poll once more.
                self.tend(completions);
                self.turn(completions);
                let (got, now) = (completions.len() - before, Instant::now());
                if clock.is_over(got, now) {
                    break;
                }
                let slice = match self.awaits_looks() {
                    true => LOOK_SLEEP,
                    false => self.queue().sleep_max(),
                };
                let slice = now.checked_add(slice);
                let until = [clock.end(got), slice].into_iter().flatten().min();
                let woken = self.sleep(until);
                let was_silent = !woken && until.is_some_and(|until| until <= Instant::now());
                let known = completions.len();
                self.turn(completions);
                if was_silent && completions.len() > known && !self.awaits_looks() {
                    self.statistics.timeouts_polled += 1;
                }
                if woken {
                    break;
                }
                continue;
            }
            looks += 1;
            if looks % LOOKS == 1 {
                let now = Instant::now();
                if end.is_some_and(|end| end <= now) {
                    break;
                }
                if let Some(wake) = self.wake.as_ref().filter(|wake| wake.is_signalled()) {
                    wake.clear();
                    self.turn(completions);
                    break;
                }
                self.tend(completions);
                self.nap(now, end);
            }
            self.turn(completions);
            std::hint::spin_loop();
        }
        self.event.tell(self.taken, &mut self.statistics);
        completions.len() - before
    }

    /// Sleeps until the time that a device on this thread has announced for its next work, because
    /// nothing completes before.
    fn nap(&mut self, now: Instant, end: Option<Instant>) {
        const NAP_MAX: Duration = Duration::from_micros(100);
        let Some(due) = self.queue().due() else { return };
        let until = end.map_or(due, |end| end.min(due));
        let nap = until.saturating_duration_since(now).min(NAP_MAX);
        if nap > Duration::from_micros(60) {
            std::thread::sleep(nap);
        }
    }

    /// Sleeps until the interrupt, the wake event or `end`. Returns whether the wake event ended
    /// it.
    fn sleep(&mut self, end: Option<Instant>) -> bool {
        let timeout = end.map(|end| end.saturating_duration_since(Instant::now()));
        self.statistics.system_calls += 1;
        let wake = self.wake.clone();
        let interrupt = self.queue().interrupt();
        let has_interrupt = interrupt.is_some();
        let woken = qpair_block::sleep(interrupt, wake.as_deref(), timeout);
        if has_interrupt {
            // Cleared before the next poll: a later completion signals again.
            self.statistics.system_calls += 1;
            self.queue().clear_interrupt();
        }
        if let (true, Some(wake)) = (woken, &self.wake) {
            wake.clear();
        }
        woken
    }
}
