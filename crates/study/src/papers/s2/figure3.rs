//! S2 Figure 3: the cost of the kernel's layers.

use crate::means::FILE_SYSTEMS;
use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "s2-fs",
        figure: "S2 Figure 3, file systems",
        shows: "durable writes of 4 KiB through file systems, and to the block device below",
        found: "ext file systems added 40 to 200 % by their journal, btrfs up to five times (cited).",
        needs: "root, loop devices, and the programs that make the file systems",
        plan: file_systems,
    },
    Experiment {
        name: "s2-costs",
        figure: "S2 Figure 3",
        shows: "processor time of a call that does nothing, and of a read of 4 KiB",
        found: "Going to the kernel and back costs 0.5 to 2 us, the I/O stack 5 to 15 us (both cited).",
        needs: "the system call pread",
        plan,
    },
];

fn plan(lab: &Lab) -> Plan {
    let shown = [(Metric::CpuUsPerIo, Scale::Linear), (Metric::P50Us, Scale::Linear)];
    let plan = Plan::new("queue depth", Scale::Linear, &shown);
    if !lab.has("posix") {
        return plan.skip("the devices take no pread");
    }
    let of = |label: &str, name: &str| series(label, [1], |_| Some(Config::new(name, 1)));
    plan.group("", vec![of("a call that does nothing", BARE_CALL), of("pread of 4 KiB", "posix")])
}

pub(crate) const ROWS: &[Finding] = &[
    Finding {
        name: "s2-cost-switch",
        source: "S2 Figure 3",
        experiment: "s2-costs",
        needs: &[Interface("posix")],
        claim: "Going from user mode to the kernel and back costs 0.5 to 2 us, a part of an I/O's processor time.",
        test: "a call that does nothing: 0.02 to 0.3 of the processor time of a read of 4 KiB",
        judge: |view| {
            let (call, read) = (Config::new(BARE_CALL, 1), Config::new("posix", 1));
            Ok(vec![
                view.ratio("a call over a read", CpuUsPerIo, &call, &read, Between(0.02, 0.3))?,
                view.told("us of a call", CpuUsPerIo, &call)?,
            ])
        },
    },
    Finding {
        name: "s2-cost-stack",
        source: "S2 Figure 3",
        experiment: "s2-costs",
        needs: &[Interface("posix")],
        claim: "The kernel's I/O stack costs 5 to 15 us of an I/O, beside 10 to 100 us of the device.",
        test: "a read of 4 KiB, one at a time: processor time at least 0.1 of the median latency",
        judge: |view| {
            let read = Config::new("posix", 1);
            Ok(vec![
                view.value("processor time over latency", CpuShare, &read, AtLeast(0.1))?,
                view.told("us of processor time", CpuUsPerIo, &read)?,
            ])
        },
    },
    Finding {
        name: "s2-cost-fs",
        source: "S2 Figure 3",
        experiment: "s2-fs",
        needs: &[FileSystem("ext4")],
        claim: "A journaling file system adds 40 to 200 % to a durable write, and a copy-on-write one up to five times.",
        test: "overwriting 4 KiB with fsync: ext4 1.4 to 3 times the median latency of the block device below, btrfs at least 3 times",
        judge: |view| {
            let raw = Config::new(DURABLE_RAW, 1).read_percent(0);
            let part = |name: &'static str, wanted| {
                let what = format!("median latency, {name} over the block device");
                view.where_met(FileSystem(name), &what, || {
                    view.ratio(&what, P50Us, &durable(name), &raw, wanted)
                })
            };
            Ok(vec![
                part("ext4", Between(1.4, 3.0))?,
                part("btrfs", AtLeast(3.0))?,
                view.told("us of the block device", P50Us, &raw)?,
            ])
        },
    },
];

fn durable(file_system: &str) -> Config {
    Config::new(format!("{DURABLE}{file_system}"), 1).read_percent(0)
}

fn file_systems(lab: &Lab) -> Plan {
    let shown = [(Metric::P50Us, Scale::Log), (Metric::IosPerS, Scale::Log)];
    let mut plan = Plan::new("threads", Scale::Linear, &shown);
    let mut all = Vec::new();
    for name in FILE_SYSTEMS {
        match FileSystem(name).lacking(&lab.here()) {
            Some(why) => plan = plan.skip(why),
            None => all.push(series(name, [1], |_| Some(durable(name)))),
        }
    }
    if !all.is_empty() {
        let raw = |_| Some(Config::new(DURABLE_RAW, 1).read_percent(0));
        all.push(series("the block device below", [1], raw));
    }
    plan.group("", all).remark(
        "A loop device over a file in the study's folder, and file systems made in others: a write goes through the page cache, and \
         fsync makes it durable.",
    )
}
