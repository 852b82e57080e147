//! Limits the number of page reads that a worker has in flight to the number beyond which more
//! reads gain nothing.
//!
//! A drive, or the queue before it, slows down beyond some number of reads, or merely makes them
//! wait longer. The drive does not report that number, and it changes with the load of other users.
//! The limiter therefore experiments: it compares short windows with the present limit and with
//! another limit, in adjacent pairs, because another user affects both windows of a pair alike. A
//! lower limit is adopted only if it increases the throughput; a higher one is adopted if it does
//! not reduce it. Without a difference there is no limit in the end.

use std::time::{Duration, Instant};

/// The number of reads in flight below which there is no limit.
const LIMIT_MIN: u32 = 16;
/// The minimum length of a window. It also has at least a multiple of its limit in reads.
const WINDOW: Duration = Duration::from_millis(5);
const READS_PER_LIMIT: u32 = 4;
/// The time without a read after which a trial ends.
const PAUSE: Duration = Duration::from_millis(50);
/// The number of pairs of windows in a trial.
const PAIRS: usize = 6;
/// The minimum number of pairs that must favour a lower limit.
const PAIRS_FOR_LOWER: usize = PAIRS - 1;
/// The throughput, relative to the present limit, that a lower limit must reach; the next constant
/// is that for a higher limit.
const LOWER_GAINS: f64 = 1.03;
const HIGHER_KEEPS: f64 = 0.99;
/// The rest after a trial that changed nothing. It is doubled up to the maximum.
const REST_MIN: Duration = Duration::from_millis(250);
const REST_MAX: Duration = Duration::from_secs(8);

/// Finds the number of reads in flight beyond which a device gives less.
#[derive(Debug)]
pub(super) struct Limiter {
    most: u32,
    /// The limit that is compared with others; `most` means no limit.
    settled: u32,
    trial: Option<Trial>,
    /// Whether the next trial is of a lower limit. While a limit applies it is; otherwise the next
    /// trial is of a higher limit.
    next_is_lower: bool,
    rest: Duration,
    rests_until: Instant,
    /// The time at which the last reads ended.
    last: Instant,
}

#[derive(Debug)]
struct Trial {
    limit: u32,
    /// The number of windows that are over: one of the settled limit, two of the other, two of the
    /// settled one, and so on.
    windows: usize,
    /// The reads per second of the settled limit and of the other, for each pair.
    rates: [[f64; 2]; PAIRS],
    /// The number of reads to come that were in flight before the window.
    carried: u32,
    /// The number of reads of this window, and its beginning.
    reads: u32,
    since: Instant,
    /// The maximum number of reads that were in flight within the windows of the settled limit.
    in_flight_max: u32,
}

impl Limiter {
    pub(super) fn new(most: u32, now: Instant) -> Self {
        Self {
            most,
            settled: most,
            trial: None,
            next_is_lower: false,
            rest: REST_MIN,
            rests_until: now + REST_MIN,
            last: now,
        }
    }

    /// Returns the limit that applies while none is tried.
    pub(super) fn settled(&self) -> u32 {
        self.settled
    }

    pub(super) fn limit(&self) -> u32 {
        match &self.trial {
            Some(trial) if trial.is_others_turn() => trial.limit,
            _ => self.settled,
        }
    }

    pub(super) fn ended(&mut self, reads: u32, in_flight: u32, now: Instant) {
        if now.saturating_duration_since(self.last) > PAUSE {
            // There was nothing to read, so the earlier windows say nothing.
            self.trial = None;
        }
        self.last = now;
        let Some(trial) = &mut self.trial else {
            if now >= self.rests_until && in_flight > LIMIT_MIN {
                self.begin(in_flight, now);
            }
            return;
        };
        if !trial.take(reads, in_flight, self.settled, now) {
            return;
        }
        let Some(trial) = self.trial.take() else { return };
        let is_better = trial.is_better(self.settled);
        self.rest = match is_better {
            true => REST_MIN,
            false => (self.rest * 2).min(REST_MAX),
        };
        // After a success, the next trial goes in the same direction, at once.
        self.rests_until = if is_better { now } else { now + self.rest };
        self.next_is_lower = (trial.limit < self.settled) == is_better;
        if is_better {
            self.settled = trial.limit;
        }
    }

    fn begin(&mut self, in_flight: u32, now: Instant) {
        let is_limited = self.settled < self.most;
        let goes_lower = !is_limited || self.next_is_lower;
        let limit = match goes_lower {
            true => self.settled.min(in_flight) / 4 * 3,
            false => (self.settled / 3 * 4 + 4).min(self.most),
        };
        if limit < LIMIT_MIN {
            self.next_is_lower = false;
            return;
        }
        self.trial = Some(Trial {
            limit,
            windows: 0,
            rates: [[0.0; 2]; PAIRS],
            carried: in_flight,
            reads: 0,
            since: now,
            in_flight_max: 0,
        });
    }
}

