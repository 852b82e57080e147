//! S1 Figure 3 and section 2: the system calls of an I/O.

use super::{DEEP, depths, each};
use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s1-fig3",
    figure: "S1 Figure 3",
    shows: "system calls per I/O by queue depth",
    found: "libaio needs two, fewer as batches grow; io_uring at most about one; iou+k and SPDK none.",
    needs: "nothing",
    plan,
}];

fn plan(lab: &Lab) -> Plan {
    let cores = lab.cores().min(2);
    let plan = Plan::new("queue depth", Scale::Log, &[(Metric::SystemCallsPerIo, Scale::Linear)]);
    let mut all =
        by_interface(lab, depths(lab), |name, depth| Some(Config::new(name, cores).depth(depth)));
    if lab.has("libaio") {
        // The papers' libaio gets completions by a system call; ours reads them from the mapped
        // ring.
        all.push(series("libaio, io_getevents", depths(lab).iter().copied(), |depth| {
            Some(Config::new(LIBAIO_CALLS, cores).depth(depth))
        }));
    }
    plan.group(&cores_words(cores), all).remark(
        "Counted by the channels themselves. posix counts those of its pool of threads, without the waking of threads.",
    )
}

pub(crate) const ROWS: &[Finding] = &[
    Finding {
        name: "s1-libaio-calls",
        source: "S1 section 2, Figure 3",
        experiment: "s1-fig3",
        needs: &[Interface("libaio"), Interface("io_uring")],
        claim: "libaio needs two system calls for an I/O, one to submit and one to ask for its end; io_uring needs fewer.",
        test: "completions asked for by calls: at least 1.8 at queue depth 1; io_uring at most 0.75 times as many at depths 1, 16 and 128",
        judge: |view| {
            let aio = |depth| calls(view, LIBAIO_CALLS, depth);
            let what = "system calls per I/O of libaio at depth 1";
            let mut evidence = vec![view.value(what, SystemCallsPerIo, &aio(1), AtLeast(1.8))?];
            for depth in [1, 16, DEEP] {
                let uring = calls(view, "io_uring", depth);
                let what = format!("system calls, io_uring over libaio, depth {depth}");
                evidence.push(view.ratio(
                    what,
                    SystemCallsPerIo,
                    &uring,
                    &aio(depth),
                    AtMost(0.75),
                )?);
            }
            Ok(evidence)
        },
    },
    Finding {
        name: "s1-polling-calls",
        source: "S1 section 3.1, Figure 3",
        experiment: "s1-fig3",
        needs: &[Interface("io_uring+p"), Interface("io_uring")],
        claim: "Up to queue depth 16 plain io_uring makes fewer system calls than its polled mode: the interrupt's delay batches.",
        test: "at depths 1, 4 and 16 at most as many per I/O, and at 16 at most 0.95 times as many",
        judge: |view| {
            [(1, 1.0), (4, 1.0), (16, 0.95)]
                .into_iter()
                .map(|(depth, most)| {
                    let (plain, polled) =
                        (calls(view, "io_uring", depth), calls(view, "io_uring+p", depth));
                    let what = format!("system calls, io_uring over iou+p, depth {depth}");
                    view.ratio(what, SystemCallsPerIo, &plain, &polled, AtMost(most))
                })
                .collect()
        },
    },
    Finding {
        name: "s1-io-uring-calls",
        source: "S1 section 3.1, Figure 3",
        experiment: "s1-fig3",
        needs: &[],
        claim: "At depth, io_uring makes about one system call for an I/O, polled or not.",
        test: "one request a call, queue depths 64 and 128: 0.8 to 1.1",
        judge: |view| {
            let mut evidence = Vec::new();
            for depth in [64, DEEP] {
                evidence.extend(each(view, &["io_uring", "io_uring+p"], |name| {
                    let what = format!("system calls per I/O of {name} at depth {depth}");
                    view.value(what, SystemCallsPerIo, &calls(view, name, depth), Between(0.8, 1.1))
                })?);
            }
            Ok(evidence)
        },
    },
    Finding {
        name: "s1-kernel-thread-calls",
        source: "S1 Figure 3",
        experiment: "s1-fig3",
        needs: &[],
        claim: "With a kernel thread, and with SPDK, I/O needs no system call.",
        test: "queue depths 1, 16 and 128: at most 0.01 per I/O",
        judge: |view| {
            let mut evidence = Vec::new();
            for depth in [1, 16, DEEP] {
                evidence.extend(each(view, &["io_uring+k", USER_SPACE], |name| {
                    let what = format!("system calls per I/O of {name} at depth {depth}");
                    view.value(what, SystemCallsPerIo, &calls(view, name, depth), AtMost(0.01))
                })?);
            }
            Ok(evidence)
        },
    },
    Finding {
        name: "s1-libaio-buffered",
        source: "S1 section 2",
        experiment: "s3-cache",
        needs: &[Interface("libaio")],
        claim: "libaio is asynchronous for unbuffered files only; with the page cache in between, submitting blocks.",
        test: "page cache empty at first, queue depth 1: submitting takes at least 0.8 of an I/O's time",
        judge: |view| {
            let config = Config::new("libaio", view.report.cores.min(2)).cached();
            Ok(vec![view.value(
                "submission's share of an I/O's time",
                SubmitShare,
                &config,
                AtLeast(0.8),
            )?])
        },
    },
];

/// Returns the point at which system calls are counted: on two cores, or on one if there is only
/// one.
fn calls(view: &View<'_>, interface: &str, depth: u32) -> Config {
    Config::new(interface, view.report.cores.min(2)).depth(depth)
}
