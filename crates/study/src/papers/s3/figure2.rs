//! S3 Figure 2 and question 1: drives that are added, and writes.

use super::DEPTH;
use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "s3-fig2a",
        figure: "S3 Figure 2a",
        shows: "random reads as drives are added",
        found: "Eight drives gave eight times one: 12.5 million reads a second.",
        needs: "several devices",
        plan: drive_scaling,
    },
    Experiment {
        name: "s3-fig2b",
        figure: "S3 Figure 2b",
        shows: "random I/O by the share of writes",
        found: "12.5 million I/Os a second with reads only, 8.9 with 10 % writes, 7 with 25 %.",
        needs: "a device that may be written",
        plan: write_mix,
    },
    Experiment {
        name: "s3-state",
        figure: "S3 section 4.1, on soft drives",
        shows: "random writes to a fresh flash drive, and to one that is full",
        found: "A full drive, or one written for long, slows down to its 135 thousand writes a second.",
        needs: "nothing",
        plan: state,
    },
];

fn drive_scaling(lab: &Lab) -> Plan {
    let mut plan = Plan::new("drives", Scale::Linear, &[(Metric::IosPerS, Scale::Linear)]);
    if !several_devices(lab, &mut plan) {
        return plan;
    }
    let xs = counts(lab.devices.len() as u32);
    let of = |name: &str, drives: u32| {
        Config::new(name, lab.cores())
            .threads(lab.cores())
            .depth((DEPTH * drives / lab.cores()).max(1))
            .drives(drives, Assignment::All)
    };
    let series = by_interface(lab, &xs, |name, drives| Some(of(name, drives)));
    plan.group(&cores_words(lab.cores()), series)
}

fn write_mix(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Linear), (Metric::P99Us, Scale::Log)];
    let plan = Plan::new("writes, % of requests", Scale::Linear, &shown);
    if lab.devices.first().is_none_or(|device| !device.may_write) {
        return plan.skip("the device may not be written: --allow-writes destroys what is on it");
    }
    let percents: &[u32] = match lab.effort {
        Effort::Full => &[0, 5, 10, 25, 50, 75, 100],
        _ => &[0, 10, 25, 50, 100],
    };
    let Some(name) = lab.main_interface() else { return plan };
    let cores = lab.cores().min(2);
    let series = series(name, percents.iter().copied(), |writes| {
        Some(Config::new(name, cores).depth(64).read_percent(100 - writes as u8))
    });
    plan.group("", vec![series])
}

/// Returns random writes to a soft flash drive. Its cache is small, so that a short run fills it.
fn flash(is_full: bool) -> Config {
    let filled = u8::from(is_full);
    let name = format!(
        "softnvme:size=64MiB,profile=tlc,channels=2,dies=2,pages_per_block=32,dram_cache=256KiB,over_provisioning=0.07,filled={filled}"
    );
    Config::new(name, 1).depth(32).read_percent(0)
}

fn state(_: &Lab) -> Plan {
    let plan = Plan::new("filled, percent", Scale::Linear, &[(Metric::IosPerS, Scale::Linear)]);
    let all = series("soft flash drive", [0, 100], |percent| Some(flash(percent > 0)));
    plan.group("random writes of 4 KiB", vec![all]).remark(
        "A model: drives made of software, with the times and the garbage collection of flash.",
    )
}

