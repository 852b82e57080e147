//! The findings of S2.

use super::{Finding, all_configs};
use crate::config::Config;
use crate::lab::{BARE_CALL, USER_SPACE};
use crate::measure::Metric;
use crate::outcome::Threshold::{AtLeast, AtMost, Between};

use Metric::{BytesPerS, CpuShare, CpuUsPerIo, IosPerS};

pub(super) const JOBS_OVER_CORES: Finding = Finding {
    name: "s2-jobs-over-cores",
    source: "S2 section 5.1",
    experiment: "s2-jobs",
    claim: "Once the drive is at its limit, more jobs add nothing, and more jobs than cores may lose.",
    test: "reads of 128 KiB, one request a job: four jobs for each core at most 1.05 times the throughput of one for each",
    judge: |view| {
        let cores = view.report.cores;
        let all = all_configs(view, "s2-jobs");
        let of = |jobs| all.iter().copied().find(|config| config.threads == jobs);
        let (few, many) = of(cores).zip(of(4 * cores)).ok_or_else(|| view.skipped("s2-jobs"))?;
        let what = format!("bytes a second, {} jobs over {cores}", 4 * cores);
        Ok(vec![view.ratio(what, BytesPerS, many, few, AtMost(1.05))?])
    },
};

pub(super) const COST_SWITCH: Finding = Finding {
    name: "s2-cost-switch",
    source: "S2 Figure 3",
    experiment: "s2-costs",
    claim: "Going from user mode to the kernel and back costs 0.5 to 2 us, a part of an I/O's processor time.",
    test: "a call that does nothing: 0.02 to 0.3 of the processor time of a read of 4 KiB",
    judge: |view| {
        let (call, read) = (Config::new(BARE_CALL, 1), Config::new("posix", 1));
        Ok(vec![
            view.ratio("a call over a read", CpuUsPerIo, &call, &read, Between(0.02, 0.3))?,
            view.told("us of a call", CpuUsPerIo, &call)?,
        ])
    },
};

pub(super) const COST_STACK: Finding = Finding {
    name: "s2-cost-stack",
    source: "S2 Figure 3",
    experiment: "s2-costs",
    claim: "The kernel's I/O stack costs 5 to 15 us of an I/O, beside 10 to 100 us of the device.",
    test: "a read of 4 KiB, one at a time: processor time at least 0.1 of the median latency",
    judge: |view| {
        let read = Config::new("posix", 1);
        Ok(vec![
            view.value("processor time over latency", CpuShare, &read, AtLeast(0.1))?,
            view.told("us of processor time", CpuUsPerIo, &read)?,
        ])
    },
};

pub(super) const GAP_DEPTH: Finding = Finding {
    name: "s2-gap-depth",
    source: "S2 Figure 9",
    experiment: "s1-fig2",
    claim: "The user-space driver's lead over the kernel shrinks to nothing from queue depth 1 to 64.",
    test: "one core: at depth 1 at least 1.1 times the IOPS of libaio, at 64 at most 1.05 times",
    judge: |view| {
        view.need(USER_SPACE)?;
        let part = |depth, wanted| {
            let of = |name: &str| Config::new(name, 1).depth(depth);
            let what = format!("IOPS at depth {depth}, user space over libaio");
            view.ratio(what, IosPerS, &of(USER_SPACE), &of("libaio"), wanted)
        };
        Ok(vec![part(1, AtLeast(1.1))?, part(64, AtMost(1.05))?])
    },
};
