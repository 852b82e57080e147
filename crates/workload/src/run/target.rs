//! The search for the largest depth at which a device meets a latency target.
//!
//! As in fio, the depth is doubled while enough requests of a window are fast enough, and halved
//! towards the last good one otherwise. When the depth stays the same, all figures are discarded,
//! one more window is run, and the job ends.

use crate::job::Job;

/// The consequence of a finished window for the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Go,
    /// The depth was found. Discard all measurements so far, and measure one more window.
    CountAnew,
    /// The depth was held for one more window. End the job.
    End,
    /// Even one request at a time is too slow, so the search has failed.
    Missed,
}

pub(super) struct LatencyTarget {
    target_ns: u64,
    window_ns: u64,
    percent: f64,
    /// Whether the search continues until the job's time is over.
    goes_on: bool,
    depth: u32,
    low: u32,
    high: u32,
    depth_max: u32,
    stable: u32,
    ends: bool,
    window_begin_ns: u64,
    done: u64,
    slow: u64,
    /// Whether nothing is submitted until all requests in flight have completed, because the depth
    /// was lowered.
    drains: bool,
}

impl LatencyTarget {
    /// Returns `None` if the job has no latency target.
    pub(super) fn new(job: &Job, now_ns: u64) -> Option<Self> {
        let asked = job.latency_target?;
        let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Some(Self {
            target_ns: nanos(asked.latency),
            window_ns: nanos(asked.window),
            percent: asked.percent,
            goes_on: asked.goes_on,
            depth: 1,
            low: 1,
            high: job.depth,
            depth_max: job.depth,
            stable: 0,
            ends: false,
            window_begin_ns: now_ns,
            done: 0,
            slow: 0,
            drains: false,
        })
    }

    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    #[inline]
    pub(super) fn has_room(&mut self, in_flight: u32) -> bool {
        self.drains &= in_flight > 0;
        !self.drains && in_flight < self.depth
    }

    /// Counts a completed request. Returns `false` if its latency alone ends the job.
    #[inline]
    pub(super) fn done(&mut self, lat_ns: u64, now_ns: u64) -> bool {
        self.done += 1;
        if lat_ns > self.target_ns {
            self.slow += 1;
            if self.percent >= 100.0 {
                return self.lower(now_ns);
            }
        }
        true
    }

    #[inline]
    pub(super) fn check(&mut self, now_ns: u64) -> Verdict {
        if now_ns.saturating_sub(self.window_begin_ns) < self.window_ns || self.done == 0 {
            return Verdict::Go;
        }
        let fast = 100.0 * (self.done - self.slow) as f64 / self.done as f64;
        if fast < self.percent {
            return if self.lower(now_ns) { Verdict::Go } else { Verdict::Missed };
        }
        let before = self.depth;
        self.low = self.depth;
        if self.depth + 1 == self.high {
            self.stable += 1;
            if self.stable >= 3 {
                self.depth += 1;
                self.stable = 0;
            }
        }
        let next = match self.high == self.depth_max {
            true => self.depth.saturating_mul(2),
            false => self.depth.midpoint(self.high),
        };
        self.depth = next.min(self.depth_max);
        self.begin_window(now_ns);
        match (self.depth == before && !self.goes_on, self.ends) {
            (false, _) => Verdict::Go,
            (true, true) => Verdict::End,
            (true, false) => {
                self.ends = true;
                Verdict::CountAnew
            }
        }
    }

    /// Lowers the depth. Returns `false` if it cannot be lowered.
    fn lower(&mut self, now_ns: u64) -> bool {
        if self.depth == 1 {
            return false;
        }
        self.high = self.depth;
        if self.depth == self.low {
            self.low -= 1;
        }
        self.depth = self.depth.midpoint(self.low).max(1);
        self.stable = 0;
        self.drains = true;
        self.begin_window(now_ns);
        true
    }

    fn begin_window(&mut self, now_ns: u64) {
        (self.window_begin_ns, self.done, self.slow) = (now_ns, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use qpair_block::DeviceSpec;
    use qpair_kernel::Mode;

    use super::*;
    use crate::job::LatencyGoal;

    /// Searches on a device whose latency in microseconds is its depth.
    fn search(most_us: u64, depth_max: u32) -> (Vec<u32>, Verdict) {
        let mut job = Job::new("t", DeviceSpec::parse("null:size=1MiB").unwrap(), Mode::default());
        job.depth = depth_max;
        assert!(LatencyTarget::new(&job, 0).is_none());
        job.latency_target = Some(LatencyGoal {
            latency: Duration::from_micros(most_us),
            window: Duration::from_micros(100),
            percent: 90.0,
            goes_on: false,
        });
        let mut target = LatencyTarget::new(&job, 0).unwrap();
        let (mut now, mut depths) = (0, Vec::new());
        for _ in 0..100 {
            depths.push(target.depth());
            for _ in 0..10 {
                target.done(u64::from(target.depth()) * 1000, now);
            }
            now += 100_000;
            match target.check(now) {
                Verdict::Go | Verdict::CountAnew => assert!(target.has_room(0)),
                verdict => return (depths, verdict),
            }
        }
        panic!("{depths:?}");
    }

    #[test]
    fn the_deepest_queue_that_is_fast_enough_is_found() {
        let (depths, verdict) = search(20, 64);
        assert_eq!(depths[..6], [1, 2, 4, 8, 16, 32]);
        assert_eq!((depths.last(), verdict), (Some(&20), Verdict::End), "{depths:?}");
        assert_eq!(search(1000, 64), (vec![1, 2, 4, 8, 16, 32, 64, 64], Verdict::End));
        assert_eq!(search(0, 64), (vec![1], Verdict::Missed));
    }
}
