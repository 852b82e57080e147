//! S5, in the text: jobs, and the block layer.

use crate::papers::prelude::*;
use crate::papers::s4::DEPTH_ASYNC;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s5-layer",
    figure: "S5, in the text",
    shows: "reads of a soft drive through the block layer, and by the driver alone with commands that are built before",
    found: "It is left to be measured.",
    needs: "nothing",
    plan,
}];

fn plan(_: &Lab) -> Plan {
    let shown = [(Metric::P50Us, Scale::Linear), (Metric::IosPerS, Scale::Linear)];
    let plan = Plan::new("queue depth", Scale::Log, &shown);
    let of = |label: &str, name: &str| {
        series(label, [1, 32], |depth| Some(Config::new(name, 1).depth(depth)))
    };
    plan.group("one core", vec![of("block layer", SOFT_DRIVE), of("driver alone", SOFT_FLOOR)]).remark(
        "The soft drive works on the same core, and its time is in both. The difference is that of the layers.",
    )
}

pub(crate) const ROWS: &[Finding] = &[
    Finding {
        name: "s5-four-jobs",
        source: "S5, in the text",
        experiment: "s4-sync",
        needs: &[Interface("libaio")],
        claim: "Four jobs with libaio and queue depth 64 take one drive to its limit.",
        test: "at least 0.95 times the most IOPS of any interface, depth and number of threads on that drive",
        judge: |view| {
            let four = Config::new("libaio", view.report.cores).threads(4).depth(DEPTH_ASYNC);
            let mut others: Vec<&Config> = ["s1-fig2", "s4-sync", "s4-outstanding"]
                .into_iter()
                .flat_map(|experiment| all_configs(view, experiment))
                .collect();
            others.retain(|config| **config != four);
            let most = view.fastest(others).ok_or_else(|| view.skipped("s4-sync"))?;
            let what = format!("IOPS, four jobs over {most}");
            Ok(vec![view.chosen_ratio(what, Metric::IosPerS, &four, most, AtLeast(0.95))?])
        },
    },
    Finding {
        name: "s5-layer",
        source: "S5, in the text",
        experiment: "s5-layer",
        needs: &[],
        claim: "What the block layer costs over the driver alone is left to be measured.",
        test: "reads of a soft drive in memory, one at a time: through the block layer at most 1.25 times the median latency of commands that are built before",
        judge: |view| {
            let (stack, floor) = (Config::new(SOFT_DRIVE, 1), Config::new(SOFT_FLOOR, 1));
            Ok(vec![
                view.ratio(
                    "median latency, block layer over driver",
                    P50Us,
                    &stack,
                    &floor,
                    AtMost(1.25),
                )?,
                view.told("us of the driver and the soft drive", P50Us, &floor)?,
            ])
        },
    },
];
