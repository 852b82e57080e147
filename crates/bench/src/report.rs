//! Parts that the reports of several benchmarks have.

use hdrhistogram::Histogram;
use qpair::unstable::WorkerCycles;
use serde::Serialize;

/// Latencies of operations in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct LatencyReport {
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The maximum.
    pub max: f64,
}

impl LatencyReport {
    /// Converts a histogram of nanoseconds.
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        let us = |ns: u64| ns as f64 / 1000.0;
        Self {
            mean: histogram.mean() / 1000.0,
            p50: us(histogram.value_at_quantile(0.5)),
            p99: us(histogram.value_at_quantile(0.99)),
            p999: us(histogram.value_at_quantile(0.999)),
            max: us(histogram.max()),
        }
    }
}

/// A part of the workers' loop, with the time that it took.
#[derive(Clone, Debug, Serialize)]
pub struct PartReport {
    /// The name of the part.
    pub part: &'static str,
    /// The share of the time of all workers, including waiting.
    pub share: f64,
    /// Microseconds per operation.
    pub us_per_op: f64,
}

impl PartReport {
    /// Returns the parts for workers that did `ops` operations in `wall_s` seconds; empty if cycles
    /// were not counted.
    pub(crate) fn of(cycles: &WorkerCycles, wall_s: f64, ops: u64) -> Vec<Self> {
        let us_per_op = wall_s * 1e6 * cycles.workers as f64 / ops.max(1) as f64;
        let of = |(part, share)| Self { part, share, us_per_op: share * us_per_op };
        cycles.shares().map(of).collect()
    }
}

pub(crate) fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}
