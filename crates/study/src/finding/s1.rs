//! What S1 found.

use super::{Evidence, Finding, View};
use crate::config::{Assignment, Config};
use crate::lab::USER_SPACE;
use crate::measure::Metric;
use crate::statistics::Threshold;

use Metric::{IosPerS, P50Us, SystemCallsPerIo};
use Threshold::{AtLeast, AtMost};

/// The depth of S1's comparisons at load.
const DEEP: u32 = 128;

pub(super) const USER_SPACE_FIRST: Finding = Finding {
    name: "s1-user-space-first",
    source: "S1 Figure 2",
    experiment: "s1-fig2",
    claim: "The polled user-space driver (SPDK) is fastest, on one core and on two.",
    test: "at queue depth 128, at least as many IOPS as the fastest interface of the kernel",
    judge: |view| {
        view.need(USER_SPACE)?;
        let mut evidence = Vec::new();
        for cores in (1..=2).filter(|cores| *cores <= view.report.cores) {
            let configs = others(view, cores, &[USER_SPACE]);
            let fastest =
                view.fastest(&configs).ok_or("no interface of the kernel was measured")?;
            let own = Config::new(USER_SPACE, cores).depth(DEEP);
            let what = format!("IOPS on {cores} core(s), times those of {}", fastest.interface);
            evidence.push(view.ratio(what, IosPerS, &own, fastest, AtLeast(1.0))?);
        }
        Ok(evidence)
    },
};

pub(super) const KERNEL_THREAD_TWO_CORES: Finding = Finding {
    name: "s1-kernel-thread-two-cores",
    source: "S1 Figure 2",
    experiment: "s1-fig2",
    claim: "Given two cores, io_uring with a kernel thread (iou+k) comes closest to SPDK, well ahead of plain io_uring (+43 %).",
    test: "two cores, queue depth 128: at least 1.1 times the IOPS of io_uring",
    judge: |view| {
        let cores = view.two_cores()?;
        let (k, plain) = (at("io_uring+k", cores), at("io_uring", cores));
        Ok(vec![
            view.ratio("IOPS, iou+k over io_uring, two cores", IosPerS, &k, &plain, AtLeast(1.1))?,
            told_ratio(view, "CPU per I/O, the same", Metric::CpuUsPerIo, &k, &plain)?,
        ])
    },
};

pub(super) const KERNEL_THREAD_COLLAPSES: Finding = Finding {
    name: "s1-kernel-thread-collapses",
    source: "S1 Figure 2",
    experiment: "s1-fig2",
    claim: "On one core iou+k collapses (13 instead of 171 KIOPS, 8 ms median): thread and kernel thread take turns.",
    test: "one core, queue depth 128: at most half the IOPS of io_uring",
    judge: |view| {
        let (k, plain) = (at("io_uring+k", 1), at("io_uring", 1));
        Ok(vec![
            view.ratio("IOPS, iou+k over io_uring, one core", IosPerS, &k, &plain, AtMost(0.5))?,
            told_ratio(view, "median latency, the same", P50Us, &k, &plain)?,
            told_ratio(
                view,
                "median latency at queue depth 1",
                P50Us,
                &k.clone().depth(1),
                &plain.clone().depth(1),
            )?,
        ])
    },
};

pub(super) const POLLING_LATENCY: Finding = Finding {
    name: "s1-polling-latency",
    source: "S1 Figure 2",
    experiment: "s1-fig2",
    claim: "Polled io_uring (iou+p) keeps up with SPDK up to about 150 KIOPS: polling beats interrupts at low depth.",
    test: "one core, queue depth 1: at most 0.95 times the median latency of io_uring",
    judge: |view| {
        let (polled, plain) = (Config::new("io_uring+p", 1), Config::new("io_uring", 1));
        let what = "median latency at queue depth 1, iou+p over io_uring";
        Ok(vec![view.ratio(what, P50Us, &polled, &plain, AtMost(0.95))?])
    },
};

