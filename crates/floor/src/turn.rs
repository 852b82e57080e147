//! The loop that floor and driver share: all slots are in flight, and a completed slot is submitted
//! again with another place.

use std::time::{Duration, Instant};

use qpair_block::Result;
use qpair_workload::Latencies;

use crate::load::Load;

/// A queue with one slot for each I/O of the load that may be in flight.
pub(crate) trait Slots {
    /// Submits the I/O of a slot at a place.
    fn submit(&mut self, slot: u16, offset_bytes: u64) -> Result<()>;
    /// Appends the slots whose I/O has completed, without waiting.
    fn poll(&mut self, done: &mut Vec<u16>) -> Result<()>;
    /// Returns the number of doorbells rung; `None` if they are not counted.
    fn doorbells(&self) -> Option<u64> {
        None
    }
    /// Returns the number of system calls, and of I/Os whose data the driver copied.
    fn calls_and_copies(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// The places of the I/Os of one job.
pub(crate) struct Places {
    random: Option<fastrand::Rng>,
    block_bytes: u64,
    begin_bytes: u64,
    blocks: u64,
    next: u64,
}

impl Places {
    /// Returns the places of a job on a drive of `size_bytes`: random places on the whole drive, or
    /// sequential ones in a part of the job's own.
    pub(crate) fn new(load: &Load, job: u32, size_bytes: u64, seed: u64) -> Self {
        let block_bytes = u64::from(load.workload.block_bytes);
        let (begin, blocks) = part(load, job, size_bytes);
        let rng = fastrand::Rng::with_seed(seed.wrapping_add(u64::from(job)));
        let random = load.workload.random.then_some(rng);
        Self { random, block_bytes, begin_bytes: begin, blocks, next: 0 }
    }

    #[inline]
    fn next(&mut self) -> u64 {
        let block = match &mut self.random {
            Some(random) => random.u64(0..self.blocks),
            None => {
                let block = self.next;
                self.next = if block + 1 == self.blocks { 0 } else { block + 1 };
                block
            }
        };
        self.begin_bytes + block * self.block_bytes
    }
}

/// Returns the first byte of a job's part, and its number of blocks.
pub(crate) fn part(load: &Load, job: u32, size_bytes: u64) -> (u64, u64) {
    let block = u64::from(load.workload.block_bytes);
    let parts = if load.workload.random { 1 } else { u64::from(load.jobs) };
    let blocks = size_bytes / block / parts;
    let begin = if load.workload.random { 0 } else { u64::from(job) * blocks * block };
    (begin, blocks)
}

/// The length of a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Length {
    /// The time before the measurement.
    pub(crate) ramp: Duration,
    /// The measured time.
    pub(crate) run: Duration,
}

/// The counts of one job.
pub(crate) struct Counted {
    pub(crate) latencies: Latencies,
    pub(crate) seconds: f64,
    /// The number of submitted I/Os, counted or not.
    pub(crate) submitted: u64,
}

/// The number of empty polls between two readings of the clock.
const EMPTY_POLLS: u32 = 256;

/// Runs one job's turn. At its end no I/O is in flight.
pub(crate) fn turn(
    slots: &mut dyn Slots,
    load: &Load,
    mut places: Places,
    length: Length,
    stop: &dyn Fn() -> bool,
) -> Result<Counted> {
    let begin = Instant::now();
    let (from, end) = (begin + length.ramp, begin + length.ramp + length.run);
    let mut started = vec![begin; load.depth as usize];
    let mut done: Vec<u16> = (0..load.depth as u16).collect();
    let mut counted = Counted { latencies: Latencies::default(), seconds: 0.0, submitted: 0 };
    let (mut under_way, mut last, mut empty) = (0_u32, from, 0);
    let mut now = begin;
    loop {
        for slot in done.drain(..) {
            started[usize::from(slot)] = now;
            slots.submit(slot, places.next())?;
            counted.submitted += 1;
            under_way += 1;
        }
        slots.poll(&mut done)?;
        if done.is_empty() {
            empty += 1;
            if empty < EMPTY_POLLS {
                continue;
            }
        }
        empty = 0;
        now = Instant::now();
        under_way -= done.len() as u32;
        if now >= from && !done.is_empty() {
            for slot in &done {
                let latency = now.duration_since(started[usize::from(*slot)]);
                counted.latencies.record(latency.as_nanos() as u64);
            }
            last = now;
        }
        // At least one I/O is counted, even if other programs had the processor all the time.
        if (now >= end && !counted.latencies.is_empty()) || stop() {
            break;
        }
    }
    while under_way > 0 {
        done.clear();
        slots.poll(&mut done)?;
        under_way -= done.len() as u32;
    }
    counted.seconds = last.duration_since(from).as_secs_f64();
    Ok(counted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Workload;

    /// A queue that completes I/Os in the reverse order, and records their places.
    #[derive(Default)]
    struct Backwards {
        under_way: Vec<u16>,
        places: Vec<u64>,
        most: usize,
    }

    impl Slots for Backwards {
        fn submit(&mut self, slot: u16, offset_bytes: u64) -> Result<()> {
            assert!(!self.under_way.contains(&slot), "it is under way");
            self.under_way.push(slot);
            self.places.push(offset_bytes);
            self.most = self.most.max(self.under_way.len());
            Ok(())
        }

        fn poll(&mut self, done: &mut Vec<u16>) -> Result<()> {
            done.extend(self.under_way.pop());
            Ok(())
        }
    }

    fn load(name: &str, depth: u32, jobs: u32) -> Load {
        Load { workload: Workload::named(name).unwrap(), depth, jobs }
    }

    #[test]
    fn every_slot_is_kept_under_way_and_ends() {
        let mut slots = Backwards::default();
        let load = load("randread", 4, 1);
        let places = Places::new(&load, 0, 1 << 20, 1);
        let length = Length { ramp: Duration::from_millis(1), run: Duration::from_millis(20) };
        let counted = turn(&mut slots, &load, places, length, &|| false).unwrap();
        assert!(slots.under_way.is_empty() && slots.most == 4);
        assert_eq!(counted.submitted, slots.places.len() as u64);
        assert!(counted.latencies.len() < counted.submitted, "the ramp does not count");
        assert!(counted.seconds > 0.0);
        assert!(slots.places.iter().all(|at| *at < 1 << 20 && at.is_multiple_of(4096)));
        let mut places = slots.places;
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 256, "all of the drive");
    }

    #[test]
    fn sequential_jobs_have_parts_of_their_own() {
        let load = load("read128k", 1, 3);
        for job in 0..3 {
            let mut places = Places::new(&load, job, 1 << 20, 1);
            let seen: Vec<u64> = (0..4).map(|_| places.next() >> 17).collect();
            let first = u64::from(job) * 2;
            assert_eq!(seen, [first, first + 1, first, first + 1]);
        }
    }

    #[test]
    fn a_slow_drive_is_waited_for_and_a_stop_ends_it() {
        struct Late(Option<u16>, u32);
        impl Slots for Late {
            fn submit(&mut self, slot: u16, _: u64) -> Result<()> {
                self.0 = Some(slot);
                Ok(())
            }

            fn poll(&mut self, done: &mut Vec<u16>) -> Result<()> {
                self.1 += 1;
                if self.1 > 3_000_000 {
                    done.extend(self.0.take());
                }
                Ok(())
            }
        }
        let load = load("randread", 1, 1);
        let places = || Places::new(&load, 0, 1 << 20, 1);
        let length = Length { ramp: Duration::ZERO, run: Duration::from_millis(1) };
        let counted = turn(&mut Late(None, 0), &load, places(), length, &|| false).unwrap();
        assert_eq!(counted.latencies.len(), 1);
        assert!(counted.seconds >= 0.001);
        let long = Length { ramp: Duration::ZERO, run: Duration::from_secs(1000) };
        let counted = turn(&mut Late(None, 0), &load, places(), long, &|| true).unwrap();
        assert!(counted.latencies.is_empty());
    }
}
