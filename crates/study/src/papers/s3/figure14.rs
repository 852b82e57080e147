//! S3 Figure 14 and section 4.7: data that grow.

use super::{FITS, NOT_QUICK, STORE, TEN, store_at, store_of, store_plan};
use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s3-fig14",
    figure: "S3 Figure 14, section 4.7",
    shows: "transactions of TPC-C by the size of the data",
    found: "With ten times more data than memory 1.1 of 2 to 3 million transactions were left, with forty times 0.4.",
    needs: "the study's own file, or devices that may be written",
    plan,
}];

/// Forty times as much data as memory, in percent of the memory.
const FORTY: u32 = 4000;

fn plan(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Log), (Metric::WriteShare, Scale::Linear)];
    let plan = Plan::new("data, percent of the memory", Scale::Log, &shown);
    store_plan(lab, plan, |plan, name| {
        if lab.effort == Effort::Quick {
            return plan.skip(NOT_QUICK);
        }
        let xs: &[u32] = match lab.effort {
            Effort::Full => &[FITS, 200, 500, TEN, 2000, FORTY],
            _ => &[FITS, TEN, FORTY],
        };
        let tpcc = StoreUse::new(StoreWork::Tpcc);
        let of =
            |percent| Some(store_at(lab.cores(), name, StoreUse { data_percent: percent, ..tpcc }));
        plan.group(name, vec![series("TPC-C", xs.iter().copied(), of)])
    })
}

pub(crate) const ROWS: &[Finding] = &[
    Finding {
        name: "s3-io-per-tx",
        source: "S3 section 4.7",
        experiment: "s3-fig14",
        needs: STORE,
        claim: "With ten times more data than memory, a TPC-C transaction takes 3.5 reads and 2.8 writes.",
        test: "writes 0.35 to 0.5 of the requests to the device",
        judge: |view| {
            let ten = grown(view, TEN)?;
            Ok(vec![
                view.value("writes' share", WriteShare, &ten, Between(0.35, 0.5))?,
                view.told("reads of a transaction", ReadsPerOp, &ten)?,
                view.told("writes of a transaction", WritesPerOp, &ten)?,
            ])
        },
    },
    Finding {
        name: "s3-growth-10",
        source: "S3 Figure 14",
        experiment: "s3-fig14",
        needs: STORE,
        claim: "With ten times more data than memory, TPC-C keeps a third to half of its throughput in memory.",
        test: "at least 0.3 times the transactions of data in memory",
        judge: |view| growth(view, "ten times the memory over in memory", (TEN, FITS), 0.3),
    },
    Finding {
        name: "s3-growth-40",
        source: "S3 Figure 14",
        experiment: "s3-fig14",
        needs: STORE,
        claim: "As data grow to forty times the memory, throughput falls gently.",
        test: "TPC-C: at least 0.25 times the transactions of ten times the memory",
        judge: |view| growth(view, "forty times the memory over ten", (FORTY, TEN), 0.25),
    },
];

fn grown(view: &View<'_>, data_percent: u32) -> Result<Config, String> {
    store_of(view, "s3-fig14", StoreUse { data_percent, ..StoreUse::new(Tpcc) })
}

fn growth(view: &View<'_>, words: &str, sizes: (u32, u32), least: f64) -> Judged {
    let (larger, smaller) = (grown(view, sizes.0)?, grown(view, sizes.1)?);
    let what = format!("transactions a second, {words}");
    Ok(vec![view.ratio(what, IosPerS, &larger, &smaller, AtLeast(least))?])
}
