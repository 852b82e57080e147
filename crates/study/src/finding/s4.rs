//! What S4 found.

use super::s3::configs;
use super::{Evidence, Finding, Judged, View};
use crate::config::{Config, Pace};
use crate::lab::UNREGISTERED;
use crate::measure::{Metric, digits};
use crate::statistics::{Interval, Outcome, Threshold, median};

use Metric::{CpuNsPerByte, CpuUsPerIo, InstructionsPerByte, IosPerS, SwitchesPerIo};
use Threshold::{AtLeast, AtMost};

pub(super) const PLATEAU: Finding = Finding {
    name: "s4-plateau",
    source: "S4, outstanding requests",
    experiment: "s4-outstanding",
    claim: "Throughput levels off at about 128 outstanding requests.",
    test: "one thread: 128 outstanding at least 1.1 times the IOPS of 16, and 1024 at most 1.1 times those of 128",
    judge: |view| {
        let name = view.main_interface("s4-outstanding")?;
        let of = |depth| Config::new(name, view.report.cores).depth(depth);
        Ok(vec![
            view.ratio("IOPS of 128 over 16", IosPerS, &of(128), &of(16), AtLeast(1.1))?,
            view.ratio("IOPS of 1024 over 128", IosPerS, &of(1024), &of(128), AtMost(1.1))?,
        ])
    },
};

pub(super) const COST_FALLS: Finding = Finding {
    name: "s4-cost-falls",
    source: "S4, cost of a byte",
    experiment: "s4-cost",
    claim: "Instructions per byte fall until blocks of 64 KiB, and little after.",
    test: "4 KiB at least 2 times the cost of a byte at 64 KiB, and 64 KiB at most 2 times that at 256 KiB; instructions where \
           the machine counts them, else processor time",
    judge: |view| {
        let name = view.main_interface("s3-fig3").or_else(|_| view.main_interface("s4-cost"))?;
        let of = |kib: u32| cost(view, name, kib << 10);
        let counted = view
            .report
            .point(&of(4))
            .is_some_and(|point| !point.values(InstructionsPerByte).is_empty());
        let (metric, word) = if counted {
            (InstructionsPerByte, "instructions")
        } else {
            (CpuNsPerByte, "processor time")
        };
        let part = |above, below, wanted| {
            let what = format!("{word} per byte, {above} KiB over {below} KiB");
            view.ratio(what, metric, &of(above), &of(below), wanted)
        };
        Ok(vec![part(4, 64, AtLeast(2.0))?, part(64, 256, AtMost(2.0))?])
    },
};

pub(super) const REGISTERING_SAVES: Finding = Finding {
    name: "s4-registering-saves",
    source: "S4, cost of a byte",
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
    source: "S4, context switches",
    experiment: "s4-cost",
    claim: "Context switches favour io_uring with fixed buffers and a kernel thread (SQPOLL).",
    test: "4 KiB, queue depth 32: io_uring at most 1.0 times the switches per I/O of libaio, iou+k at most 0.5 times",
    judge: |view| {
        let aio = cost(view, "libaio", 4096);
        let part = |name: &str, wanted| {
            let what = format!("switches per I/O, {name} over libaio");
            view.ratio(what, SwitchesPerIo, &cost(view, name, 4096), &aio, wanted)
        };
        Ok(vec![
            part("io_uring", AtMost(1.0))?,
            part("io_uring+k", AtMost(0.5))?,
            view.told("switches per I/O of libaio", SwitchesPerIo, &aio)?,
        ])
    },
};

pub(super) const INTERVAL_COSTS: Finding = Finding {
    name: "s4-interval-costs",
    source: "S4, request interval",
    experiment: "s4-interval",
    claim: "Intervals over 10 us between requests cost throughput; shorter ones do not.",
    test: "an interval of 10 us at least 0.9 times the IOPS of 1 us; one of 100 us at most 0.9 times those of 10 us",
    judge: |view| {
        let name = view.main_interface("s4-interval")?;
        let name = if view.has("io_uring") { "io_uring" } else { name };
        let of = |us| handed(view, name, us);
        Ok(vec![
            view.ratio("IOPS at 10 us over 1 us", IosPerS, &of(10), &of(1), AtLeast(0.9))?,
            view.ratio("IOPS at 100 us over 10 us", IosPerS, &of(100), &of(10), AtMost(0.9))?,
        ])
    },
};

pub(super) const INTERVAL_LEVELS: Finding = Finding {
    name: "s4-interval-levels",
    source: "S4, request interval",
    experiment: "s4-interval",
    claim: "At intervals over 100 us the interfaces are alike.",
    test: "1000 us: each at least 0.95 times the IOPS of the fastest",
    judge: |view| {
        view.main_interface("s4-interval")?;
        let all: Vec<Config> = view
            .report
            .interfaces
            .iter()
            .filter(|interface| interface.unavailable.is_none() && !interface.name.contains("+k"))
            .map(|interface| handed(view, &interface.name, 1000))
            .collect();
        let fastest = view.fastest(&all).ok_or_else(|| view.skipped("s4-interval"))?;
        let others = all.iter().filter(|config| *config != fastest);
        let evidence: Vec<Evidence> = others
            .map(|config| {
                let what = format!("IOPS, {} over {}", config.interface, fastest.interface);
                view.ratio(what, IosPerS, config, fastest, AtLeast(0.95))
            })
            .collect::<Result<_, _>>()?;
        if evidence.is_empty() {
            return Err("one interface only could be used".to_owned());
        }
        Ok(evidence)
    },
};

pub(super) const CLIFF: Finding = Finding {
    name: "s4-cliff",
    source: "S4, prolonged writes",
    experiment: "s4-writes",
    claim: "Prolonged writes fall off (after about 40 s) when the drive's SLC cache is full.",
    test: "a second from which on the median is at most 0.7 times that before, with hardly any second of the one as fast as one \
           of the other; without one, at least 60 s of writes are needed to say so",
    judge: judge_cliff,
};

/// Seconds of writes without a cliff after which there is none to be expected.
const CLIFF_FREE_S: f64 = 60.0;

fn judge_cliff(view: &View<'_>) -> Judged {
    let name = view.main_interface("s4-writes")?;
    let configs = configs(view, "s4-writes", name);
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

/// Throughput after a cliff is at most so many times that before.
const CLIFF_RATIO: f64 = 0.7;

/// Where throughput fell, and from what to what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cliff {
    /// Pieces before it.
    pub(crate) at: usize,
    /// Median before, bytes a second.
    pub(crate) before: f64,
    /// Median after, bytes a second.
    pub(crate) after: f64,
}

/// The lasting fall that explains a series best; `None` if there is none.
///
/// A fall lasts if at least three pieces and a tenth of the series are on each side, and it is one if of the pieces before at
/// most a tenth are as slow as the fastest tenth after. A single slow second is none, and a slow decline is none. Of several
/// places, it is where the pieces differ least from the medians on their side.
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

/// A point of the experiment on costs.
fn cost(view: &View<'_>, interface: &str, block_bytes: u32) -> Config {
    Config::new(interface, view.report.cores.min(2)).depth(32).block_bytes(block_bytes)
}

/// A point of the experiment on intervals.
fn handed(view: &View<'_>, interface: &str, us: u32) -> Config {
    Config::new(interface, view.report.cores.min(2)).depth(128).pace(Pace::Interval { us })
}

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
