//! S1 Figure 5: one thread for each drive, as drives are added.

use super::array;
use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s1-fig5",
    figure: "S1 Figure 5",
    shows: "one thread for each of 1 to N drives, queue depth 128",
    found: "SPDK was first everywhere; iou+k followed 9 to 16 % behind while there were two cores for each drive, and was last \
            when there were not.",
    needs: "several devices",
    plan,
}];

fn plan(lab: &Lab) -> Plan {
    let mut plan = Plan::new("drives", Scale::Linear, &[(Metric::IosPerS, Scale::Linear)]);
    if !several_devices(lab, &mut plan) {
        return plan;
    }
    let xs = counts(lab.devices.len() as u32);
    let series = by_interface(lab, &xs, |name, drives| {
        let cores = (2 * drives).min(lab.cores());
        Some(Config::new(name, cores).threads(drives).depth(128).drives(drives, Assignment::Own))
    });
    plan.group("two cores for each drive, as far as there are", series)
}

pub(crate) const ROWS: &[Row] = &[
    untested(
        "s1-linear",
        "S1 Figure 5",
        "With two cores for each drive iou+k grows with the drives up to ten, 9 to 16 % under SPDK and 27 to 45 % over io_uring.",
        &[SameDrive, Drives, Cores],
    ),
    Tested(Finding {
        name: "s1-too-few-cores",
        source: "S1 Figure 5",
        experiment: "s1-fig5",
        claim: "With less than 1.5 cores for each drive iou+k falls behind io_uring, and with one it has half of the others' throughput.",
        test: "at the fewest drives with at most 1.43 cores each at most 0.9 times the IOPS of io_uring; with at most 1 core each at most \
               0.65 times those of io_uring, and of libaio",
        judge: |view| {
            let drives = view.need_drives("s1-fig5")?;
            let cores = view.report.cores;
            let of = |name: &str, drives: u32| array(name, (2 * drives).min(cores), drives);
            let measured = |most: f64| {
                (1..=drives).find(|n| {
                    f64::from((2 * n).min(cores)) / f64::from(*n) <= most
                        && view.report.point(&of("io_uring", *n)).is_some()
                })
            };
            let part = |drives: u32, other: &str, most| {
                let what = format!("IOPS, iou+k over {other}, {drives} drives on {cores} cores");
                view.ratio(
                    what,
                    IosPerS,
                    &of("io_uring+k", drives),
                    &of(other, drives),
                    AtMost(most),
                )
            };
            let Some(few) = measured(1.43) else {
                return Err(format!("{cores} cores are enough for {drives} drives"));
            };
            let mut evidence = vec![part(few, "io_uring", 0.9)?];
            if let Some(one) = measured(1.0) {
                evidence.extend([part(one, "io_uring", 0.65)?, part(one, "libaio", 0.65)?]);
            }
            Ok(evidence)
        },
    }),
    untested(
        "s1-steady",
        "S1 Figure 5",
        "io_uring and iou+p are alike and grow steadily with the drives, a third under SPDK; libaio is 10 % under them.",
        &[SameDrive, PollQueues, Drives, Cores],
    ),
];