impl Trial {
    fn is_others_turn(&self) -> bool {
        matches!(self.windows % 4, 1 | 2)
    }

    /// Notes reads that ended. Returns whether the trial is complete.
    fn take(&mut self, reads: u32, in_flight: u32, settled: u32, now: Instant) -> bool {
        if !self.is_others_turn() {
            self.in_flight_max = self.in_flight_max.max(in_flight);
        }
        if self.carried > 0 {
            self.carried = self.carried.saturating_sub(reads);
            (self.reads, self.since) = (0, now);
            return false;
        }
        self.reads += reads;
        let limit = if self.is_others_turn() { self.limit } else { settled };
        let length = now.saturating_duration_since(self.since);
        if length < WINDOW || self.reads < READS_PER_LIMIT * limit.min(in_flight) {
            return false;
        }
        let side = usize::from(self.is_others_turn());
        self.rates[self.windows / 2][side] = f64::from(self.reads) / length.as_secs_f64();
        self.windows += 1;
        self.carried = in_flight;
        self.windows == 2 * PAIRS
    }

    /// Whether the other limit should apply from now on.
    fn is_better(&self, settled: u32) -> bool {
        let mut ratios = self.rates.map(|[settled, other]| other / settled);
        ratios.sort_by(f64::total_cmp);
        let median = (ratios[PAIRS / 2 - 1] + ratios[PAIRS / 2]) / 2.0;
        if self.limit > settled {
            return median >= HIGHER_KEEPS;
        }
        let spoke = ratios.iter().filter(|ratio| **ratio > 1.0).count();
        // Otherwise the limit was not reached in these windows.
        self.in_flight_max > self.limit && spoke >= PAIRS_FOR_LOWER && median >= LOWER_GAINS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a limiter for this many seconds beside `tasks` that always want a read, on a device
    /// that completes `rate(in flight, second)` reads a second. Returns the settled limit at every
    /// tenth of a second.
    fn run(tasks: u32, seconds: f64, mut rate: impl FnMut(u32, f64) -> f64) -> Vec<u32> {
        let start = Instant::now();
        let mut limiter = Limiter::new(512, start);
        let (mut second, mut settled) = (0.0, Vec::new());
        while second < seconds {
            let in_flight = tasks.min(limiter.limit());
            let reads = (in_flight / 4).clamp(1, 32);
            second += f64::from(reads) / rate(in_flight, second);
            limiter.ended(reads, in_flight, start + Duration::from_secs_f64(second));
            if second * 10.0 >= settled.len() as f64 {
                settled.push(limiter.settled);
            }
        }
        settled
    }

    /// A device that is fastest with 64 reads in flight, and a third slower with 256.
    fn peaked(in_flight: u32) -> f64 {
        let in_flight = f64::from(in_flight);
        150_000.0 * (in_flight / 48.0).min(1.0) / (1.0 + (in_flight - 64.0).max(0.0) / 400.0)
    }

    #[test]
    fn a_device_that_gives_less_with_more_is_limited_to_where_it_gives_most() {
        let settled = run(256, 30.0, |in_flight, _| peaked(in_flight));
        let last = &settled[settled.len() / 2..];
        assert!(last.iter().all(|limit| (48..=96).contains(limit)), "{last:?}");
    }

    #[test]
    fn there_is_no_limit_where_it_brings_nothing() {
        let flat = |in_flight: u32, _| 100_000.0 * (f64::from(in_flight) / 64.0).min(1.0);
        assert!(run(256, 20.0, flat).iter().all(|limit| *limit == 512));
        let deep = |in_flight: u32, _| 1_000.0 * f64::from(in_flight);
        assert!(run(256, 20.0, deep).iter().all(|limit| *limit == 512));
    }

    #[test]
    fn the_limit_goes_when_the_device_takes_more() {
        let settled = run(256, 60.0, |in_flight, second| match second < 20.0 {
            true => peaked(in_flight),
            false => 1_000.0 * f64::from(in_flight),
        });
        assert!(settled[150] < 100, "{settled:?}");
        assert!(*settled.last().unwrap() >= 256, "{settled:?}");
    }

    #[test]
    fn neighbours_that_take_a_third_now_and_then_are_no_reason() {
        for seed in 0..8 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut taken = (0.0, 1.0);
            let noisy = move |in_flight: u32, second: f64| {
                if second >= taken.0 {
                    taken = (second + 0.05 * rng.f64(), 0.67 + 0.33 * rng.f64());
                }
                100_000.0 * (f64::from(in_flight) / 64.0).min(1.0) * taken.1
            };
            let settled = run(256, 120.0, noisy);
            let limited = settled.iter().filter(|limit| **limit < 96).count();
            assert!(limited * 20 < settled.len(), "seed {seed}: {limited} of {}", settled.len());
        }
    }

    #[test]
    fn few_reads_are_not_tried_with_fewer() {
        assert!(run(16, 5.0, |_, _| 50_000.0).iter().all(|limit| *limit == 512));
    }
}
