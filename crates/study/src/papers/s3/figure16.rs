//! S3 Figure 16: where the processor time goes.

use super::{FITS, STORE, TEN, both_works, store_of, store_plan, user_space};
use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s3-fig16",
    figure: "S3 Figure 16",
    shows: "eviction's share of the workers' time by the size of the data",
    found: "With data larger than memory eviction took 14 % of the processor time.",
    needs: "the study's own file, or devices that may be written",
    plan,
}];

fn plan(lab: &Lab) -> Plan {
    let shown = [(Metric::EvictionShare, Scale::Linear)];
    let plan = Plan::new("data, percent of the memory", Scale::Log, &shown);
    store_plan(lab, plan, |plan, name| {
        let of = |store, data_percent| StoreUse { data_percent, ..store };
        let mut plan = both_works(lab, plan, (name, name), &[FITS, TEN], of);
        let own = lab.means.user_space_store().filter(|_| lab.effort != Effort::Quick);
        if let Some(own) = own {
            let tpcc = StoreUse::new(Tpcc).on(own, lab.cores().min(2));
            let all = series("TPC-C", [TEN], |_| Some(tpcc.clone()));
            plan = plan.group(own, vec![all]);
        }
        plan.remark(
            "By the processor's clock, part by part of the workers' loop; waiting is left out. All parts: qpair bench lookup --cycles.",
        )
    })
}

pub(crate) const ROWS: &[Finding] = &[Finding {
    name: "s3-cpu-shares",
    source: "S3 Figure 16",
    experiment: "s3-fig16",
    needs: STORE,
    claim: "With data larger than memory eviction takes 14 % of the processor time, and submitting 16 to 19 %, with SPDK 2 %.",
    test: "TPC-C, ten times more data than memory: eviction 0.05 to 0.25 of the workers' time, waiting left out; submission by the kernel at least 4 \
           times that by the user-space driver",
    judge: |view| {
        let ten = store_of(view, "s3-fig16", StoreUse::new(Tpcc))?;
        let what = match view.report.means.user_space_store_is_model() {
            true => {
                "submission's share, the kernel's interface over the user-space driver on a model"
            }
            false => "submission's share, the kernel's interface over the user-space driver",
        };
        let submission = view.where_met(Stores(USER_SPACE), what, || {
            let own = StoreUse::new(Tpcc).on(user_space(view)?, view.report.cores.min(2));
            view.ratio(what, SubmissionShare, &ten, &own, AtLeast(4.0))
        })?;
        Ok(vec![
            view.value("eviction's share", EvictionShare, &ten, Between(0.05, 0.25))?,
            submission,
        ])
    },
}];
