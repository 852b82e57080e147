//! What time and processor time have passed.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Processor time of the process, all threads, user and system.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// A stretch of time being measured.
pub(crate) struct Stretch {
    began: Instant,
    cpu: Duration,
}

impl Stretch {
    pub(crate) fn begin() -> Self {
        Self { began: Instant::now(), cpu: cpu_time() }
    }

    /// Wall time and processor time since.
    pub(crate) fn end(&self) -> (Duration, Duration) {
        (self.began.elapsed(), cpu_time().saturating_sub(self.cpu))
    }
}
