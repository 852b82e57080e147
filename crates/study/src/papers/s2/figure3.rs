//! S2 Figure 3: the cost of the kernel's layers.

use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s2-costs",
    figure: "S2 Figure 3",
    shows: "processor time of a call that does nothing, and of a read of 4 KiB",
    found: "Going to the kernel and back costs 0.5 to 2 us, the I/O stack 5 to 15 us (both cited).",
    needs: "the system call pread",
    plan,
}];

fn plan(lab: &Lab) -> Plan {
    let shown = [(Metric::CpuUsPerIo, Scale::Linear), (Metric::P50Us, Scale::Linear)];
    let plan = Plan::new("queue depth", Scale::Linear, &shown);
    if !lab.has("posix") {
        return plan.skip("the devices take no pread");
    }
    let of = |label: &str, name: &str| series(label, [1], |_| Some(Config::new(name, 1)));
    plan.group("", vec![of("a call that does nothing", BARE_CALL), of("pread of 4 KiB", "posix")])
}

pub(crate) const ROWS: &[Row] = &[
    Tested(Finding {
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
    }),
    Tested(Finding {
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
    }),
    untested(
        "s2-cost-fs",
        "S2 Figure 3",
        "A journaling file system adds 40 to 200 % to a durable write, and a copy-on-write one up to five times.",
        &[FileSystems],
    ),
];
