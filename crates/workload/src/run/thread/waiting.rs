//! Waits for completions, and until given times.

use std::time::Duration;

use qpair_block::WaitOptions;

use super::Thread;

impl Thread<'_> {
    #[inline]
    pub(super) fn wait(&mut self, want: u32, timeout: Option<Duration>) {
        let options = WaitOptions {
            want: want.max(1),
            linger: if want > 1 { Duration::MAX } else { Duration::ZERO },
            timeout,
        };
        self.channels.wait(&mut self.completions, options);
    }

    pub(super) fn look(&mut self) {
        self.channels.look(&mut self.completions);
    }

    /// Sleeps with nothing in flight.
    pub(super) fn sleep_until(&self, due_ns: u64) -> u64 {
        self.common.sleep_towards(due_ns);
        self.common.now_ns()
    }
}
