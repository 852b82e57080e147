//! A host in virtual time. It keeps a number of commands in flight, and sends the next one when one
//! completes.

#![allow(
    clippy::unwrap_used,
    reason = "what tests and examples stand on should panic where it is misused"
)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use qpair_softdev::flash::{Flash, Op, Profile};

/// The load that the host puts on the drive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) depth: usize,
    pub(crate) bytes: u64,
    /// The share of commands that read; the others write.
    pub(crate) reads: f64,
    /// Whether the commands are in order. Otherwise they are at random places.
    pub(crate) sequential: bool,
    /// Whether writes are forced to the medium.
    pub(crate) fua: bool,
    /// The number of writes after which the host flushes; 0 for never.
    pub(crate) flush_every: u64,
}

impl Default for Load {
    fn default() -> Self {
        Self { depth: 1, bytes: 4096, reads: 1.0, sequential: false, fua: false, flush_every: 0 }
    }
}

/// The result of a load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) commands: u64,
    pub(crate) elapsed_ns: u64,
    pub(crate) bytes: u64,
    /// Latencies of reads in nanoseconds, sorted.
    pub(crate) read_ns: Vec<u64>,
    pub(crate) write_ns: Vec<u64>,
}

impl Outcome {
    pub(crate) fn iops(&self) -> f64 {
        self.commands as f64 * 1e9 / self.elapsed_ns as f64
    }

    pub(crate) fn mb_per_s(&self) -> f64 {
        self.bytes as f64 * 1e3 / self.elapsed_ns as f64
    }
}

/// Returns the latency in microseconds below which the given share of `sorted` lies.
pub(crate) fn percentile_us(sorted: &[u64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).map_or(0.0, |ns| *ns as f64 / 1e3)
}

/// A drive with a host.
pub(crate) struct Rig {
    pub(crate) flash: Flash,
    pub(crate) now_ns: u64,
    capacity_bytes: u64,
    next_byte: u64,
    writes: u64,
    rng: fastrand::Rng,
}

impl Rig {
    pub(crate) fn new(profile: &str, capacity_bytes: u64) -> Self {
        let profile: Profile = profile.parse().unwrap();
        Self {
            flash: Flash::new(profile, capacity_bytes, 1).unwrap(),
            now_ns: 0,
            capacity_bytes,
            next_byte: 0,
            writes: 0,
            rng: fastrand::Rng::with_seed(2),
        }
    }

    /// Runs this many commands, starting with an empty queue.
    pub(crate) fn run(&mut self, load: Load, commands: u64) -> Outcome {
        let mut outcome = Outcome::default();
        let start_ns = self.now_ns;
        let mut flying: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
        for _ in 0..commands {
            if flying.len() == load.depth
                && let Some(Reverse(done_ns)) = flying.pop()
            {
                self.now_ns = self.now_ns.max(done_ns);
            }
            let read = self.rng.f64() < load.reads;
            self.writes += u64::from(!read);
            let flush =
                !read && load.flush_every > 0 && self.writes.is_multiple_of(load.flush_every + 1);
            let op = if read {
                Op::Read
            } else if flush {
                Op::Flush
            } else {
                Op::Write
            };
            let first_byte = if load.sequential {
                let at = self.next_byte;
                self.next_byte = (at + load.bytes) % self.capacity_bytes;
                at
            } else {
                self.rng.u64(0..self.capacity_bytes / load.bytes) * load.bytes
            };
            let done_ns = self.flash.schedule(self.now_ns, op, first_byte, load.bytes, load.fua);
            assert!(done_ns > self.now_ns);
            let latencies = if read { &mut outcome.read_ns } else { &mut outcome.write_ns };
            latencies.push(done_ns - self.now_ns);
            if op != Op::Flush {
                outcome.bytes += load.bytes;
            }
            flying.push(Reverse(done_ns));
        }
        while let Some(Reverse(done_ns)) = flying.pop() {
            self.now_ns = self.now_ns.max(done_ns);
        }
        outcome.commands = commands;
        outcome.elapsed_ns = (self.now_ns - start_ns).max(1);
        outcome.read_ns.sort_unstable();
        outcome.write_ns.sort_unstable();
        outcome
    }

    /// Writes the whole drive once, in order.
    pub(crate) fn fill(&mut self) {
        self.next_byte = 0;
        let load =
            Load { depth: 32, bytes: 128 << 10, reads: 0.0, sequential: true, ..Load::default() };
        self.run(load, self.capacity_bytes / load.bytes);
    }

    /// Restricts the load to this many bytes from now on.
    pub(crate) fn limit(&mut self, bytes: u64) {
        self.capacity_bytes = bytes;
        self.next_byte = 0;
    }

    /// Lets the drive be idle.
    pub(crate) fn rest_ms(&mut self, ms: u64) {
        self.now_ns += ms * 1_000_000;
    }
}
