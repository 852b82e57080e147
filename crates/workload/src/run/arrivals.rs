//! Plans the start times of requests whose rate is limited.
//!
//! The plan does not depend on the device. The latency of a request that starts late counts from
//! its planned start, so that a slow device cannot hide behind requests that it prevented from
//! starting.

use rand::Rng;
use rand::rngs::SmallRng;
use rand_distr::Exp1;

use crate::job::{Direction, Job, Rate, RateProcess, Verbs};

#[derive(Clone, Copy)]
struct Plan {
    rate: Rate,
    next_ns: f64,
}

pub(super) struct Arrivals {
    plans: [Plan; 3],
    process: RateProcess,
    limited: bool,
    mixed: bool,
}

impl Arrivals {
    /// Returns plans that begin at `begin_ns`. The limits are those of one clone.
    pub(super) fn new(job: &Job, begin_ns: u64) -> Self {
        let plans = job.rate.map(|rate| Plan { rate, next_ns: begin_ns as f64 });
        let limited = job.rate.iter().any(|rate| *rate != Rate::default());
        let mixed = matches!(job.verbs, Verbs::Mixed { .. });
        Self { plans, process: job.rate_process, limited, mixed }
    }

    #[inline]
    pub(super) fn are_limited(&self) -> bool {
        self.limited
    }

    /// Returns the direction, read or write, whose next request is planned first, if both have a
    /// plan.
    pub(super) fn earlier(&self) -> Option<Direction> {
        let [read, write, _] = &self.plans;
        let planned = |plan: &Plan| plan.rate != Rate::default();
        (self.mixed && planned(read) && planned(write)).then_some(
            if read.next_ns <= write.next_ns { Direction::Read } else { Direction::Write },
        )
    }

    /// Returns the planned start of the next request of a direction; 0: at once.
    #[inline]
    pub(super) fn due_ns(&self, direction: Direction) -> u64 {
        let plan = &self.plans[direction as usize];
        if plan.rate == Rate::default() { 0 } else { plan.next_ns as u64 }
    }

    /// Plans the next request after one of `len_bytes`.
    pub(super) fn advance(&mut self, direction: Direction, len_bytes: u32, random: &mut SmallRng) {
        let process = self.process;
        let plan = &mut self.plans[direction as usize];
        let by_ios = |ios: u64| if ios == 0 { 0.0 } else { 1e9 / ios as f64 };
        let by_bytes = |bytes: u64| match bytes {
            0 => 0.0,
            bytes => f64::from(len_bytes) * 1e9 / bytes as f64,
        };
        let mean_ns = by_ios(plan.rate.ios_per_s).max(by_bytes(plan.rate.bytes_per_s));
        let factor = match process {
            RateProcess::Linear => 1.0,
            RateProcess::Poisson => random.sample::<f64, _>(Exp1),
        };
        plan.next_ns += mean_ns * factor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::offsets::generator;
    use qpair_block::DeviceSpec;
    use qpair_kernel::Mode;

    fn job(process: RateProcess) -> Job {
        let spec = DeviceSpec::parse("null:size=1MiB").unwrap();
        let rate = Rate { ios_per_s: 1000, bytes_per_s: 0 };
        Job { rate: [rate; 3], rate_process: process, ..Job::new("t", spec, Mode::default()) }
    }

    #[test]
    fn the_mean_distance_is_that_of_the_rate() {
        for (process, deviation_least) in [(RateProcess::Linear, 0.0), (RateProcess::Poisson, 0.9)]
        {
            let mut arrivals = Arrivals::new(&job(process), 5);
            let mut random = generator(1, 0);
            let mut distances = Vec::new();
            for _ in 0..20_000 {
                let before = arrivals.due_ns(Direction::Read);
                arrivals.advance(Direction::Read, 4096, &mut random);
                distances.push((arrivals.due_ns(Direction::Read) - before) as f64 / 1e6);
            }
            let mean = distances.iter().sum::<f64>() / distances.len() as f64;
            assert!((mean - 1.0).abs() < 0.05, "{mean}");
            let variance =
                distances.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / distances.len() as f64;
            assert!(variance >= deviation_least - 0.05, "{variance}");
        }
    }

    #[test]
    fn a_limit_on_bytes_counts_them() {
        let spec = DeviceSpec::parse("null:size=1MiB").unwrap();
        let rate = Rate { ios_per_s: 0, bytes_per_s: 1_000_000 };
        let job = Job { rate: [rate; 3], ..Job::new("t", spec, Mode::default()) };
        let mut arrivals = Arrivals::new(&job, 0);
        arrivals.advance(Direction::Write, 500_000, &mut generator(1, 0));
        assert_eq!(arrivals.due_ns(Direction::Write), 500_000_000);
        assert_eq!(arrivals.earlier(), None);
        let job = Job { verbs: Verbs::Mixed { read_percent: 50 }, ..job };
        let mut arrivals = Arrivals::new(&job, 0);
        arrivals.advance(Direction::Write, 500_000, &mut generator(1, 0));
        assert_eq!(arrivals.earlier(), Some(Direction::Read));
    }
}