pub(super) const IO_URING_OVER_LIBAIO: Finding = Finding {
    name: "s1-io-uring-over-libaio",
    source: "S1 Figure 2",
    experiment: "s1-fig2",
    claim: "At queue depth 16 io_uring is ahead of libaio (79 against 72 KIOPS, 185 against 190 us).",
    test: "one core, queue depth 16: at least as many IOPS as libaio",
    judge: |view| {
        let (uring, aio) = (at("io_uring", 1).depth(16), at("libaio", 1).depth(16));
        Ok(vec![
            view.ratio("IOPS, io_uring over libaio", IosPerS, &uring, &aio, AtLeast(1.0))?,
            told_ratio(view, "median latency, the same", P50Us, &uring, &aio)?,
        ])
    },
};

pub(super) const LIBAIO_CALLS: Finding = Finding {
    name: "s1-libaio-calls",
    source: "S1 Figure 3",
    experiment: "s1-fig3",
    claim: "libaio needs two system calls per I/O, fewer as batches grow.",
    test: "at least 1.8 at queue depth 1, and at depth 128 at most half as many",
    judge: |view| {
        let (shallow, deep) = (calls(view, "libaio", 1)?, calls(view, "libaio", DEEP)?);
        Ok(vec![
            view.value(
                "system calls per I/O at depth 1",
                SystemCallsPerIo,
                &shallow,
                AtLeast(1.8),
            )?,
            view.ratio("depth 128 over depth 1", SystemCallsPerIo, &deep, &shallow, AtMost(0.5))?,
        ])
    },
};

pub(super) const IO_URING_CALLS: Finding = Finding {
    name: "s1-io-uring-calls",
    source: "S1 Figure 3",
    experiment: "s1-fig3",
    claim: "io_uring needs at most about one system call per I/O.",
    test: "at most 1.05 at every queue depth",
    judge: |view| {
        [1, 16, DEEP]
            .into_iter()
            .map(|depth| {
                let what = format!("system calls per I/O at depth {depth}");
                view.value(what, SystemCallsPerIo, &calls(view, "io_uring", depth)?, AtMost(1.05))
            })
            .collect()
    },
};

pub(super) const POLLING_CALLS: Finding = Finding {
    name: "s1-polling-calls",
    source: "S1 Figure 3",
    experiment: "s1-fig3",
    claim: "Up to queue depth 16, io_uring makes fewer system calls than its polled mode.",
    test: "at queue depths 1 and 16: at most as many per I/O",
    judge: |view| {
        [1, 16]
            .into_iter()
            .map(|depth| {
                let polled = calls(view, "io_uring+p", depth)?;
                let plain = calls(view, "io_uring", depth)?;
                let what = format!("io_uring over iou+p at depth {depth}");
                view.ratio(what, SystemCallsPerIo, &plain, &polled, AtMost(1.0))
            })
            .collect()
    },
};

pub(super) const KERNEL_THREAD_CALLS: Finding = Finding {
    name: "s1-kernel-thread-calls",
    source: "S1 Figure 3",
    experiment: "s1-fig3",
    claim: "With a kernel thread, I/O needs no system call.",
    test: "at queue depth 128: at most 0.01 per I/O",
    judge: |view| {
        let deep = calls(view, "io_uring+k", DEEP)?;
        Ok(vec![
            view.value("system calls per I/O at depth 128", SystemCallsPerIo, &deep, AtMost(0.01))?,
            view.told("at depth 1", SystemCallsPerIo, &deep.clone().depth(1))?,
        ])
    },
};

