//! S2 section 5.1: jobs.

use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s2-jobs",
    figure: "S2 section 5.1",
    shows: "reads of 128 KiB by the number of jobs, one request each",
    found: "Once the drive was at its limit, more jobs added nothing.",
    needs: "nothing",
    plan,
}];

/// Bytes of a job's requests.
const JOB_BLOCK: u32 = 128 << 10;

fn plan(lab: &Lab) -> Plan {
    let shown = [(Metric::BytesPerS, Scale::Linear), (Metric::P50Us, Scale::Log)];
    let plan = Plan::new("jobs", Scale::Log, &shown);
    let Some(name) = lab.main_interface() else { return plan };
    let cores = lab.cores();
    let xs: Vec<u32> = counts(4 * cores).into_iter().filter(|n| n.is_power_of_two()).collect();
    let xs = if xs.contains(&(4 * cores)) { xs } else { [xs, vec![cores, 4 * cores]].concat() };
    let of = |jobs| Some(Config::new(name, cores).threads(jobs).block_bytes(JOB_BLOCK));
    plan.group("", vec![series(name, xs, of)])
}

pub(crate) const ROWS: &[Row] = &[Tested(Finding {
    name: "s2-jobs-over-cores",
    source: "S2 section 5.1",
    experiment: "s2-jobs",
    claim: "Once the drive is at its limit, more jobs add nothing, and more jobs than cores may lose.",
    test: "reads of 128 KiB, one request a job: four jobs for each core at most 1.05 times the throughput of one for each",
    judge: |view| {
        let cores = view.report.cores;
        let all = all_configs(view, "s2-jobs");
        let of = |jobs| all.iter().copied().find(|config| config.threads == jobs);
        let (few, many) = of(cores).zip(of(4 * cores)).ok_or_else(|| view.skipped("s2-jobs"))?;
        let what = format!("bytes a second, {} jobs over {cores}", 4 * cores);
        Ok(vec![view.ratio(what, BytesPerS, many, few, AtMost(1.05))?])
    },
})];
