//! S4 section 5.4: requests that another thread hands over.

use super::io_uring_or;
use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s4-interval",
    figure: "S4, request interval (mode msg)",
    shows: "random reads by one thread to which one or two others hand requests over, by the interval between two requests",
    found: "Intervals over 10 us cost throughput; over 100 us the interfaces are alike.",
    needs: "nothing",
    plan,
}];

/// The number of requests in flight where they are issued one by one. This is enough for all
/// requests that arrive.
const DEPTH_HANDED: u32 = 128;

fn plan(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Log), (Metric::P50Us, Scale::Log)];
    let plan = Plan::new("interval between two requests, us", Scale::Log, &shown);
    let intervals: &[u32] = match lab.effort {
        Effort::Full => &[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000],
        _ => &[1, 10, 100, 200],
    };
    let cores = lab.cores().min(2);
    let mut all = by_interface(lab, intervals, |name, us| {
        // One thread spins for requests and another submits them. The kernel thread would be a
        // third.
        (!name.contains("+k"))
            .then(|| Config::new(name, cores).depth(DEPTH_HANDED).pace(Pace::Interval { us }))
    });
    if lab.has("posix") {
        all.push(series("synchronous", intervals.iter().copied(), |us| {
            Some(Config::new(SYNC, cores).pace(Pace::Interval { us }))
        }));
    }
    if let Some(name) = lab.main_interface() {
        // Each of two producers waits twice as long, so that as much is offered.
        let of = |us| Some(Config::new(name, cores).depth(DEPTH_HANDED).pace(two(us)).producers(2));
        all.push(series(&format!("{name}, two producers"), intervals.iter().copied(), of));
    }
    plan.group(&cores_words(cores), all).remark(
        "One thread submits. The interval is between two requests of all producers together: each of two waits twice as long.",
    )
}

/// Returns the pace of each of two producers that together make a request every `us` microseconds.
fn two(us: u32) -> Pace {
    Pace::Interval { us: 2 * us }
}

pub(crate) const ROWS: &[Finding] = &[
    Finding {
        name: "s4-interval-costs",
        source: "S4 section 5.4",
        experiment: "s4-interval",
        needs: &[],
        claim: "One thread that submits for others keeps up with a request every 10 us; with longer gaps asynchronous I/O loses its lead.",
        test: "io_uring, every 10 us, from one producer and from two: at least 0.95 times what is offered (100 thousand a second), or what a full queue \
               reaches if that is less",
        judge: |view| {
            let name = io_uring_or(view, "s4-interval")?;
            let (handed, full) = (handed(view, name, 10), calm(view, name));
            let several = full.clone().pace(two(10)).producers(2);
            let ceiling = view.interval(IosPerS, &full)?.mid;
            let part = |what: &str, handed: &Config| match ceiling < OFFERED_IOS_PER_S {
                true => {
                    let what = format!("IOPS, {what} over a full queue");
                    view.ratio(what, IosPerS, handed, &full, AtLeast(0.95))
                }
                false => {
                    let least = AtLeast(0.95 * OFFERED_IOS_PER_S);
                    view.value(format!("IOPS, {what}"), IosPerS, handed, least)
                }
            };
            Ok(vec![
                part("every 10 us", &handed)?,
                part("two producers, each every 20 us", &several)?,
            ])
        },
    },
    Finding {
        name: "s4-interval-levels",
        source: "S4 section 5.4",
        experiment: "s4-interval",
        needs: &[Interface("posix")],
        claim: "At intervals over 100 us synchronous I/O is as good as asynchronous.",
        test: "synchronous over io_uring: at 10 us at most 0.8 times the IOPS, at 100 and 200 us at least 0.95 times",
        judge: |view| {
            let name = io_uring_or(view, "s4-interval")?;
            [(10, AtMost(0.8)), (100, AtLeast(0.95)), (200, AtLeast(0.95))]
                .into_iter()
                .map(|(us, wanted)| {
                    let what = format!("IOPS every {us} us, synchronous over {name}");
                    let sync = handed(view, SYNC, us).depth(1);
                    view.ratio(what, IosPerS, &sync, &handed(view, name, us), wanted)
                })
                .collect()
        },
    },
];

/// The I/Os a second at an interval of 10 us.
const OFFERED_IOS_PER_S: f64 = 1e5;

/// Returns a point of the experiment on intervals.
fn handed(view: &View<'_>, interface: &str, us: u32) -> Config {
    calm(view, interface).pace(Pace::Interval { us })
}

/// Returns the point of the experiment on intervals with a full queue.
fn calm(view: &View<'_>, interface: &str) -> Config {
    Config::new(interface, view.report.cores.min(2)).depth(128)
}
