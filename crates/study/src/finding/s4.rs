//! The findings of S4.

use qpair_plots::{Interval, median};

use super::{Evidence, Finding, Judged, View, configs};
use crate::config::{Config, Pace};
use crate::experiment::s4::{DEPTH_ASYNC, full_drive};
use crate::lab::{SYNC, UNREGISTERED};
use crate::measure::{Metric, digits};
use crate::outcome::{Outcome, Threshold};

use Metric::{CpuNsPerByte, CpuUsPerIo, InstructionsPerByte, IosPerS, SwitchesPerIo};
use Threshold::{AtLeast, AtMost};

pub(super) const ASYNC: Finding = Finding {
    name: "s4-async",
    source: "S4 section 5.1",
    experiment: "s4-sync",
    claim: "libaio and io_uring are far ahead of synchronous I/O at every number of threads.",
    test: "one thread, and one for each core: the faster of both at least 1.5 times the IOPS of synchronous I/O",
    judge: |view| {
        let cores = view.report.cores;
        let mut counts = vec![1, cores];
        counts.dedup();
        let part = |threads: u32| {
            let of = |name: &str| Config::new(name, cores).threads(threads);
            let deep = ["libaio", "io_uring"].map(|name| of(name).depth(DEPTH_ASYNC));
            let best = view.fastest(&deep).ok_or_else(|| view.missing(&deep[1]))?;
            let what = format!("IOPS, {} over synchronous, {threads} thread(s)", best.interface);
            view.chosen_ratio(what, IosPerS, best, &of(SYNC), AtLeast(1.5))
        };
        counts.into_iter().map(part).collect()
    },
};

pub(super) const PLATEAU: Finding = Finding {
    name: "s4-plateau",
    source: "S4 section 5.2",
    experiment: "s4-outstanding",
    claim: "Throughput levels off at about 128 outstanding requests.",
    test: "one thread: 128 outstanding at least 1.05 times the IOPS of 32, and 512 at most 1.05 times those of 128",
    judge: |view| {
        let name = view.main_interface("s4-outstanding")?;
        let of = |depth| Config::new(name, view.report.cores).depth(depth);
        Ok(vec![
            view.ratio("IOPS of 128 over 32", IosPerS, &of(128), &of(32), AtLeast(1.05))?,
            view.ratio("IOPS of 512 over 128", IosPerS, &of(512), &of(128), AtMost(1.05))?,
        ])
    },
};

pub(super) const COST_FALLS: Finding = Finding {
    name: "s4-cost-falls",
    source: "S4 section 5.5",
    experiment: "s4-cost",
    claim: "Instructions per byte fall until blocks of 64 KiB, and then stay.",
    test: "io_uring, queue depth 128: 4 KiB at least 4 times the cost of a byte at 64 KiB, and 64 KiB at most 1.25 times that at 256 KiB; \
           instructions where the machine counts them, else processor time",
    judge: |view| {
        let name = io_uring_or(view, "s4-cost")?;
        let of = |kib: u32| cost(view, name, kib << 10);
        let (metric, word) = per_byte(view, &of(4));
        let part = |above, below, wanted| {
            let what = format!("{word} per byte, {above} KiB over {below} KiB");
            view.ratio(what, metric, &of(above), &of(below), wanted)
        };
        Ok(vec![part(4, 64, AtLeast(4.0))?, part(64, 256, AtMost(1.25))?])
    },
};

pub(super) const INSTRUCTIONS: Finding = Finding {
    name: "s4-instructions",
    source: "S4 section 5.3",
    experiment: "s4-cost",
    claim: "io_uring takes fewer instructions for a byte than libaio.",
    test: "4 KiB, queue depth 128: at most 0.95 times those of libaio; processor time where the machine counts no instructions",
    judge: |view| {
        let (uring, aio) = (cost(view, "io_uring", 4096), cost(view, "libaio", 4096));
        let (metric, word) = per_byte(view, &uring);
        let what = format!("{word} per byte, io_uring over libaio");
        Ok(vec![view.ratio(what, metric, &uring, &aio, AtMost(0.95))?])
    },
};

pub(super) const REGISTERING_SAVES: Finding = Finding {
    name: "s4-registering-saves",
    source: "S4 considers it, without a result",
    experiment: "s4-cost",
    claim: "Registered (fixed) buffers and files make io_uring cheaper.",
    test: "4 KiB: at most 0.95 times the processor time per I/O of io_uring with nothing registered",
    judge: |view| {
        let (fixed, plain) = (cost(view, "io_uring", 4096), cost(view, UNREGISTERED, 4096));
        let what = "CPU per I/O, registered over not";
        Ok(vec![view.ratio(what, CpuUsPerIo, &fixed, &plain, AtMost(0.95))?])
    },
};

