//! S4 section 5.6: prolonged writes.

use qpair_plots::Interval;

use crate::cliff::{CLIFF_RATIO, Cliff, cliff};
use crate::measure::digits;
use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s4-writes",
    figure: "S4, prolonged writes (mode stress)",
    shows: "sequential writes, second by second",
    found: "After about 40 s the asynchronous interfaces' throughput fell off: the drives' SLC cache was full.",
    needs: "a device that may be written",
    plan,
}];

/// Returns the duration of prolonged writes in seconds. The papers' drives slowed down after 40.
fn prolonged_s(effort: Effort) -> u32 {
    match effort {
        Effort::Quick => 3,
        Effort::Usual => 15,
        Effort::Full => 120,
    }
}

fn plan(lab: &Lab) -> Plan {
    let mut plan = Plan::new("seconds", Scale::Linear, &[(Metric::BytesPerS, Scale::Linear)]);
    plan.over_time = true;
    let Some(device) = lab.devices.first() else { return plan };
    if !device.may_write {
        return plan.skip("the device may not be written: --allow-writes destroys what is on it");
    }
    let seconds = prolonged_s(lab.effort);
    let config = |name: &str| {
        Config::new(name, lab.cores().min(2))
            .depth(if name == SYNC { 1 } else { 32 })
            .block_bytes(256 << 10)
            .read_percent(0)
            .pace(Pace::Prolonged { seconds })
    };
    let mut names: Vec<&str> = lab.main_interface().into_iter().collect();
    if lab.has("posix") && lab.effort == Effort::Full {
        names.push(SYNC);
    }
    let all = names.into_iter().map(|name| series(name, [seconds], |_| Some(config(name))));
    plan.group("", all.collect()).remark(format!(
        "One run of {seconds} s for each interface. A file is written over again and again; to the drive these are new writes."
    ))
}

pub(crate) const ROWS: &[Row] = &[Tested(Finding {
    name: "s4-cliff",
    source: "S4 section 5.6",
    experiment: "s4-writes",
    claim: "Prolonged asynchronous writes fall off (after about 40 s) when the drive's SLC cache is full.",
    test: "on a drive of this machine, a second from which on the median is at most 0.7 times that before, with hardly any second of the one \
               as fast as one of the other; without one, at least 60 s of writes are needed to say so",
    judge: judge_cliff,
})];

/// The duration of writes, in seconds, after which a cliff is no longer expected.
const CLIFF_FREE_S: f64 = 60.0;

fn judge_cliff(view: &View<'_>) -> Judged {
    let name = view.main_interface("s4-writes")?;
    let configs = configs(view, "s4-writes", name);
    if view.report.devices.first().is_some_and(Device::is_virtual) {
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
