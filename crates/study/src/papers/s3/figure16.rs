//! S3 Figure 16: where the processor time goes.

use super::{FITS, TEN, both_works, store_of, store_plan};
use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s3-fig16",
    figure: "S3 Figure 16",
    shows: "eviction's share of the workers' time by the size of the data",
    found: "With data larger than memory eviction took 14 % of the processor time.",
    needs: "the study's own file",
    plan,
}];

fn plan(lab: &Lab) -> Plan {
    let shown = [(Metric::EvictionShare, Scale::Linear)];
    let plan = Plan::new("data, percent of the memory", Scale::Log, &shown);
    store_plan(lab, plan, |plan, name| {
        let of = |store, data_percent| StoreUse { data_percent, ..store };
        both_works(lab, plan, (name, name), &[FITS, TEN], of).remark(
            "By the processor's clock, part by part of the workers' loop; waiting is left out. All parts: qpair bench lookup --cycles.",
        )
    })
}

pub(crate) const ROWS: &[Row] = &[Tested(Finding {
    name: "s3-cpu-shares",
    source: "S3 Figure 16",
    experiment: "s3-fig16",
    claim: "With data larger than memory eviction takes 14 % of the processor time, and submitting 16 to 19 %, with SPDK 2 %.",
    test: "TPC-C, ten times more data than memory: eviction 0.05 to 0.25 of the workers' time, waiting left out (submission: no, the kernel does \
               it while workers wait)",
    judge: |view| {
        let ten = store_of(view, "s3-fig16", StoreUse::new(Tpcc))?;
        Ok(vec![view.value("eviction's share", EvictionShare, &ten, Between(0.05, 0.25))?])
    },
})];
