//! Measures elapsed time and processor time.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Returns the processor time of all threads of the process, user and system.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// The start of a measured interval.
pub(crate) struct Stretch {
    began: Instant,
    cpu: Duration,
}

impl Stretch {
    pub(crate) fn begin() -> Self {
        Self { began: Instant::now(), cpu: cpu_time() }
    }

    /// Returns the elapsed time and the processor time since the start.
    pub(crate) fn end(&self) -> (Duration, Duration) {
        (self.began.elapsed(), cpu_time().saturating_sub(self.cpu))
    }
}
