//! Histograms of durations, with powers of two as bounds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The number of buckets. The last one has all durations from 2^26 microseconds (about a minute)
/// on.
const BUCKETS: usize = 28;

/// The distribution of durations. Bucket `n` counts the durations below `2^n` microseconds that no
/// lower bucket counts; the last bucket has no bound.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// table.put(b"k", b"v")?;
/// let latency = store.metrics()?.commit_latency_us;
/// println!("{} commits, p99 {} us", latency.count(), latency.quantile_us(0.99));
/// assert!(latency.quantile_us(0.5) <= latency.max_us());
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    sum_us: u64,
    max_us: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], sum_us: 0, max_us: 0 }
    }
}

impl Histogram {
    /// Creates a histogram from the counts that another process reported: one count for each bucket
    /// in order, the sum and the maximum in microseconds. Returns `None` if the number of buckets
    /// differs.
    #[must_use]
    pub fn from_counts(counts: &[u64], sum_us: u64, max_us: u64) -> Option<Self> {
        let buckets = counts.try_into().ok()?;
        Some(Self { buckets, sum_us, max_us })
    }

    /// Returns the number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of all durations in microseconds.
    #[must_use]
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// Returns the longest duration in microseconds.
    #[must_use]
    pub fn max_us(&self) -> u64 {
        self.max_us
    }

    /// Returns the bound of each bucket in microseconds, and the number of durations in it. The
    /// last bucket has no bound.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let bound = |index| (index + 1 < BUCKETS).then_some(1u64 << index);
        self.buckets.iter().enumerate().map(move |(index, count)| (bound(index), *count))
    }

    /// Returns a bound in microseconds below which this share (0 to 1) of the durations lies. It is
    /// at most twice the smallest such bound.
    #[must_use]
    pub fn quantile_us(&self, share: f64) -> u64 {
        let wanted = (self.count() as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bound, count) in self.buckets() {
            seen += count;
            if seen >= wanted.max(1) {
                return bound.unwrap_or(self.max_us).min(self.max_us);
            }
        }
        0
    }
}

#[derive(Debug, Default)]
pub(crate) struct Recording {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
    max_us: AtomicU64,
}

impl Recording {
    pub(crate) fn record(&self, duration: Duration) {
        let us = duration.as_micros() as u64;
        let bucket = (u64::BITS - us.leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
        // Most values are not the longest so far, and then no other core loses its cache line.
        if us > self.max_us.load(Ordering::Relaxed) {
            self.max_us.fetch_max(us, Ordering::Relaxed);
        }
    }

    pub(crate) fn add_to(&self, histogram: &mut Histogram) {
        for (sum, bucket) in histogram.buckets.iter_mut().zip(&self.buckets) {
            *sum += bucket.load(Ordering::Relaxed);
        }
        histogram.sum_us += self.sum_us.load(Ordering::Relaxed);
        histogram.max_us = histogram.max_us.max(self.max_us.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_bounds() {
        let recording = Recording::default();
        for us in (0..100).chain([5000, 1 << 40]) {
            recording.record(Duration::from_micros(us));
        }
        let mut histogram = Histogram::default();
        recording.add_to(&mut histogram);
        assert_eq!((histogram.count(), histogram.max_us()), (102, 1 << 40));
        assert_eq!((histogram.quantile_us(0.5), histogram.quantile_us(0.98)), (64, 128));
        assert_eq!((histogram.quantile_us(0.99), histogram.quantile_us(1.0)), (8192, 1 << 40));
        assert_eq!(Histogram::default().quantile_us(0.5), 0);
        let counts: Vec<u64> = histogram.buckets().map(|(_, count)| count).collect();
        assert_eq!(counts.iter().sum::<u64>(), 102);
        let told = Histogram::from_counts(&counts, histogram.sum_us(), histogram.max_us());
        assert_eq!(told, Some(histogram));
        assert_eq!(Histogram::from_counts(&counts[1..], 0, 0), None);
    }
}