pub(crate) const ROWS: &[Finding] = &[
    Finding {
        name: "s3-datasheet",
        source: "S3 question 1",
        experiment: "s3-fig2a",
        needs: &[Drives(2), DataSheet],
        claim: "An array gives the random reads that its drives' data sheets promise, and 4 % more.",
        test: "all drives, the fastest interface and number of threads: at least 0.95 times the data sheets' sum (--data-sheet)",
        judge: |view| {
            let drives = view.need_drives("s3-fig2a")?;
            let sheet = view.report.means.data_sheet_ios_per_s.unwrap_or_default();
            let all =
                ["s3-fig2a", "s3-fig6"].map(|experiment| all_configs(view, experiment)).concat();
            let all = all.into_iter().filter(|one| one.drives == drives && !one.writes());
            let most = view.fastest(all).ok_or_else(|| view.skipped("s3-fig2a"))?;
            let what = format!("reads a second, {most}");
            Ok(vec![view.value(what, IosPerS, most, AtLeast(0.95 * sheet))?])
        },
    },
    Finding {
        name: "s3-drives-add-up",
        source: "S3 Figure 2a",
        experiment: "s3-fig2a",
        needs: &[Drives(2)],
        claim: "Drives add up: eight give eight times the reads of one.",
        test: "N drives, as many requests for each: at least 0.9 N times the IOPS of one; not where the cores are full",
        judge: |view| {
            let drives = view.need_drives("s3-fig2a")?;
            let name = view.main_interface("s3-fig2a")?;
            let configs = configs(view, "s3-fig2a", name);
            let of = |drives: u32| configs.iter().copied().find(|config| config.drives == drives);
            let (one, all) = of(1).zip(of(drives)).ok_or_else(|| view.skipped("s3-fig2a"))?;
            let what = format!("IOPS of {drives} drives over one");
            let wanted = AtLeast(0.9 * f64::from(drives));
            let evidence = view.ratio(what, IosPerS, all, one, wanted)?;
            if evidence.outcome == crate::Outcome::DoesNotHold && view.report.cores_full(all) {
                return Err("the cores are full before the drives are".to_owned());
            }
            Ok(vec![evidence])
        },
    },
    Finding {
        name: "s3-writes-cost",
        source: "S3 Figure 2b",
        experiment: "s3-fig2b",
        needs: &[Writes],
        claim: "A few writes cost much: 10 % of them take the array from 12.5 to 8.9 million I/Os a second, 25 % to 7, writes alone to 4.7.",
        test: "with 10, 25 and 100 % writes at most 0.85, 0.75 and 0.6 times the IOPS of reads alone",
        judge: |view| {
            let name = view.main_interface("s3-fig2b")?;
            let configs = configs(view, "s3-fig2b", name);
            let of = |reads: u8| {
                let found = configs.iter().copied().find(|config| config.read_percent == reads);
                found.ok_or_else(|| view.skipped("s3-fig2b"))
            };
            [(10, 0.85), (25, 0.75), (100, 0.6)]
                .into_iter()
                .map(|(writes, most)| {
                    let what = format!("IOPS with {writes} % writes over reads");
                    view.ratio(what, IosPerS, of(100 - writes)?, of(100)?, AtMost(most))
                })
                .collect()
        },
    },
    Finding {
        name: "s3-state",
        source: "S3 section 4.1",
        experiment: "s3-state",
        needs: &[SoftDrive],
        claim: "A drive that is full or was written for long writes more slowly than a fresh one.",
        test: "soft flash drives, random writes: the full one at most 0.7 times the IOPS of the fresh one",
        judge: |view| {
            let what = "IOPS of writes, full over fresh";
            Ok(vec![view.ratio(what, IosPerS, &flash(true), &flash(false), AtMost(0.7))?])
        },
    },
    Finding {
        name: "s3-iommu",
        source: "S3 section 4.1",
        experiment: "s3-fig2a",
        needs: &[Drives(2), OtherIommu],
        claim: "With the IOMMU on, eight drives fall short of their data sheets.",
        test: "two studies, all drives: with the IOMMU at most 0.97 times the IOPS without",
        judge: |view| {
            let drives = view.need_drives("s3-fig2a")?;
            let ratio = view.other_boot(|boot| boot.iommu, |one| one.drives == drives)?;
            Ok(vec![Evidence::new("IOPS, with the IOMMU over without", ratio, AtMost(0.97))])
        },
    },
];
