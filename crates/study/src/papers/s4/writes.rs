//! S4 section 5.6: prolonged writes.

use qpair_plots::Interval;

use crate::cliff::{CLIFF_RATIO, Cliff, cliff};
use crate::measure::digits;
use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "s4-writes",
        figure: "S4, prolonged writes (mode stress)",
        shows: "sequential writes, second by second, synchronous and over libaio and io_uring",
        found: "After about 40 s the asynchronous interfaces' throughput fell off: the drives' SLC cache was full.",
        needs: "a device that may be written",
        plan,
    },
    Experiment {
        name: "s4-slc",
        figure: "S4, prolonged writes, on a soft drive",
        shows: "sequential writes to a soft drive of four bits a cell, second by second",
        found: "After about 40 s the asynchronous interfaces' throughput fell off: the drives' SLC cache was full.",
        needs: "nothing",
        plan: model,
    },
];

/// The interfaces of the figure.
const ASYNCHRONOUS: [&str; 2] = ["libaio", "io_uring"];

/// Returns the duration of prolonged writes in seconds. The papers' drives slowed down after 40.
fn prolonged_s(effort: Effort) -> u32 {
    match effort {
        Effort::Quick => 3,
        Effort::Usual => 6,
        Effort::Full => 120,
    }
}

fn writes(interface: &str, cores: u32, seconds: u32) -> Config {
    Config::new(interface, cores)
        .depth(if interface == SYNC { 1 } else { 32 })
        .block_bytes(256 << 10)
        .read_percent(0)
        .pace(Pace::Prolonged { seconds })
}

fn plan(lab: &Lab) -> Plan {
    let mut plan = Plan::new("seconds", Scale::Linear, &[(Metric::BytesPerS, Scale::Linear)]);
    plan.over_time = true;
    let Some(device) = lab.devices.first() else { return plan };
    if !device.may_write {
        return plan.skip("the device may not be written: --allow-writes destroys what is on it");
    }
    let seconds = prolonged_s(lab.effort);
    let mut names: Vec<&str> = ASYNCHRONOUS.into_iter().filter(|name| lab.has(name)).collect();
    if names.is_empty() {
        names.extend(lab.main_interface());
    }
    if lab.effort == Effort::Quick {
        names.drain(..names.len() - 1);
    } else if lab.has("posix") {
        names.push(SYNC);
    }
    let of = |name| series(name, [seconds], |s| Some(writes(name, lab.cores().min(2), s)));
    plan.group("", names.into_iter().map(of).collect()).remark(format!(
        "One run of {seconds} s for each interface. A file is written over again and again; to the drive these are new writes."
    ))
}

/// Returns writes to a soft drive with four bits a cell. The drive is small, and its flash ten
/// times slower than that of the profile, so that its SLC cache is full after seconds.
fn slc(seconds: u32) -> Config {
    let name = "softnvme:size=256MiB,profile=qlc,channels=1,dies=1,slc_program_us=3000,program_us=22000,slc_cache=128MiB,dram_cache=256KiB";
    let config = Config::new(name, 1).depth(8).block_bytes(64 << 10).read_percent(0);
    config.pace(Pace::Prolonged { seconds })
}

/// The duration of the writes to the soft drive in seconds.
const SLC_S: u32 = 8;

fn model(lab: &Lab) -> Plan {
    let mut plan = Plan::new("seconds", Scale::Linear, &[(Metric::BytesPerS, Scale::Linear)]);
    plan.over_time = true;
    if lab.effort == Effort::Quick {
        return plan.skip("the writes take 8 s, and a quick study leaves them out");
    }
    plan.group("", vec![series("soft drive, qlc", [SLC_S], |s| Some(slc(s)))]).remark(
        "A model: a drive made of software, of four bits a cell, whose flash is ten times slower than that of its profile, so that a small \
         cache is full after seconds.",
    )
}

