//! S1 Figure 4: as many cores as drives, and more.

use super::{K, PLAIN, array, each};
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
    let drives = (lab.devices.len() as u32).min(DRIVES_MAX).min(lab.cores());
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

pub(crate) const ROWS: &[Finding] = &[
    Finding {
        name: "s1-more-cores",
        source: "S1 Figure 4",
        experiment: "s1-fig4",
        needs: &[Drives(2), Interface(K)],
        claim: "Only iou+k gains clearly from more cores than drives; it needs two for each.",
        test: "from as many cores as drives to the most measured: iou+k at least 1.25 times the IOPS, the others at most 1.1 times",
        judge: |view| {
            let drives = view.need_drives("s1-fig4")?.min(DRIVES_MAX);
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
    },
    Finding {
        name: "s1-grid-2j",
        source: "S1 Figure 4",
        experiment: "s1-fig4",
        needs: &[Drives(2), CoresEach(2), Interface(K)],
        claim: "With two cores for each drive iou+k is 15 % under SPDK, 45 % over io_uring and 80 % over libaio.",
        test: "two cores for each drive: iou+k at least 0.8 times the IOPS of SPDK, 1.15 times those of io_uring and of iou+p, 1.3 times those of libaio",
        judge: |view| {
            let wanted = [
                (USER_SPACE, AtLeast(0.8)),
                ("io_uring", AtLeast(1.15)),
                ("io_uring+p", AtLeast(1.15)),
                ("libaio", AtLeast(1.3)),
            ];
            grid(view, |drives| 2 * drives, &wanted)
        },
    },
    Finding {
        name: "s1-grid-j2",
        source: "S1 Figure 4",
        experiment: "s1-fig4",
        needs: &[Drives(5), Cores(7), Interface(K)],
        claim: "With five drives and seven cores iou+k is 20 % under libaio.",
        test: "five drives, seven cores: iou+k at most 0.95 times the IOPS of libaio",
        judge: |view| grid(view, |drives| drives + 2, &[("libaio", AtMost(0.95))]),
    },
    Finding {
        name: "s1-grid-j",
        source: "S1 Figure 4",
        experiment: "s1-fig4",
        needs: &[Drives(2), CoresEach(1), Interface(K)],
        claim: "With one core for each of five drives iou+k has less than half of libaio's IOPS.",
        test: "a core for each drive: iou+k at most half the IOPS of libaio",
        judge: |view| grid(view, |drives| drives, &[("libaio", AtMost(0.5))]),
    },
];

/// The most drives of the figure.
const DRIVES_MAX: u32 = 5;

/// Compares iou+k with other interfaces on this many cores for some drives.
fn grid(view: &View<'_>, cores: fn(u32) -> u32, wanted: &[(&str, Threshold)]) -> Judged {
    let drives = view.need_drives("s1-fig4")?.min(DRIVES_MAX);
    let cores = cores(drives);
    let part = |(other, wanted): &(&str, Threshold)| {
        let what = format!("IOPS, iou+k over {other}, {drives} drives on {cores} cores");
        view.where_usable(other, &what, || {
            view.ratio(
                &what,
                IosPerS,
                &array(K, cores, drives),
                &array(other, cores, drives),
                *wanted,
            )
        })
    };
    wanted.iter().map(part).collect()
}
