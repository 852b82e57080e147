//! Reports the state of a job's thread while it runs.

use std::time::Duration;

use crate::report::CpuReport;

use super::{Counters, LOOK, Outcome, Thread};

impl Thread<'_> {
    #[inline]
    pub(super) fn is_asked(&self) -> bool {
        self.desk.is_some_and(|desk| desk.asked() != self.answered)
    }

    /// Returns the longest wait for a completion; `None` (no limit) if no watcher may ask for the
    /// state.
    pub(super) fn wait_limit(&self) -> Option<Duration> {
        self.desk.map(|_| LOOK)
    }

    /// Leaves the thread's state at the desk, during the measurement or before it.
    #[cold]
    pub(super) fn answer(&mut self, counters: &mut Counters, in_ramp: bool) {
        let now = self.common.now_ns();
        let outcome = if in_ramp {
            self.outcome(self.record.nothing(now), CpuReport::default(), (now, now), true)
        } else {
            let calls = self.channels.statistics().system_calls;
            let cpu = counters.end(calls - self.statistics_before.system_calls);
            let span = (self.record.begin_ns(), now);
            self.outcome(self.record.so_far(now), cpu, span, false)
        };
        self.leave(outcome);
    }

    /// Leaves the thread's state if asked during verification: the earlier measurement, and the
    /// blocks verified so far.
    pub(super) fn answer_verifying(&mut self) {
        if let (true, Some(before)) = (self.is_asked(), &self.before_verify) {
            let span = (before.begin_ns, before.end_ns);
            let outcome = self.outcome(before.record.copy(), before.cpu, span, before.in_ramp);
            self.leave(outcome);
        }
    }

    fn leave(&mut self, outcome: Outcome) {
        if let Some(desk) = self.desk {
            self.answered = desk.asked();
            desk.leave(self.answered, outcome);
        }
    }
}