pub(crate) const ROWS: &[Finding] = &[
    Finding {
        name: "s4-cliff",
        source: "S4 section 5.6",
        experiment: "s4-writes",
        needs: &[Writes],
        claim: "Prolonged asynchronous writes fall off (after about 40 s) when the drive's SLC cache is full; synchronous ones do not by then.",
        test: "on a drive of this machine, libaio and io_uring: a second from which on the median is at most 0.7 times that before, with hardly any second \
               of the one as fast as one of the other; synchronous: none; without one, at least 60 s of writes are needed to say so",
        judge: judge_cliff,
    },
    Finding {
        name: "s4-slc-model",
        source: "S4 section 5.6",
        experiment: "s4-slc",
        needs: &[SoftDrive],
        claim: "Prolonged asynchronous writes fall off when the drive's SLC cache is full.",
        test: "a soft drive of four bits a cell: a second from which on the median is at most 0.7 times that before, as for s4-cliff",
        judge: |view| falls(view, "the soft drive", &slc(SLC_S)),
    },
];

/// The duration of writes, in seconds, after which a cliff is no longer expected.
const CLIFF_FREE_S: f64 = 60.0;

fn judge_cliff(view: &View<'_>) -> Judged {
    let all = all_configs(view, "s4-writes");
    if view.report.devices.first().is_some_and(Device::is_virtual) {
        return Err(
            "the disk is virtual: a limit of its host would look like a full SLC cache".to_owned()
        );
    }
    let of = |name: &str| all.iter().copied().find(|config| config.interface == name);
    if all.is_empty() {
        return Err(view.skipped("s4-writes"));
    }
    let mut evidence = Vec::new();
    for name in ASYNCHRONOUS {
        match of(name) {
            Some(config) => evidence.extend(falls(view, name, config)?),
            None => {
                let why = view.need(name).err();
                let why = why.unwrap_or_else(|| "a quick study leaves it out".to_owned());
                evidence.push(Evidence::untested(name, why));
            }
        }
    }
    evidence.push(match of(SYNC) {
        None => Evidence::untested("synchronous writes", "they were not part of the study"),
        Some(config) => {
            let written = over_time(view, config)?;
            let fall = cliff(written.0);
            let ratio = fall.map_or(1.0, |fall| fall.after / fall.before.max(1.0));
            let outcome = match fall {
                Some(_) => Outcome::DoesNotHold,
                None => Outcome::Holds,
            };
            let what = "synchronous, MiB/s after over before".to_owned();
            exact(what, ratio, Some(AtLeast(CLIFF_RATIO)), outcome)
        }
    });
    Ok(evidence)
}

/// Returns the throughput of a prolonged run in each interval, and the length of an interval.
fn over_time<'a>(view: &'a View<'_>, config: &Config) -> Result<(&'a [f64], f64), String> {
    let run = view.report.point(config).and_then(|point| point.runs.first());
    let run = run.ok_or_else(|| view.missing(config))?;
    Ok((&run.over_time, run.sample_s))
}

fn exact(what: String, value: f64, wanted: Option<Threshold>, outcome: Outcome) -> Evidence {
    let interval = Interval { mid: digits(value), bounds: None };
    Evidence { wanted, outcome, ..Evidence::told(what, interval) }
}

/// Looks for a lasting fall of a run.
fn falls(view: &View<'_>, name: &str, config: &Config) -> Judged {
    let (series, sample_s) = over_time(view, config)?;
    let seconds = series.len() as f64 * sample_s;
    let gib = series.iter().sum::<f64>() * sample_s / f64::from(1 << 30);
    let written = exact(format!("{name}, GiB written"), gib, None, Outcome::Holds);
    let wanted = Some(AtMost(CLIFF_RATIO));
    Ok(match cliff(series) {
        Some(Cliff { at, before, after }) => {
            let second = at as f64 * sample_s;
            let what = format!("{name}, MiB/s after second {second:.0} over before");
            vec![exact(what, after / before.max(1.0), wanted, Outcome::Holds), written]
        }
        None => {
            let outcome =
                if seconds >= CLIFF_FREE_S { Outcome::DoesNotHold } else { Outcome::Undecided };
            let median = Interval::of(series).map_or(0.0, |interval| interval.mid);
            let what = format!("{name}, no such second in {seconds:.0} s; ratio");
            let median = median / f64::from(1 << 20);
            vec![
                exact(what, 1.0, wanted, outcome),
                exact(format!("{name}, median MiB/s"), median, None, Outcome::Holds),
                written,
            ]
        }
    })
}