pub(super) const MORE_CORES: Finding = Finding {
    name: "s1-more-cores",
    source: "S1 Figure 4",
    experiment: "s1-fig4",
    claim: "Only iou+k gains from more cores than drives; it needs two for each.",
    test: "from as many cores as drives to the most measured: iou+k at least 1.25 times the IOPS, io_uring at most 1.1 times",
    judge: |view| {
        let drives = view.need_drives("s1-fig4")?.min(5);
        let (fewest, most) = (drives, (2 * drives).min(view.report.cores));
        if most <= fewest {
            return Err(format!("{drives} drives and {} cores", view.report.cores));
        }
        let of = |name: &str, cores| {
            Config::new(name, cores).threads(drives).depth(DEEP).drives(drives, Assignment::Own)
        };
        let part = |name: &str, wanted| {
            let what = format!("IOPS of {name}, {most} cores over {fewest}");
            view.ratio(what, IosPerS, &of(name, most), &of(name, fewest), wanted)
        };
        Ok(vec![part("io_uring+k", AtLeast(1.25))?, part("io_uring", AtMost(1.1))?])
    },
};

pub(super) const TOO_FEW_CORES: Finding = Finding {
    name: "s1-too-few-cores",
    source: "S1 Figure 5",
    experiment: "s1-fig5",
    claim: "iou+k is ahead of io_uring while there are two cores for each drive, and behind when there are not.",
    test: "at the most drives with two cores each at least 1.0 times the IOPS of io_uring; at the most drives at most 1.0 times",
    judge: |view| {
        let drives = view.need_drives("s1-fig5")?;
        let cores = view.report.cores;
        if 2 * drives <= cores {
            return Err(format!("{cores} cores are enough for {drives} drives"));
        }
        let of = |name: &str, drives: u32| {
            Config::new(name, (2 * drives).min(cores))
                .threads(drives)
                .depth(DEEP)
                .drives(drives, Assignment::Own)
        };
        let part = |drives: u32, wanted| {
            let what = format!("IOPS, iou+k over io_uring, {drives} drive(s)");
            view.ratio(what, IosPerS, &of("io_uring+k", drives), &of("io_uring", drives), wanted)
        };
        let enough = (cores / 2).max(1);
        Ok(vec![part(enough, AtLeast(1.0))?, part(drives, AtMost(1.0))?])
    },
};

pub(super) const CHOICE: Finding = Finding {
    name: "s1-choice",
    source: "S1, lessons",
    experiment: "s1-fig2",
    claim: "The right interface depends on the cores there are for each drive.",
    test: "queue depth 128: on two cores, another interface than the fastest of one core has at least 1.05 times its IOPS",
    judge: |view| {
        let cores = view.two_cores()?;
        let on_one = others(view, 1, &[]);
        let first = view.fastest(&on_one).ok_or_else(|| view.skipped("s1-fig2"))?;
        let on_two = others(view, cores, &[&first.interface]);
        let other = view.fastest(&on_two).ok_or("one interface only was measured")?;
        let same = at(&first.interface, cores);
        let what = format!(
            "IOPS on two cores, {} over {}, the fastest on one",
            other.interface, first.interface
        );
        Ok(vec![view.ratio(what, IosPerS, other, &same, AtLeast(1.05))?])
    },
};

fn at(interface: &str, cores: u32) -> Config {
    Config::new(interface, cores).depth(DEEP)
}

/// Where system calls are counted: on two cores, if there are two.
fn calls(view: &View<'_>, interface: &str, depth: u32) -> Result<Config, String> {
    view.need(interface)?;
    Ok(Config::new(interface, view.report.cores.min(2)).depth(depth))
}

/// Every usable interface at load, but some.
fn others(view: &View<'_>, cores: u32, but: &[&str]) -> Vec<Config> {
    view.report
        .interfaces
        .iter()
        .map(|interface| interface.name.as_str())
        .filter(|name| view.has(name) && !but.contains(name))
        .map(|name| at(name, cores))
        .collect()
}

fn told_ratio(
    view: &View<'_>,
    what: &str,
    metric: Metric,
    above: &Config,
    below: &Config,
) -> Result<Evidence, String> {
    Ok(Evidence::told(what, view.ratio_of(metric, above, below)?))
}