pub(super) const SWITCHES: Finding = Finding {
    name: "s4-switches",
    source: "S4 section 5.3",
    experiment: "s4-cost",
    claim: "io_uring, with fixed buffers, has fewer context switches than libaio.",
    test: "4 KiB, queue depth 128: at most 0.95 times the switches per I/O of libaio",
    judge: |view| {
        let (uring, aio) = (cost(view, "io_uring", 4096), cost(view, "libaio", 4096));
        let what = "switches per I/O, io_uring over libaio";
        Ok(vec![
            view.ratio(what, SwitchesPerIo, &uring, &aio, AtMost(0.95))?,
            view.told("switches per I/O of libaio", SwitchesPerIo, &aio)?,
        ])
    },
};

pub(super) const INTERVAL_COSTS: Finding = Finding {
    name: "s4-interval-costs",
    source: "S4 section 5.4",
    experiment: "s4-interval",
    claim: "One thread that submits for others keeps up with a request every 10 us; with longer gaps asynchronous I/O loses its lead.",
    test: "io_uring, every 10 us: at least 0.95 times what is offered (100 thousand a second), or what a full queue reaches if that is less",
    judge: |view| {
        let name = io_uring_or(view, "s4-interval")?;
        let (handed, full) = (handed(view, name, 10), calm(view, name));
        let ceiling = view.interval(IosPerS, &full)?.mid;
        if ceiling < OFFERED_IOS_PER_S {
            let what = "IOPS, every 10 us over a full queue";
            return Ok(vec![view.ratio(what, IosPerS, &handed, &full, AtLeast(0.95))?]);
        }
        let least = AtLeast(0.95 * OFFERED_IOS_PER_S);
        Ok(vec![view.value("IOPS, every 10 us", IosPerS, &handed, least)?])
    },
};

/// The I/Os a second at an interval of 10 us.
const OFFERED_IOS_PER_S: f64 = 1e5;

pub(super) const INTERVAL_LEVELS: Finding = Finding {
    name: "s4-interval-levels",
    source: "S4 section 5.4",
    experiment: "s4-interval",
    claim: "At intervals over 100 us synchronous I/O is as good as asynchronous.",
    test: "synchronous over io_uring: at 10 us at most 0.8 times the IOPS, at 100 and 200 us at least 0.95 times",
    judge: |view| {
        let name = io_uring_or(view, "s4-interval")?;
        view.need("posix")?;
        [(10, AtMost(0.8)), (100, AtLeast(0.95)), (200, AtLeast(0.95))]
            .into_iter()
            .map(|(us, wanted)| {
                let what = format!("IOPS every {us} us, synchronous over {name}");
                let sync = handed(view, SYNC, us).depth(1);
                view.ratio(what, IosPerS, &sync, &handed(view, name, us), wanted)
            })
            .collect()
    },
};

pub(super) const CLIFF: Finding = Finding {
    name: "s4-cliff",
    source: "S4 section 5.6",
    experiment: "s4-writes",
    claim: "Prolonged asynchronous writes fall off (after about 40 s) when the drive's SLC cache is full.",
    test: "on a drive of this machine, a second from which on the median is at most 0.7 times that before, with hardly any second of the one \
           as fast as one of the other; without one, at least 60 s of writes are needed to say so",
    judge: judge_cliff,
};

/// Seconds of writes after which a cliff is no longer expected.
const CLIFF_FREE_S: f64 = 60.0;

fn judge_cliff(view: &View<'_>) -> Judged {
    let name = view.main_interface("s4-writes")?;
    let configs = configs(view, "s4-writes", name);
    if view.report.devices.first().is_some_and(crate::lab::Device::is_virtual) {
        return Err(
            "the disk is virtual: a limit of its host would look like a full SLC cache".to_owned()
        );
    }
    let config = configs.first().ok_or_else(|| view.skipped("s4-writes"))?;
    let run = view
        .report
        .point(config)
        .and_then(|point| point.runs.first())
        .ok_or_else(|| view.missing(config))?;
    let seconds = run.over_time.len() as f64 * run.sample_s;
    let exact = |what: String, value: f64, wanted, outcome| Evidence {
        what,
        mid: digits(value),
        low: None,
        high: None,
        wanted,
        outcome,
    };
    let gib = run.over_time.iter().sum::<f64>() * run.sample_s / f64::from(1 << 30);
    let written = exact("GiB written".to_owned(), gib, None, Outcome::Holds);
    let wanted = Some(AtMost(CLIFF_RATIO));
    Ok(match cliff(&run.over_time) {
        Some(Cliff { at, before, after }) => {
            let second = at as f64 * run.sample_s;
            let what = format!("MiB/s after second {second:.0} over before");
            vec![exact(what, after / before.max(1.0), wanted, Outcome::Holds), written]
        }
        None => {
            let outcome =
                if seconds >= CLIFF_FREE_S { Outcome::DoesNotHold } else { Outcome::Undecided };
            let ends = Interval::of(&run.over_time).map_or(0.0, |interval| interval.mid);
            vec![
                exact(format!("no such second in {seconds:.0} s; ratio"), 1.0, wanted, outcome),
                exact("median MiB/s".to_owned(), ends / f64::from(1 << 20), None, Outcome::Holds),
                written,
            ]
        }
    })
}

