//! S5, in the text: jobs, and the block layer.

use crate::papers::prelude::*;
use crate::papers::s4::DEPTH_ASYNC;

pub(crate) const ROWS: &[Row] = &[
    Tested(Finding {
        name: "s5-four-jobs",
        source: "S5, in the text",
        experiment: "s4-sync",
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
    }),
    untested(
        "s5-layer",
        "S5, in the text",
        "What the block layer costs over the driver alone is left to be measured.",
        &[Experiment],
    ),
];
