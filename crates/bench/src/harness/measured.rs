//! The results of a run.

use hdrhistogram::Histogram;

use crate::kv::KvStatistics;
use crate::report::PartReport;

/// The counts of one kind of requests.
pub(crate) struct KindTally {
    /// Requests that ended without a commit, as the workload intended.
    pub(crate) rolled_back: u64,
    /// Attempts that ended with a conflict.
    pub(crate) conflicts: u64,
    /// Requests that needed more than one attempt.
    pub(crate) retried: u64,
    /// Latencies of all requests, in nanoseconds.
    pub(crate) histogram: Histogram<u64>,
}

impl KindTally {
    pub(crate) fn count(&self) -> u64 {
        self.histogram.len()
    }
}

/// The counts of a run. The default has no requests.
#[derive(Default)]
pub(crate) struct Measured {
    pub(crate) wall_s: f64,
    /// The number of clients that ran while it was measured.
    pub(crate) clients: usize,
    pub(crate) cpu_s: f64,
    /// The part of `cpu_s` in the kernel.
    pub(crate) kernel_s: f64,
    pub(crate) kinds: Vec<KindTally>,
    /// The weight of the requests of each second.
    pub(crate) by_second: Vec<u64>,
    /// The counts of the system during the run. `store_bytes` is the size at the end.
    pub(crate) system: KvStatistics,
}

/// Returns a count divided by the number of operations.
pub(crate) fn per(ops: u64, count: u64) -> f64 {
    count as f64 / ops.max(1) as f64
}

impl Measured {
    pub(crate) fn requests(&self) -> u64 {
        self.kinds.iter().map(KindTally::count).sum()
    }

    /// Returns the sum of the requests' weights.
    pub(crate) fn weight(&self) -> u64 {
        self.by_second.iter().sum()
    }

    /// Returns a count divided by the seconds of the run; 0 if nothing was run.
    pub(crate) fn per_s(&self, count: u64) -> f64 {
        if self.wall_s > 0.0 { count as f64 / self.wall_s } else { 0.0 }
    }

    /// Returns the processor time for each of `ops` operations in microseconds.
    pub(crate) fn cpu_us_per(&self, ops: u64) -> f64 {
        self.cpu_s * 1e6 / ops.max(1) as f64
    }

    /// Returns the mean latency of the timed reads of the device in microseconds.
    pub(crate) fn device_read_us(&self) -> Option<f64> {
        self.system.device_reads_timed.map(|(reads, us)| per(reads, us))
    }

    /// Returns the breakdown of the workers' time over `ops` operations.
    pub(crate) fn parts(&self, ops: u64) -> Vec<PartReport> {
        PartReport::of(&self.system.cycles, self.wall_s, ops)
    }
}
