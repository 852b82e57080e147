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

pub(crate) const ROWS: &[Finding] = &[
    Finding {
        name: "s3-batching",
        source: "S3 section 4.6",
        experiment: "s3-batches",
        needs: &[],
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
    },
    Finding {
        name: "s3-mitigations",
        source: "S3 section 4.6",
        experiment: "s1-fig2",
        needs: &[OtherMitigations],
        claim: "Without mitigations of processor bugs everything is 4 % faster, and the order of the interfaces is the same.",
        test: "two studies: without mitigations 1.01 to 1.1 times the IOPS at queue depth 128; the fastest interface of the kernel is the same",
        judge: |view| {
            let deep = |one: &Config| one.depth == DEPTH && is_kernel_s(&one.interface);
            let ratio = view.other_boot(|boot| boot.mitigated.map(|on| !on), deep)?;
            let what = "IOPS, without mitigations over with";
            let mut evidence = vec![Evidence::new(what, ratio, Between(1.01, 1.1))];
            let all = all_configs(view, "s1-fig2").into_iter().filter(|one| deep(one));
            let first = view.fastest(all).ok_or_else(|| view.skipped("s1-fig2"))?;
            let other = view.fastest_of_other_boot(deep).ok_or_else(|| view.skipped("s1-fig2"))?;
            if first != other {
                let (here, there) = (&first.interface, &other.interface);
                let what = format!("IOPS, {here} (first here) over {there} (first there)");
                evidence.push(view.ratio(what, IosPerS, first, other, AtMost(1.05))?);
            }
            Ok(evidence)
        },
    },
];
