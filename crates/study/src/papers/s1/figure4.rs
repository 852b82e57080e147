//! S1 Figure 4: as many cores as drives, and more.

use super::{PLAIN, array, each};
use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s1-fig4",
    figure: "S1 Figure 4",
    shows: "J drives with as many cores, one more, two more, and twice as many",
    found: "Only iou+k gains from more cores than drives: with two for each it was 45 % over io_uring and 15 % under SPDK, with \
            one for each under half of libaio.",
    needs: "several devices, more cores than devices",
    plan,
}];

fn plan(lab: &Lab) -> Plan {
    let mut plan = Plan::new(
        "cores",
        Scale::Linear,
        &[(Metric::IosPerS, Scale::Linear), (Metric::P50Us, Scale::Log)],
    );
    if !several_devices(lab, &mut plan) {
        return plan;
    }
    let drives = (lab.devices.len() as u32).min(5).min(lab.cores());
    if drives < 2 {
        return plan.skip("one core only: drives and cores cannot be varied against each other");
    }
    let mut cores = vec![drives, drives + 1, drives + 2, 2 * drives];
    cores.dedup();
    let possible: Vec<u32> = cores.iter().copied().filter(|c| *c <= lab.cores()).collect();
    for missing in cores.iter().filter(|c| **c > lab.cores()) {
        plan = plan
            .skip(format!("{drives} drives with {missing} cores: there are {} cores", lab.cores()));
    }
    let series = by_interface(lab, &possible, |name, cores| {
        Some(Config::new(name, cores).threads(drives).depth(128).drives(drives, Assignment::Own))
    });
    plan.group(&format!("{drives} drives"), series)
}

pub(crate) const ROWS: &[Row] = &[
    Tested(Finding {
        name: "s1-more-cores",
        source: "S1 Figure 4",
        experiment: "s1-fig4",
        claim: "Only iou+k gains clearly from more cores than drives; it needs two for each.",
        test: "from as many cores as drives to the most measured: iou+k at least 1.25 times the IOPS, the others at most 1.1 times",
        judge: |view| {
            let drives = view.need_drives("s1-fig4")?.min(5);
            let (fewest, most) = (drives, (2 * drives).min(view.report.cores));
            if most <= fewest {
                return Err(format!("{drives} drives and {} cores", view.report.cores));
            }
            let part = |name: &str, wanted| {
                let what = format!("IOPS of {name}, {most} cores over {fewest}");
                let (above, below) = (array(name, most, drives), array(name, fewest, drives));
                view.ratio(what, IosPerS, &above, &below, wanted)
            };
            let mut evidence = vec![part("io_uring+k", AtLeast(1.25))?];
            evidence.extend(each(view, &PLAIN, |name| part(name, AtMost(1.1)))?);
            Ok(evidence)
        },
    }),
    untested(
        "s1-grid-2j",
        "S1 Figure 4",
        "With two cores for each drive iou+k is 15 % under SPDK, 45 % over io_uring and 80 % over libaio.",
        &[SameDrive, Drives, Cores],
    ),
    untested(
        "s1-grid-j2",
        "S1 Figure 4",
        "With five drives and seven cores iou+k is 20 % under libaio.",
        &[Drives, Cores],
    ),
    untested(
        "s1-grid-j",
        "S1 Figure 4",
        "With one core for each of five drives iou+k has less than half of libaio's IOPS.",
        &[Drives, Cores],
    ),
];
