//! The probabilities of a simulated device's faults, and its latencies.

use qpair_block::Op;

/// The probabilities of faults for each request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SimFaults {
    /// The probability that a read fails, once.
    pub read_error: f64,
    /// The probability that a write fails. Each of its sectors is then old or new.
    pub write_error: f64,
    /// The probability that a flush fails. Some of the writes before it are then durable, some will
    /// be with the next flush, and some never.
    pub flush_error: f64,
    /// The probability that a read finds that one of its sectors has gone bad: the sector cannot be
    /// read until it is written.
    pub bad_sector: f64,
    /// The probability that a read finds a bit of its range flipped on the medium, permanently.
    pub bit_flip: f64,
}

/// The latencies of requests in virtual nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimLatency {
    /// The average latency of a read.
    pub read_ns: u64,
    /// The average latency of a write.
    pub write_ns: u64,
    /// The average latency of a flush; a write with FUA takes as long in addition to its own time.
    pub flush_ns: u64,
    /// The probability that a request takes fifty times as long.
    pub spike: f64,
}

impl Default for SimLatency {
    fn default() -> Self {
        Self { read_ns: 80_000, write_ns: 20_000, flush_ns: 80_000, spike: 0.002 }
    }
}

impl SimLatency {
    /// Draws the latency of one request.
    pub(super) fn sample(&self, op: Op, force_unit_access: bool, rng: &mut fastrand::Rng) -> u64 {
        let mean_ns = match op {
            Op::Read => self.read_ns,
            Op::Flush => self.flush_ns,
            _ if force_unit_access => self.write_ns.saturating_add(self.flush_ns),
            _ => self.write_ns,
        };
        let mut ns = mean_ns / 2 + rng.u64(0..=mean_ns);
        if rng.u8(..) < 16 {
            ns = ns.saturating_mul(4);
        }
        if happens(self.spike, rng) {
            ns = ns.saturating_mul(50);
        }
        ns.max(1)
    }
}

/// Draws a random number only if `probability` is not 0.
pub(super) fn happens(probability: f64, rng: &mut fastrand::Rng) -> bool {
    probability > 0.0 && rng.f64() < probability
}
