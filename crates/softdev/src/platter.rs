//! A timing model of a rotating disk in virtual time, like `flash`. The same calls with the same
//! times give the same answers.
//!
//! The disk has one arm and serves one request at a time, in the order of arrival. A request waits
//! for the requests before it, for the arm, for the sector to come by, and for its bytes to pass
//! under the head. A request that continues where the last one ended costs no seek: its data is
//! read ahead, or follows in the same turn. With the write cache in use, a write is complete when
//! the cache has it, as long as the arm is not too far behind.

use qpair_block::Op;

/// The time of one turn, at 7200 turns a minute.
const TURN_NS: u64 = 60_000_000_000 / ROTATION as u64;
/// Turns a minute.
pub(crate) const ROTATION: u16 = 7200;
/// The seek times to the next track, and from the first track to the last.
const SEEK_MIN_NS: f64 = 500_000.0;
const SEEK_MAX_NS: f64 = 16_000_000.0;
/// The rates at the first block and at the last, in million bytes a second.
const RATE_FIRST: f64 = 260.0;
const RATE_LAST: f64 = 130.0;
/// The rate of the interface in million bytes a second, and the time that the disk adds to each
/// command.
const LINK: f64 = 1100.0;
const CONTROLLER_NS: u64 = 50_000;
/// The maximum time that the arm may be behind the writes that the cache has taken.
const BEHIND_NS: u64 = 500_000_000;

#[derive(Debug)]
pub(crate) struct Platter {
    capacity_bytes: u64,
    /// The byte under the head when the arm becomes free at `free_ns`.
    head: u64,
    free_ns: u64,
}

impl Platter {
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        Self { capacity_bytes: capacity_bytes.max(1), head: 0, free_ns: 0 }
    }

    /// Returns when a command that came at `now_ns` is done. With `cached`, a write may end in the
    /// cache.
    pub(crate) fn schedule(&mut self, now_ns: u64, op: Op, at: u64, len: u64, cached: bool) -> u64 {
        let begun = now_ns + CONTROLLER_NS;
        match op {
            Op::Flush => return begun.max(self.free_ns),
            // Rotating disks have nothing to unmap.
            Op::Discard => return begun,
            Op::Read | Op::Write | Op::WriteZeroes => {}
        }
        let rate = RATE_FIRST
            + (RATE_LAST - RATE_FIRST) * (at as f64 / self.capacity_bytes as f64).min(1.0);
        let pass_ns = (len as f64 * 1000.0 / rate) as u64;
        let start = begun.max(self.free_ns);
        let is_next = at == self.head;
        let wait_ns = if is_next { 0 } else { self.reach_ns(start, at, rate) };
        self.free_ns = start + wait_ns + pass_ns;
        self.head = at + len;
        if op == Op::Read || !cached {
            return self.free_ns;
        }
        let taken = begun + (len as f64 * 1000.0 / LINK) as u64;
        taken.max(self.free_ns.saturating_sub(BEHIND_NS))
    }

    /// Returns the time until the arm is in place and the sector comes by.
    fn reach_ns(&self, start: u64, at: u64, rate: f64) -> u64 {
        let track_bytes = rate * TURN_NS as f64 / 1000.0;
        let distance = at.abs_diff(self.head) as f64;
        let seek_ns = match distance < track_bytes {
            true => 0,
            false => {
                let share = (distance / self.capacity_bytes as f64).min(1.0);
                (SEEK_MIN_NS + (SEEK_MAX_NS - SEEK_MIN_NS) * share.sqrt()) as u64
            }
        };
        let turned = ((start + seek_ns) % TURN_NS) as f64 / TURN_NS as f64;
        let wanted = (at as f64 / track_bytes).fract();
        seek_ns + ((wanted - turned).rem_euclid(1.0) * TURN_NS as f64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: u64 = 4 << 40;

    #[test]
    fn random_reads_seek_and_turn() {
        let mut platter = Platter::new(CAPACITY);
        let mut random = fastrand::Rng::with_seed(1);
        let mut now = 0;
        for _ in 0..2000 {
            now =
                platter.schedule(now, Op::Read, random.u64(0..CAPACITY / 4096) * 4096, 4096, true);
        }
        let each_ms = now as f64 / 2000.0 / 1e6;
        // The expected mean is half a turn and the seek over the mean distance of two places.
        assert!((11.0..15.0).contains(&each_ms), "{each_ms} ms");
    }

    #[test]
    fn what_follows_passes_at_the_rate_of_its_track() {
        for (start, mb_per_s) in [(0, RATE_FIRST), (CAPACITY - (1 << 30), RATE_LAST)] {
            let mut platter = Platter::new(CAPACITY);
            let first = platter.schedule(0, Op::Read, start, 1 << 20, true);
            let mut now = first;
            for block in 1..1000 {
                // The next request comes before the last one is done.
                now = platter.schedule(
                    now.saturating_sub(1 << 20),
                    Op::Read,
                    start + (block << 20),
                    1 << 20,
                    true,
                );
            }
            let rate = 999.0 * f64::from(1 << 20) * 1000.0 / (now - first) as f64;
            assert!((rate - mb_per_s).abs() < 2.0, "{rate} MB/s");
        }
    }

    #[test]
    fn a_cache_hides_the_arm_until_it_is_full() {
        let mut platter = Platter::new(CAPACITY);
        let mut random = fastrand::Rng::with_seed(2);
        let mut at = || random.u64(0..CAPACITY / 4096) * 4096;
        assert!(platter.schedule(0, Op::Write, at(), 4096, true) < 100_000);
        let mut last = 0;
        for _ in 0..100 {
            last = platter.schedule(0, Op::Write, at(), 4096, true);
        }
        assert!(last > 500_000_000, "{last} ns");
        assert_eq!(platter.schedule(0, Op::Flush, 0, 0, true), platter.free_ns);
        let durable = platter.schedule(platter.free_ns, Op::Write, at(), 4096, false);
        assert_eq!(durable, platter.free_ns, "a write through the cache waits for the arm");
    }
}
