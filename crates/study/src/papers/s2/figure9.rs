//! S2 Figures 9 and 10: the SCSI stack in user space, and the kernel's.

use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "s2-scsi",
        figure: "S2 Figure 9",
        shows: "a SCSI disk over the user-space stack and over the kernel's: 4 KiB at random by depth, and what an I/O costs",
        found: "The stack in user space had 24 % more reads and 30 % more writes a second at depth 1; the lead closed with the depth.",
        needs: "a disk of a SCSI host adapter, under both drivers (--rebind)",
        plan: plan_small,
    },
    Experiment {
        name: "s2-scsi-128k",
        figure: "S2 Figure 10",
        shows: "a SCSI disk over the user-space stack and over the kernel's: 128 KiB sequential by jobs, and what an I/O costs",
        found: "At 128 KiB both stacks were equal.",
        needs: "a disk of a SCSI host adapter, under both drivers (--rebind)",
        plan: plan_large,
    },
];

/// The depths of 4 KiB at random, and the numbers of jobs of 128 KiB.
const DEPTHS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const JOBS: [u32; 3] = [1, 4, 16];

/// The costs of an I/O, which are counts: they hold on models of drives too.
const COSTS: [(Metric, Scale); 3] = [
    (Metric::SystemCallsPerIo, Scale::Linear),
    (Metric::InterruptsPerIo, Scale::Linear),
    (Metric::CpuUsPerIo, Scale::Linear),
];

fn small(interface: &str, cores: u32, reads: u8) -> Config {
    Config::new(interface, cores).read_percent(reads)
}

fn large(interface: &str, cores: u32, jobs: u32) -> Config {
    Config::new(interface, cores).threads(jobs).block_bytes(128 << 10).sequential()
}

/// Returns the stacks that can be compared.
fn stacks(lab: &Lab) -> impl Iterator<Item = &'static str> + Clone {
    [USER_SCSI, "libaio"].into_iter().filter(|name| lab.has(name))
}

fn plan_small(lab: &Lab) -> Plan {
    let shown = [&[(Metric::IosPerS, Scale::Linear), (Metric::P50Us, Scale::Linear)], &COSTS[..]];
    let mut plan = Plan::new("queue depth", Scale::Log, &shown.concat());
    if let Some(why) = Interface(USER_SCSI).lacking(&lab.here()) {
        return plan.skip(why);
    }
    let may_write = lab.devices.iter().all(|device| device.may_write);
    for (title, reads) in [("4 KiB reads", 100), ("4 KiB writes", 0)] {
        if reads > 0 || may_write {
            let of = |name| {
                let at = |depth| Some(small(name, lab.cores(), reads).depth(depth));
                series(name, DEPTHS, at)
            };
            plan = plan.group(title, stacks(lab).map(of).collect());
        }
    }
    plan
}

fn plan_large(lab: &Lab) -> Plan {
    let shown = [&[(Metric::BytesPerS, Scale::Linear)], &COSTS[..]];
    let plan = Plan::new("jobs", Scale::Log, &shown.concat());
    if let Some(why) = Interface(USER_SCSI).lacking(&lab.here()) {
        return plan.skip(why);
    }
    let of = |name| series(name, JOBS, |jobs| Some(large(name, lab.cores(), jobs)));
    plan.group("128 KiB reads", stacks(lab).map(of).collect())
}

pub(crate) const ROWS: &[Finding] = &[
    Finding {
        name: "s2-gap-depth",
        source: "S2 Figure 9",
        experiment: "s1-fig2",
        needs: &[Interface(USER_SPACE), Interface("libaio")],
        claim: "The user-space driver's lead over the kernel shrinks to nothing from queue depth 1 to 64.",
        test: "one core: at depth 1 at least 1.1 times the IOPS of libaio, at 64 at most 1.05 times",
        judge: |view| {
            let part = |depth, wanted| {
                let of = |name: &str| Config::new(name, 1).depth(depth);
                let what = format!("IOPS at depth {depth}, user space over libaio");
                view.ratio(what, IosPerS, &of(USER_SPACE), &of("libaio"), wanted)
            };
            Ok(vec![part(1, AtLeast(1.1))?, part(64, AtMost(1.05))?])
        },
    },
    Finding {
        name: "s2-user-scsi",
        source: "S2 Figure 9",
        experiment: "s2-scsi",
        needs: &[Interface(USER_SCSI), Interface("libaio")],
        claim: "The SCSI stack in user space has a quarter to a third more IOPS than the kernel's.",
        test: "4 KiB at random, queue depth 1: at least 1.1 times the IOPS of libaio, reads and writes",
        judge: |view| {
            let part = |reads, words: &str| {
                let of = |name| small(name, view.report.cores, reads);
                let what = format!("{words} a second, user space over libaio");
                view.ratio(what, IosPerS, &of(USER_SCSI), &of("libaio"), AtLeast(1.1))
            };
            let writes = view.where_met(Writes, "writes a second", || part(0, "writes"))?;
            Ok(vec![part(100, "reads")?, writes])
        },
    },
    Finding {
        name: "s2-user-128k",
        source: "S2 Figure 10",
        experiment: "s2-scsi-128k",
        needs: &[Interface(USER_SCSI), Interface("libaio")],
        claim: "With sequential I/O of 128 KiB both SCSI stacks have the same throughput.",
        test: "reads, 1, 4 and 16 jobs: 0.95 to 1.05 times the bytes a second of libaio",
        judge: |view| {
            let part = |jobs| {
                let of = |name| large(name, view.report.cores, jobs);
                let what = format!("bytes a second, {jobs} job(s), user space over libaio");
                view.ratio(what, BytesPerS, &of(USER_SCSI), &of("libaio"), Between(0.95, 1.05))
            };
            JOBS.into_iter().map(part).collect()
        },
    },
];
