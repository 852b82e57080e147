//! Histograms of latencies over time, as in fio's `write_hist_log`.
//!
//! Invariant: a request is in one interval, and intervals end at multiples of their length from the
//! beginning of the measurement.

use std::time::Duration;

use crate::job::Direction;
use crate::report::HistogramSample;

use super::thread::nanos;

/// The number of buckets of fio's histogram: 29 groups of 64.
pub(crate) const BUCKETS: usize = 29 * 64;

/// Returns the bucket of a latency. Up to 128 ns there is one bucket for each nanosecond. Then each
/// group of 64 spans twice as much as the one before.
#[inline]
pub(crate) fn bucket(ns: u64) -> usize {
    let dropped = (u64::BITS - ns.leading_zeros()).saturating_sub(7);
    if dropped == 0 {
        return ns as usize;
    }
    let at = (u64::from(dropped) + 1) * 64 + ((ns >> dropped) & 63);
    (at as usize).min(BUCKETS - 1)
}

pub(crate) struct Histograms {
    every_ns: u64,
    begin_ns: u64,
    end_ns: u64,
    /// Requests of the current interval in each bucket, by direction.
    counts: [Vec<u32>; 3],
    last_bytes: [u32; 3],
    pub(crate) done: Vec<HistogramSample>,
}

impl Histograms {
    pub(crate) fn new(every: Duration, begin_ns: u64) -> Self {
        let every_ns = nanos(every).max(1);
        let end_ns = begin_ns.saturating_add(every_ns);
        let counts = [const { Vec::new() }; 3];
        Self { every_ns, begin_ns, end_ns, counts, last_bytes: [0; 3], done: Vec::new() }
    }

    pub(crate) fn again(&self, begin_ns: u64) -> Self {
        Self::new(Duration::from_nanos(self.every_ns), begin_ns)
    }

    #[inline]
    pub(crate) fn record(&mut self, direction: Direction, len_bytes: u32, ns: u64) {
        let at = direction as usize;
        let counts = &mut self.counts[at];
        if counts.is_empty() {
            counts.resize(BUCKETS, 0);
        }
        counts[bucket(ns)] += 1;
        self.last_bytes[at] = len_bytes;
    }

    /// Closes an interval that is over.
    #[inline]
    pub(crate) fn turn(&mut self, now_ns: u64) {
        if now_ns >= self.end_ns {
            let over_ns = now_ns - self.end_ns;
            self.close(now_ns - over_ns % self.every_ns);
        }
    }

    pub(crate) fn close(&mut self, end_ns: u64) {
        let end = Duration::from_nanos(end_ns.saturating_sub(self.begin_ns));
        for direction in Direction::ALL {
            let at = direction as usize;
            let counts = &mut self.counts[at];
            let used = counts.iter_mut().enumerate().filter(|(_, count)| **count > 0);
            let buckets: Vec<_> =
                used.map(|(bucket, count)| (bucket as u16, std::mem::take(count))).collect();
            if !buckets.is_empty() {
                let block_bytes = self.last_bytes[at];
                self.done.push(HistogramSample { end, direction, block_bytes, buckets });
            }
        }
        self.end_ns = end_ns.saturating_add(self.every_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_hold_each_request_once() {
        let ms = |ms: u64| 500 + ms * 1_000_000;
        let mut some = Histograms::new(Duration::from_millis(100), ms(0));
        for (at, ns) in [(10, 100), (20, 100), (90, 5_000)] {
            some.record(Direction::Read, 4096, ns);
            some.turn(ms(at));
        }
        some.record(Direction::Write, 8192, 100);
        some.turn(ms(250));
        some.record(Direction::Read, 512, 1 << 40);
        some.close(ms(260));
        let ends: Vec<_> = some.done.iter().map(|s| (s.end.as_millis(), s.direction)).collect();
        let (read, write) = (Direction::Read, Direction::Write);
        assert_eq!(ends, [(200, read), (200, write), (260, read)]);
        assert_eq!(some.done[0].buckets, [(100, 2), (bucket(5_000) as u16, 1)]);
        assert_eq!((some.done[1].block_bytes, some.done[2].block_bytes), (8192, 512));
        assert_eq!(some.done[2].buckets, [(BUCKETS as u16 - 1, 1)]);
    }

    #[test]
    fn buckets_are_in_order() {
        for (ns, at) in
            [(0, 0), (127, 127), (128, 128), (129, 128), (130, 129), (255, 191), (256, 192)]
        {
            assert_eq!(bucket(ns), at, "{ns}");
        }
        assert!((0..1 << 20).map(bucket).is_sorted());
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }
}
