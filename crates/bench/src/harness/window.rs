//! The measured time of a run, and the beginning of its operations.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use qpair::Result;

use crate::harness::arrivals::Arrivals;

/// The measured time, in nanoseconds since its base. Clients check it at every operation.
pub(crate) struct Span {
    base: Instant,
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    /// Whether the run is to end early.
    pub(crate) stop: AtomicBool,
    arrivals: Option<Arrivals>,
}

impl Span {
    /// Begins a run that measures for `seconds` seconds, or until its clients have nothing left to
    /// do. `rate_per_s`: the mean number of operations that arrive a second, at random times;
    /// `None`: each client runs one operation after the other.
    pub(crate) fn begin_now(
        warm_up_s: f64,
        seconds: Option<f64>,
        rate_per_s: Option<f64>,
    ) -> Result<Self> {
        let from_ns = (warm_up_s * 1e9) as u64;
        Ok(Self {
            base: Instant::now(),
            from_ns,
            to_ns: seconds
                .map_or(u64::MAX, |seconds| from_ns.saturating_add((seconds * 1e9) as u64)),
            stop: AtomicBool::new(false),
            arrivals: Arrivals::of(rate_per_s, 1)?,
        })
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.base.elapsed().as_nanos() as u64
    }

    /// Whether an operation that ends at this time counts.
    pub(crate) fn measures(&self, ended_ns: u64) -> bool {
        ended_ns >= self.from_ns && ended_ns < self.to_ns
    }

    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.to_ns || self.stop.load(Ordering::Relaxed)
    }

    /// Waits in an open loop until the next operation is due, and sets `began_ns` to that time.
    /// Returns `false` if the run ends before. In a closed loop the operation begins at once.
    #[inline]
    pub(crate) async fn begin(&self, began_ns: &mut u64) -> bool {
        let Some(arrivals) = &self.arrivals else { return true };
        match arrivals.next(|| self.now_ns(), |now_ns| self.is_over(now_ns)).await {
            Some(due_ns) => *began_ns = due_ns,
            None => return false,
        }
        true
    }
}
