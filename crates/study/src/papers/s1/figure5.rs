//! S1 Figure 5: one thread for each drive, as drives are added.

use super::{K, array};
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

pub(crate) const ROWS: &[Finding] = &[
    Finding {
        name: "s1-linear",
        source: "S1 Figure 5",
        experiment: "s1-fig5",
        needs: &[Drives(2), Cores(4), Interface(K)],
        claim: "With two cores for each drive iou+k grows with the drives up to ten, 9 to 16 % under SPDK and 27 to 45 % over io_uring.",
        test: "the most drives, ten at most, that have two cores each: iou+k at least 0.9 times as many IOPS for each as with one, at least 0.8 times \
               those of SPDK, and 1.1 times those of io_uring",
        judge: |view| {
            let cores = view.report.cores;
            let fit = |n: &u32| 2 * n <= cores && view.report.point(&spread(view, K, *n)).is_some();
            let drives = (2..=view.need_drives("s1-fig5")?.min(10)).rev().find(fit);
            let drives = drives.ok_or_else(|| view.skipped("s1-fig5"))?;
            let (k, one) = (spread(view, K, drives), spread(view, K, 1));
            let what = format!("IOPS of iou+k, {drives} drives over one");
            let mut evidence =
                vec![view.ratio(what, IosPerS, &k, &one, AtLeast(0.9 * f64::from(drives)))?];
            for (other, wanted) in [(USER_SPACE, AtLeast(0.8)), ("io_uring", AtLeast(1.1))] {
                let what = format!("IOPS, iou+k over {other}, {drives} drives");
                evidence.push(view.where_usable(other, &what, || {
                    view.ratio(&what, IosPerS, &k, &spread(view, other, drives), wanted)
                })?);
            }
            Ok(evidence)
        },
    },
    Finding {
        name: "s1-too-few-cores",
        source: "S1 Figure 5",
        experiment: "s1-fig5",
        needs: &[Drives(2), Interface(K)],
        claim: "With less than 1.5 cores for each drive iou+k falls behind io_uring, and with one it has half of the others' throughput.",
        test: "at the fewest drives with more than 1 core and at most 1.43 cores each at most 0.9 times the IOPS of io_uring; at the fewest with at \
               most 1 core each at most 0.65 times those of io_uring, and of libaio",
        judge: |view| {
            let drives = view.need_drives("s1-fig5")?;
            let cores = view.report.cores;
            // The two parts of the claim are about different numbers of drives.
            let measured = |above: f64, most: f64| {
                (1..=drives).find(|n| {
                    let each = f64::from((2 * n).min(cores)) / f64::from(*n);
                    each > above
                        && each <= most
                        && view.report.point(&spread(view, "io_uring", *n)).is_some()
                })
            };
            let part = |drives: Option<u32>, each: &str, other: &str, most| {
                let Some(drives) = drives else {
                    let what = format!("IOPS, iou+k over {other}");
                    let why = format!(
                        "no number of drives up to {drives} has {each} each",
                        drives = view.report.devices.len()
                    );
                    return Ok(Evidence::untested(what, why));
                };
                let what = format!("IOPS, iou+k over {other}, {drives} drives on {cores} cores");
                let (k, other) = (spread(view, K, drives), spread(view, other, drives));
                view.ratio(what, IosPerS, &k, &other, AtMost(most))
            };
            let (few, one) = (measured(1.0, 1.43), measured(0.0, 1.0));
            Ok(vec![
                part(few, "1 to 1.43 cores", "io_uring", 0.9)?,
                part(one, "one core or less", "io_uring", 0.65)?,
                part(one, "one core or less", "libaio", 0.65)?,
            ])
        },
    },
    Finding {
        name: "s1-steady",
        source: "S1 Figure 5",
        experiment: "s1-fig5",
        needs: &[Drives(2), Interface("io_uring")],
        claim: "io_uring and iou+p are alike and grow steadily with the drives, a third under SPDK; libaio is 10 % under them.",
        test: "the most drives: io_uring at least 1.0 times the IOPS of fewer drives, 0.95 to 1.05 times those of iou+p, at most 0.8 times those of \
               SPDK; libaio 0.8 to 0.95 times those of io_uring",
        judge: |view| {
            let most = view.need_drives("s1-fig5")?;
            let fewer = (1..most)
                .rev()
                .find(|n| view.report.point(&spread(view, "io_uring", *n)).is_some());
            let fewer = fewer.ok_or_else(|| view.skipped("s1-fig5"))?;
            let uring = spread(view, "io_uring", most);
            let what = format!("IOPS of io_uring, {most} drives over {fewer}");
            let below = spread(view, "io_uring", fewer);
            let mut evidence = vec![view.ratio(what, IosPerS, &uring, &below, AtLeast(1.0))?];
            for (other, wanted) in [("io_uring+p", Between(0.95, 1.05)), (USER_SPACE, AtMost(0.8))]
            {
                let what = format!("IOPS, io_uring over {other}");
                evidence.push(view.where_usable(other, &what, || {
                    view.ratio(&what, IosPerS, &uring, &spread(view, other, most), wanted)
                })?);
            }
            let what = "IOPS, libaio over io_uring";
            evidence.push(view.where_usable("libaio", what, || {
                view.ratio(what, IosPerS, &spread(view, "libaio", most), &uring, Between(0.8, 0.95))
            })?);
            Ok(evidence)
        },
    },
];

/// Returns the point of an interface on some drives, with two cores for each as far as there are.
fn spread(view: &View<'_>, interface: &str, drives: u32) -> Config {
    array(interface, (2 * drives).min(view.report.cores), drives)
}
