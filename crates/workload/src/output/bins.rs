//! Latencies in the classes that programs for fio's output expect.
//!
//! fio's histogram has 29 groups of 64 buckets. Up to 128 ns there is one bucket for each
//! nanosecond. Then each group spans twice as much as the one before, and a bucket is named by its
//! middle. Longer latencies are counted in the last bucket. Our histogram is finer (three digits),
//! so a value is at most one bucket away from where fio would count it.

use crate::Latencies;

const BUCKETS_BITS: u32 = 6;
const GROUPS: u64 = 29;

/// Returns the name of the bucket for a latency, in nanoseconds.
fn bucket_ns(ns: u64) -> u64 {
    // The low bits that a bucket does not distinguish.
    let dropped = (u64::BITS - ns.leading_zeros()).saturating_sub(BUCKETS_BITS + 1);
    let last = (GROUPS - 2) as u32;
    if dropped > last {
        return middle_ns((1 << (BUCKETS_BITS + 1)) - 1, last);
    }
    middle_ns(ns >> dropped, dropped)
}

fn middle_ns(leading: u64, dropped: u32) -> u64 {
    if dropped == 0 { leading } else { (leading << dropped) + (1 << (dropped - 1)) }
}

/// Returns fio's json+ bins in order: the name of each bucket and the number of requests in it.
pub(super) fn bins(latencies: &Latencies) -> Vec<(u64, u64)> {
    let mut bins: Vec<(u64, u64)> = Vec::new();
    for (ns, count) in recorded(latencies) {
        let name = bucket_ns(ns);
        match bins.last_mut() {
            Some((last, sum)) if *last == name => *sum += count,
            _ => bins.push((name, count)),
        }
    }
    bins
}

/// Returns the recorded latencies and their counts. A latency is the middle of a range that the
/// histogram does not distinguish.
fn recorded(latencies: &Latencies) -> impl Iterator<Item = (u64, u64)> + '_ {
    latencies
        .iter_recorded()
        .map(|step| (latencies.median_equivalent(step.value_iterated_to()), step.count_at_value()))
}

/// The upper bounds of fio's classes. Each unit has the first ten; nanoseconds and microseconds end
/// at 1000.
const BOUNDS: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];

#[derive(Default)]
pub(super) struct Classes {
    ns: [u64; 10],
    us: [u64; 10],
    ms: [u64; 12],
}

impl Classes {
    pub(super) fn add(&mut self, latencies: &Latencies) {
        for (ns, count) in recorded(latencies) {
            let class = |value: u64| BOUNDS.iter().position(|bound| value < *bound);
            match (class(ns), class(ns / 1000), class(ns / 1_000_000)) {
                (Some(at), _, _) => self.ns[at] += count,
                (_, Some(at), _) => self.us[at] += count,
                (_, _, Some(at)) => self.ms[at] += count,
                _ if ns < 2_000_000_000 => self.ms[10] += count,
                _ => self.ms[11] += count,
            }
        }
    }

    /// Returns each unit with its classes: fio's name, and the count.
    pub(super) fn units(&self) -> [(&'static str, Vec<(String, u64)>); 3] {
        let named = |counts: &[u64]| {
            let names = BOUNDS.iter().map(u64::to_string);
            let names = names.chain(["2000".to_owned(), ">=2000".to_owned()]);
            names.zip(counts.iter().copied()).collect()
        };
        [
            ("latency_ns", named(&self.ns)),
            ("latency_us", named(&self.us)),
            ("latency_ms", named(&self.ms)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_have_fios_names() {
        // Names seen in fio's own json+ output: 231, 302, 36096, 40704, 499712 and so on.
        for (ns, name) in [
            (0, 0),
            (127, 127),
            (128, 129),
            (129, 129),
            (230, 231),
            (231, 231),
            (302, 302),
            (36_000, 36_096),
            (40_831, 40_704),
            (5_816_027, 5_799_936),
            (9_135_679, 9_109_504),
        ] {
            assert_eq!(bucket_ns(ns), name, "{ns}");
        }
        // fio's tools know the name of the last bucket as the highest one.
        assert_eq!(bucket_ns(u64::MAX), 17_112_760_320);
        assert_eq!(bucket_ns(18_000_000_000), 17_112_760_320);
    }

    #[test]
    fn bins_and_classes_count_everything_once() {
        let mut some = Latencies::default();
        for ns in [1, 3, 999, 1000, 1999, 2000, 250_000, 990_000, 1_500_000_000, 5_000_000_000] {
            some.record(ns);
        }
        let binned = bins(&some);
        assert_eq!(binned.iter().map(|bin| bin.1).sum::<u64>(), 10);
        assert!(binned.is_sorted());
        let mut classes = Classes::default();
        classes.add(&some);
        assert_eq!(classes.ns, [1, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!((classes.us[0], classes.us[1], classes.us[7], classes.us[9]), (2, 1, 1, 1));
        assert_eq!((classes.ms[10], classes.ms[11]), (1, 1));
        let [_, _, (name, milliseconds)] = classes.units();
        assert_eq!((name, milliseconds[11].0.as_str()), ("latency_ms", ">=2000"));
    }
}
