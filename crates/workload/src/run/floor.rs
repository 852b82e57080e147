//! Checks that a job does not fall below its lowest rates.

use crate::job::{Direction, Job, Rate};
use crate::report::DirectionReport;

/// Time at the start in which rates are not checked: two seconds, as in fio.
const SETTLING_NS: u64 = 2_000_000_000;

#[derive(Clone, Copy, Default)]
struct Mark {
    at_ns: u64,
    ios: u64,
    bytes: u64,
}

/// The lowest rates allowed for a job, and the counters to check them by.
pub(super) struct Floor {
    least: [Rate; 3],
    cycle_ns: u64,
    begin_ns: u64,
    marks: [Option<Mark>; 3],
}

impl Floor {
    /// Returns `None` if the job has no lowest rate.
    pub(super) fn new(job: &Job, begin_ns: u64) -> Option<Self> {
        let least = job.rate_min;
        least.iter().any(|rate| *rate != Rate::default()).then(|| Self {
            least,
            cycle_ns: u64::try_from(job.rate_cycle.as_nanos()).unwrap_or(u64::MAX),
            begin_ns,
            marks: [None; 3],
        })
    }

    /// Returns a description of a rate that is too low; `None` if all are high enough. As in fio,
    /// rates are checked when requests complete, so a single slow request is noticed only when it
    /// completes.
    pub(super) fn check(&mut self, now_ns: u64, did: &[DirectionReport; 3]) -> Option<String> {
        if now_ns.saturating_sub(self.begin_ns) < SETTLING_NS {
            return None;
        }
        for direction in Direction::ALL {
            let at = direction as usize;
            let (least, did) = (self.least[at], &did[at]);
            if least == Rate::default() {
                continue;
            }
            let now = Mark { at_ns: now_ns, ios: did.ios, bytes: did.bytes };
            // The counters were reset, because the ramp is over.
            let Some(mark) = self.marks[at].filter(|mark| mark.ios <= now.ios) else {
                self.marks[at] = Some(now);
                continue;
            };
            let spent_ns = now_ns - mark.at_ns;
            if spent_ns < self.cycle_ns || now.ios == mark.ios {
                continue;
            }
            let per_s = |count: u64| {
                (u128::from(count) * 1_000_000_000 / u128::from(spent_ns.max(1))) as u64
            };
            let (ios, bytes) = (per_s(now.ios - mark.ios), per_s(now.bytes - mark.bytes));
            let name = direction.name();
            if bytes < least.bytes_per_s {
                let wanted = least.bytes_per_s;
                return Some(format!("{name}: {bytes} bytes/s, less than the {wanted} asked for"));
            }
            if ios < least.ios_per_s {
                let wanted = least.ios_per_s;
                return Some(format!("{name}: {ios} requests/s, less than the {wanted} asked for"));
            }
            self.marks[at] = Some(now);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use qpair_block::DeviceSpec;
    use qpair_kernel::Mode;

    use super::*;

    #[test]
    fn too_slow_is_told_after_the_first_seconds() {
        let mut job = Job::new("t", DeviceSpec::parse("null:size=1MiB").unwrap(), Mode::default());
        assert!(Floor::new(&job, 0).is_none());
        job.rate_min[0].ios_per_s = 100;
        let mut floor = Floor::new(&job, 0).unwrap();
        let mut did: [DirectionReport; 3] = Default::default();
        let second = 1_000_000_000;
        assert_eq!(floor.check(second, &did), None);
        for at in 2..6 {
            did[0].ios += 100;
            assert_eq!(floor.check(at * second, &did), None);
        }
        // Nothing has completed yet: the rate is checked at the next completion.
        assert_eq!(floor.check(7 * second, &did), None);
        did[0].ios += 99;
        let told = floor.check(7 * second, &did).unwrap();
        assert!(told.contains("49 requests/s, less than the 100"), "{told}");
    }
}
