//! S3 Figure 11: each thread one drive, or all.

use super::DEPTH;
use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s3-fig11",
    figure: "S3 Figure 11",
    shows: "each thread one drive, against each thread all drives",
    found: "All-to-all costs next to nothing.",
    needs: "several devices",
    plan,
}];

fn plan(lab: &Lab) -> Plan {
    let mut plan = Plan::new("drives", Scale::Linear, &[(Metric::IosPerS, Scale::Linear)]);
    if !several_devices(lab, &mut plan) {
        return plan;
    }
    let Some(name) = lab.main_interface() else { return plan };
    let most = lab.devices.len() as u32;
    let xs: Vec<u32> = counts(most).into_iter().filter(|drives| *drives > 1).collect();
    let of = |label: &str, assignment| {
        series(label, xs.iter().copied(), |drives| {
            Some(
                Config::new(name, lab.cores())
                    .threads(drives)
                    .depth(DEPTH)
                    .drives(drives, assignment),
            )
        })
    };
    plan.group(
        name,
        vec![
            of("each thread one drive", Assignment::Own),
            of("each thread all drives", Assignment::All),
        ],
    )
}

pub(crate) const ROWS: &[Finding] = &[Finding {
    name: "s3-all-to-all",
    source: "S3 Figure 11",
    experiment: "s3-fig11",
    needs: &[Drives(2)],
    claim: "Letting every thread use every drive costs next to nothing.",
    test: "all drives: at least 0.95 times the IOPS of a drive for each thread",
    judge: |view| {
        let drives = view.need_drives("s3-fig11")?;
        let all = all_configs(view, "s3-fig11");
        let of = |assignment| {
            all.iter()
                .copied()
                .find(|config| config.drives == drives && config.assignment == assignment)
                .ok_or_else(|| view.skipped("s3-fig11"))
        };
        let (own, all) = (of(Assignment::Own)?, of(Assignment::All)?);
        let what = format!("IOPS of {drives} drives, all-to-all over assigned");
        Ok(vec![view.ratio(what, IosPerS, all, own, AtLeast(0.95))?])
    },
}];
