//! S5 Figure 5: one core as drives are added.

use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s5-core",
    figure: "S5, one core",
    shows: "IOPS of one core over libaio, io_uring and the user-space driver, as drives are added",
    found: "One core drives 21 fast drives through SPDK, and 4 through io_uring.",
    needs: "several devices for the scale-up",
    plan,
}];

/// The three ways to a drive.
const WAYS: [&str; 3] = ["libaio", "io_uring", USER_SPACE];

fn plan(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Linear), (Metric::CpuUsPerIo, Scale::Linear)];
    let mut plan = Plan::new("drives", Scale::Linear, &shown);
    // With one device the table of the three ways has one row for each.
    several_devices(lab, &mut plan);
    let xs = counts(lab.devices.len() as u32);
    let mut series = by_interface(lab, &xs, |name, drives| {
        Some(Config::new(name, 1).depth(128 * drives).drives(drives, Assignment::All))
    });
    series.retain(|one| WAYS.contains(&one.label.as_str()));
    plan.group("one thread on one core, 128 requests for each drive", series)
}

pub(crate) const ROWS: &[Finding] = &[Finding {
    name: "s5-user-space-core",
    source: "S5, one core",
    experiment: "s5-core",
    needs: &[Interface(USER_SPACE), Interface("io_uring"), Drives(2)],
    claim: "One core drives many more drives through the user-space driver (21) than through io_uring (4).",
    test: "one core, the most drives: at least 2 times the IOPS of io_uring",
    judge: |view| {
        let drives = view.need_drives("s5-core")?;
        let of = |name: &str| {
            configs(view, "s5-core", name)
                .into_iter()
                .find(|config| config.drives == drives)
                .ok_or_else(|| view.skipped("s5-core"))
        };
        let (own, uring) = (of(USER_SPACE)?, of("io_uring")?);
        let what = format!("IOPS of one core on {drives} drives, user space over io_uring");
        Ok(vec![view.ratio(what, Metric::IosPerS, own, uring, AtLeast(2.0))?])
    },
}];