/// The largest ratio of throughput after a cliff to throughput before it.
const CLIFF_RATIO: f64 = 0.7;

/// A lasting fall of throughput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cliff {
    /// The number of samples before the fall.
    pub(crate) at: usize,
    /// The median before the fall, in bytes a second.
    pub(crate) before: f64,
    /// The median after the fall, in bytes a second.
    pub(crate) after: f64,
}

/// Returns the lasting fall that explains a series best; `None` if there is none.
///
/// A fall lasts if at least three samples and a tenth of the series are on each side. At most a
/// tenth of the samples before it may be as slow as the fastest tenth after it. A single slow
/// second or a slow decline is therefore not a fall. Of several candidate positions, the one whose
/// samples differ least from the median of their side is returned.
pub(crate) fn cliff(series: &[f64]) -> Option<Cliff> {
    let margin = (series.len() / 10).max(3);
    let mut best: Option<(f64, Cliff)> = None;
    for at in margin..=series.len().checked_sub(margin)? {
        let (mut left, mut right) = (series[..at].to_vec(), series[at..].to_vec());
        let (before, after) = (median(&left)?, median(&right)?);
        if before <= 0.0 || after > CLIFF_RATIO * before {
            continue;
        }
        left.sort_by(f64::total_cmp);
        right.sort_by(f64::total_cmp);
        if left[left.len() / 10] <= right[right.len() - 1 - right.len() / 10] {
            continue;
        }
        let misfit = left.iter().map(|value| (value - before).abs()).sum::<f64>()
            + right.iter().map(|value| (value - after).abs()).sum::<f64>();
        if best.is_none_or(|(least, _)| misfit < least) {
            best = Some((misfit, Cliff { at, before, after }));
        }
    }
    best.map(|(_, cliff)| cliff)
}

/// Returns `io_uring`, or the interface of the experiment if `io_uring` was not measured.
fn io_uring_or<'a>(view: &'a View<'_>, experiment: &str) -> Result<&'a str, String> {
    if view.has("io_uring") { Ok("io_uring") } else { view.main_interface(experiment) }
}

/// Returns a point of the experiment on costs.
fn cost(view: &View<'_>, interface: &str, block_bytes: u32) -> Config {
    Config::new(interface, view.report.cores.min(2)).depth(128).block_bytes(block_bytes)
}

/// Returns the unit in which the cost of a byte is compared, with its name in the evidence:
/// instructions if they were counted, else processor time.
fn per_byte(view: &View<'_>, config: &Config) -> (Metric, &'static str) {
    let point = view.report.point(config);
    match point.is_some_and(|point| !point.values(InstructionsPerByte).is_empty()) {
        true => (InstructionsPerByte, "instructions"),
        false => (CpuNsPerByte, "processor time"),
    }
}

/// Returns a point of the experiment on intervals.
fn handed(view: &View<'_>, interface: &str, us: u32) -> Config {
    calm(view, interface).pace(Pace::Interval { us })
}

/// Returns the point of the experiment on intervals with a full queue.
fn calm(view: &View<'_>, interface: &str) -> Config {
    Config::new(interface, view.report.cores.min(2)).depth(128)
}

pub(super) const SPARE: Finding = Finding {
    name: "s4-spare",
    source: "S4 section 4",
    experiment: "s4-spare",
    claim: "Over-provisioning and garbage collection were varied; the text gives no result.",
    test: "soft flash drives that are full, random writes: with 28 % of spare flash at least 1.1 times the IOPS of 7 %",
    judge: |view| {
        let (much, little) = (full_drive(28), full_drive(7));
        let what = "IOPS, 28 over 7 % of spare flash";
        Ok(vec![view.ratio(what, IosPerS, &much, &little, AtLeast(1.1))?])
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cliffs() {
        let steps = |before: usize, after: usize| -> Vec<f64> {
            let wobble = |n: usize| 1.0 + 0.05 * ((n * 7 % 5) as f64 - 2.0);
            (0..before)
                .map(|n| 1000.0 * wobble(n))
                .chain((0..after).map(|n| 300.0 * wobble(n)))
                .collect()
        };
        assert_eq!(cliff(&steps(40, 20)).unwrap().at, 40);
        assert_eq!(cliff(&steps(60, 0)), None);
        // One slow second is no cliff, and neither is a decline without a step.
        let mut dip = steps(60, 0);
        dip[30] = 10.0;
        assert_eq!(cliff(&dip), None);
        let noisy: Vec<f64> = (0..60).map(|n| if n % 2 == 0 { 1000.0 } else { 400.0 }).collect();
        assert_eq!(cliff(&noisy), None);
        assert_eq!(cliff(&[]), None);
        assert_eq!(cliff(&[1.0, 2.0, 3.0]), None);
    }
}
