//! S4 section 5.1: synchronous and asynchronous I/O.

use super::DEPTH_ASYNC;
use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s4-sync",
    figure: "S4 section 5.1",
    shows: "random reads by threads: synchronous, and asynchronous with 64 requests for each",
    found: "libaio and io_uring are far ahead of synchronous I/O at every number of threads.",
    needs: "nothing",
    plan,
}];

fn plan(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Linear), (Metric::P50Us, Scale::Log)];
    let plan = Plan::new("threads", Scale::Linear, &shown);
    let mut xs = vec![1, lab.cores(), 4];
    xs.sort_unstable();
    xs.dedup();
    let of = |name: &str, threads| Config::new(name, lab.cores()).threads(threads);
    let mut all = Vec::new();
    if lab.has("posix") {
        all.push(series("synchronous", xs.iter().copied(), |n| Some(of(SYNC, n))));
    }
    for name in ["libaio", "io_uring"].into_iter().filter(|name| lab.has(name)) {
        let deep = |threads| Some(of(name, threads).depth(DEPTH_ASYNC));
        all.push(series(name, xs.iter().copied(), deep));
    }
    plan.group(&cores_words(lab.cores()), all)
}

pub(crate) const ROWS: &[Finding] = &[Finding {
    name: "s4-async",
    source: "S4 section 5.1",
    experiment: "s4-sync",
    needs: &[Interface("posix")],
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
}];
