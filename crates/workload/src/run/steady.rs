//! Steady state: a job ends when its throughput has stopped changing.
//!
//! The throughput is measured once per interval. The values that fit into the window are judged as
//! in fio: by the largest deviation from their mean, or by the slope of the line that fits them
//! best.
//!
//! Invariant: time is an argument, so that a test needs no clock.

use std::collections::{BTreeMap, VecDeque};

use crate::job::{Job, Steadiness, SteadyGoal, SteadyOf};
use crate::report::SteadyReport;

use super::record::Shown;
use super::thread::nanos;

/// The requests and bytes up to some moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) ios: u64,
    pub(super) bytes: u64,
}

/// The judge of one job, or of a group of jobs that is reported as one.
pub(super) struct Steady {
    goal: SteadyGoal,
    len: usize,
    begin_ns: Option<u64>,
    last: Option<(u64, Counted)>,
    /// Requests and bytes per second, the oldest first; at most [`Self::len`] values.
    values: VecDeque<(u64, u64)>,
    attained: bool,
}

impl Steady {
    pub(super) fn new(goal: SteadyGoal) -> Self {
        let len = goal.window.as_nanos() / goal.interval.as_nanos().max(1);
        let len = usize::try_from(len).unwrap_or(usize::MAX).max(2);
        Self { goal, len, begin_ns: None, last: None, values: VecDeque::new(), attained: false }
    }

    /// Takes a value from the counters, which begin with the measurement. Returns whether the state
    /// is steady, now or since an earlier call.
    pub(super) fn look(&mut self, now_ns: u64, counted: Counted) -> bool {
        let begin_ns = *self.begin_ns.get_or_insert(now_ns);
        if self.attained || now_ns < begin_ns.saturating_add(nanos(self.goal.ramp)) {
            return self.attained;
        }
        let Some((last_ns, last)) = self.last else {
            self.last = Some((now_ns, counted));
            return false;
        };
        let spent_ns = now_ns.saturating_sub(last_ns);
        if spent_ns < nanos(self.goal.interval).max(1) {
            return false;
        }
        let per_s = |now: u64, before: u64| {
            let count = u128::from(now.saturating_sub(before));
            u64::try_from(count * 1_000_000_000 / u128::from(spent_ns)).unwrap_or(u64::MAX)
        };
        self.last = Some((now_ns, counted));
        self.values.push_back((per_s(counted.ios, last.ios), per_s(counted.bytes, last.bytes)));
        if self.values.len() > self.len {
            self.values.pop_front();
        }
        self.attained = self.values.len() == self.len && self.report().criterion < self.goal.limit;
        self.attained
    }

    pub(super) fn report(&self) -> SteadyReport {
        let values: Vec<f64> = self
            .values
            .iter()
            .map(|(ios, bytes)| match self.goal.of {
                SteadyOf::Iops => *ios as f64,
                SteadyOf::Bandwidth => *bytes as f64,
            })
            .collect();
        let count = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / count;
        let deviation = values.iter().map(|value| (value - mean).abs()).fold(0.0, f64::max);
        let slope = slope(&values, mean);
        let (max_deviation, slope, found) = match self.goal.by {
            Steadiness::Deviation => (deviation, 0.0, deviation),
            Steadiness::Slope => (0.0, slope, slope.abs()),
        };
        let of_mean = if mean > 0.0 { 100.0 * found / mean } else { 0.0 };
        let criterion = if self.goal.percent { of_mean } else { found };
        let (ios, bytes) = self.values.iter().copied().unzip();
        SteadyReport { attained: self.attained, criterion, max_deviation, slope, ios, bytes }
    }
}

/// Returns the slope of the least-squares line, per step of the series.
fn slope(values: &[f64], mean: f64) -> f64 {
    let middle = (values.len().max(1) - 1) as f64 / 2.0;
    let distances = values.iter().enumerate().map(|(at, value)| (at as f64 - middle, value - mean));
    let (rise, run) = distances.fold((0.0, 0.0), |(rise, run), (x, y)| (rise + x * y, run + x * x));
    if run > 0.0 { rise / run } else { 0.0 }
}

pub(super) struct Judges<'a> {
    jobs: Vec<&'a Job>,
    /// The judges, by the first job that each of them judges.
    steady: BTreeMap<usize, Steady>,
    /// For each job, the first job that is judged together with it.
    first: Vec<usize>,
}

