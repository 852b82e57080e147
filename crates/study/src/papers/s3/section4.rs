//! S3 section 4.6: batches and mitigations.

use super::DEPTH;
use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s3-batches",
    figure: "S3 section 4.6",
    shows: "random reads by the requests that are handed to the kernel at once",
    found: "Batches give the kernel's interfaces 3 %.",
    needs: "nothing",
    plan,
}];

fn plan(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Linear), (Metric::CpuUsPerIo, Scale::Linear)];
    let plan = Plan::new("requests handed over at once", Scale::Log, &shown);
    let mut all = by_interface(lab, &[1, 4, 32], |name, batch| {
        Some(Config::new(name, lab.cores().min(2)).depth(DEPTH).batch(batch))
    });
    all.retain(|series| ["libaio", "io_uring"].contains(&series.label.as_str()));
    plan.group("queue depth 128", all)
}

pub(crate) const ROWS: &[Row] = &[
    Tested(Finding {
        name: "s3-batching",
        source: "S3 section 4.6",
        experiment: "s3-batches",
        claim: "Submitting requests in batches gives the kernel's interfaces 3 %.",
        test: "queue depth 128, batches of 32: 1.0 to 1.1 times the IOPS of one request a call; I/Os for a second of processor time where the \
               device bounds both",
        judge: |view| {
            let all = all_configs(view, "s3-batches");
            let singles = all.iter().filter(|config| config.batch == 1);
            let evidence = singles
                .map(|single| {
                    let many = (*single).clone().batch(32);
                    let what = format!("{}, 32 at once over 1", single.interface);
                    view.speed(&what, &many, single, Between(1.0, 1.1))
                })
                .collect::<Result<Vec<Evidence>, _>>()?;
            if evidence.is_empty() { Err(view.skipped("s3-batches")) } else { Ok(evidence) }
        },
    }),
    untested(
        "s3-mitigations",
        "S3 section 4.6",
        "Without mitigations of processor bugs everything is 4 % faster, and the order of the interfaces is the same.",
        &[Reboot],
    ),
];
