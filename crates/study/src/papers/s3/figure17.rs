//! S3 Figure 17: the latency of operations that arrive at random times.

use super::{STORE, both_works, store_of, store_plan};
use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s3-fig17",
    figure: "S3 Figure 17",
    shows: "latency of lookups and transactions that arrive at random times, by their rate, in reads of the device",
    found: "The latency of a lookup was that of its I/O; a transaction took many.",
    needs: "the study's own file, or devices that may be written",
    plan,
}];

/// The load at which latencies are compared, in percent of the peak throughput.
const HALF: u32 = 50;

fn plan(lab: &Lab) -> Plan {
    let shown = [(Metric::LatencyOverRead, Scale::Log), (Metric::P99Us, Scale::Log)];
    let plan = Plan::new("percent of the peak", Scale::Linear, &shown);
    store_plan(lab, plan, |plan, name| {
        let xs: &[u32] = match lab.effort {
            Effort::Full => &[25, HALF, 75, 90],
            Effort::Usual => &[25, HALF, 80],
            Effort::Quick => &[25, HALF],
        };
        let of = |store, percent| StoreUse { rate_percent: Some(percent), ..store };
        both_works(lab, plan, ("data ten times the memory", name), xs, of)
    })
}

pub(crate) const ROWS: &[Finding] = &[
    Finding {
        name: "s3-latency-lookup",
        source: "S3 Figure 17",
        experiment: "s3-fig17",
        needs: STORE,
        claim: "When lookups arrive at random times, the latency of one is that of its I/O.",
        test: "at 25 and 50 % of the peak: mean latency at most 1.3 times that of a read of the device in the same run",
        judge: |view| {
            let part = |percent| {
                let at = StoreUse { rate_percent: Some(percent), ..StoreUse::new(Lookup) };
                let what = format!("mean latency over a read's, {percent} % of the peak");
                view.value(what, LatencyOverRead, &store_of(view, "s3-fig17", at)?, AtMost(1.3))
            };
            [25, HALF].into_iter().map(part).collect()
        },
    },
    Finding {
        name: "s3-latency-tx",
        source: "S3 Figure 17",
        experiment: "s3-fig17",
        needs: STORE,
        claim: "A TPC-C transaction takes many times an I/O, since its reads follow each other and writes delay them.",
        test: "at 50 % of the peak: mean latency at least 3 times that of a read of the device in the same run",
        judge: |view| {
            let at = StoreUse { rate_percent: Some(HALF), ..StoreUse::new(Tpcc) };
            let what = "mean latency of a transaction over a read's";
            Ok(vec![view.value(
                what,
                LatencyOverRead,
                &store_of(view, "s3-fig17", at)?,
                AtLeast(3.0),
            )?])
        },
    },
];