impl<'a> Judges<'a> {
    pub(super) fn new(jobs: Vec<&'a Job>) -> Self {
        let together = |job: &Job, other: &Job| {
            job.group_reporting && other.group_reporting && job.group == other.group
        };
        let first = (0..jobs.len())
            .map(|at| (0..at).find(|other| together(jobs[at], jobs[*other])).unwrap_or(at))
            .collect::<Vec<_>>();
        let steady = (0..jobs.len())
            .filter(|at| first[*at] == *at)
            .filter_map(|at| Some((at, Steady::new(jobs[at].steady?))));
        let steady = steady.collect();
        Self { jobs, steady, first }
    }

    /// Returns the interval of [`Self::look`]; `None` if no job waits for a steady state.
    pub(super) fn every(&self) -> Option<std::time::Duration> {
        self.steady.values().map(|steady| steady.goal.interval).min()
    }

    /// Judges the jobs that are being measured, and calls `end` for those in a steady state.
    pub(super) fn look(&mut self, now_ns: u64, shown: &[Shown], mut end: impl FnMut(usize)) {
        for (first, steady) in &mut self.steady {
            let members = (0..self.jobs.len()).filter(|at| self.first[*at] == *first);
            let members: Vec<usize> = members.collect();
            let measured = members.iter().filter(|at| shown[**at].is_measured());
            let measured: Vec<usize> = measured.copied().collect();
            if measured.is_empty() {
                continue;
            }
            let mut counted = Counted::default();
            for at in &members {
                let sums = shown[*at].sums();
                (counted.ios, counted.bytes) = (counted.ios + sums.0, counted.bytes + sums.1);
            }
            if steady.look(now_ns, counted) {
                measured.into_iter().for_each(&mut end);
            }
        }
    }

    pub(super) fn report(&self, at: usize) -> Option<SteadyReport> {
        self.steady.get(&self.first[at]).map(Steady::report)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn goal(of: SteadyOf, by: Steadiness, limit: f64, percent: bool) -> SteadyGoal {
        let s = Duration::from_secs;
        SteadyGoal { of, by, limit, percent, window: s(4), ramp: s(2), interval: s(1) }
    }

    /// Judges ten times per second. Returns the second in which the state is steady, and the
    /// report.
    fn judged(goal: SteadyGoal, per_s: impl Fn(u64) -> u64) -> (Option<u64>, SteadyReport) {
        let (mut steady, mut ios) = (Steady::new(goal), 0);
        for tenth in 0..600 {
            let counted = Counted { ios, bytes: ios * 4096 };
            if steady.look(7_000 + tenth * 100_000_000, counted) {
                return (Some(tenth / 10), steady.report());
            }
            ios += per_s(tenth / 10) / 10;
        }
        (None, steady.report())
    }

    #[test]
    fn a_constant_rate_is_steady_once_the_window_is_full() {
        for (of, by) in [
            (SteadyOf::Iops, Steadiness::Deviation),
            (SteadyOf::Iops, Steadiness::Slope),
            (SteadyOf::Bandwidth, Steadiness::Deviation),
            (SteadyOf::Bandwidth, Steadiness::Slope),
        ] {
            let (at, report) = judged(goal(of, by, 1.0, true), |_| 500);
            // Two seconds of ramp, and four of the window.
            assert_eq!((at, report.attained, report.criterion), (Some(6), true, 0.0), "{of:?}");
            assert_eq!(report.ios, [500; 4]);
            assert_eq!(report.bytes, [500 * 4096; 4]);
        }
    }

    #[test]
    fn a_drive_that_slows_down_is_steady_when_it_has_slowed_down() {
        let per_s = |second: u64| 1000_u64.saturating_sub(second * 50).max(200);
        let (slope, report) = judged(goal(SteadyOf::Iops, Steadiness::Slope, 0.5, true), per_s);
        // The throughput falls until second 16, and a window that begins there is flat.
        assert_eq!((slope, report.slope), (Some(20), 0.0));
        let (deviation, _) =
            judged(goal(SteadyOf::Iops, Steadiness::Deviation, 80.0, false), per_s);
        assert!(deviation < slope, "{deviation:?}");
        let (never, report) =
            judged(goal(SteadyOf::Iops, Steadiness::Deviation, 5.0, true), |second| {
                100 + 100 * (second % 2)
            });
        assert_eq!((never, report.attained, report.max_deviation), (None, false, 50.0));
        assert!((report.criterion - 100.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn slopes_are_of_the_best_line() {
        let of = |values: &[f64]| slope(values, values.iter().sum::<f64>() / values.len() as f64);
        assert_eq!(of(&[1.0, 3.0, 5.0, 7.0]), 2.0);
        assert_eq!(of(&[4.0, 4.0]), 0.0);
        assert_eq!((of(&[1.0]), slope(&[], 0.0)), (0.0, 0.0));
    }
}
