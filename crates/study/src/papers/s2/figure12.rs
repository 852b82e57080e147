//! S2 Figure 12: guests.

use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s2-guest",
    figure: "S2 Figure 12",
    shows: "I/O of 16 KiB in a guest, on a disk of the user-space stack and on one of the kernel's",
    found: "Reads were 3 % faster on the user-space stack, and writes equal.",
    needs: "a guest with two disks (or files on them), one of a qpair target",
    plan,
}];

fn plan(lab: &Lab) -> Plan {
    let metrics = [
        Metric::IosPerS,
        Metric::P50Us,
        Metric::SystemCallsPerIo,
        Metric::InterruptsPerIo,
        Metric::CpuUsPerIo,
    ];
    let mut plan = Plan::new("threads", Scale::Linear, &metrics.map(|it| (it, Scale::Linear)));
    let (Some(served), Some(name)) = (lab.means.served, lab.main_interface()) else {
        return plan.skip(Guest.lacking(&lab.here()).unwrap_or_default());
    };
    let other = u32::from(served == 0);
    if other as usize >= lab.devices.len() {
        return plan.skip("one device only was given: name one of the kernel's stack as well");
    }
    let may_write = lab.devices.iter().all(|device| device.may_write);
    for (title, reads) in [("reads", 100), ("writes", 0)] {
        if reads > 0 || may_write {
            let of = |label: &str, first| {
                series(label, [1], |_| Some(file(name, lab.cores(), first, reads)))
            };
            let all = vec![of("user-space stack", served), of("the kernel's stack", other)];
            plan = plan.group(title, all);
        }
    }
    plan
}

/// Returns accesses of 16 KiB, the size of the paper's files, to one device.
fn file(interface: &str, cores: u32, first: u32, reads: u8) -> Config {
    Config::new(interface, cores).first(first).block_bytes(16 << 10).read_percent(reads)
}

pub(crate) const ROWS: &[Finding] = &[
    Finding {
        name: "s2-guest-reads",
        source: "S2 Figure 12",
        experiment: "s2-guest",
        needs: &[Guest],
        claim: "A guest on the user-space stack reads whole files about 3 % faster than one on the kernel's.",
        test: "random reads of 16 KiB in a guest: at least 1.01 times those on the disk of the kernel's stack",
        judge: |view| guest(view, 100, AtLeast(1.01)),
    },
    Finding {
        name: "s2-guest-writes",
        source: "S2 Figure 12",
        experiment: "s2-guest",
        needs: &[Guest, Writes],
        claim: "For a guest that writes, both stacks are equal.",
        test: "random writes of 16 KiB in a guest: 0.97 to 1.03 times those on the disk of the kernel's stack",
        judge: |view| guest(view, 0, Between(0.97, 1.03)),
    },
];

fn guest(view: &View<'_>, reads: u8, wanted: Threshold) -> Judged {
    let name = view.main_interface("s2-guest")?;
    let served = view.report.means.served.ok_or_else(|| view.skipped("s2-guest"))?;
    let of = |first| file(name, view.report.cores, first, reads);
    let what = "I/Os a second, the user-space stack over the kernel's";
    Ok(vec![view.ratio(what, IosPerS, &of(served), &of(u32::from(served == 0)), wanted)?])
}
