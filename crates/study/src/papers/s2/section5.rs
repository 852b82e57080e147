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

pub(crate) const ROWS: &[Finding] = &[Finding {
    name: "s2-jobs-over-cores",
    source: "S2 section 5.1",
    experiment: "s2-jobs",
    needs: &[],
    claim: "Once the drive is at its limit, more jobs add nothing, and more jobs than cores may lose.",
    test: "reads of 128 KiB, one request a job: four jobs for each core at most 1.05 times the throughput of the fewest jobs of which twice as many have no more; not \
           where the cores are full",
    judge: |view| {
        let cores = view.report.cores;
        let mut all = all_configs(view, "s2-jobs");
        all.sort_by_key(|config| config.threads);
        let most = all.iter().copied().find(|config| config.threads == 4 * cores);
        let most = most.ok_or_else(|| view.skipped("s2-jobs"))?;
        if let Some(full) = all.iter().find(|config| view.report.cores_full(config)) {
            return Err(format!("the cores are full before the drive with {} jobs", full.threads));
        }
        // At the limit twice as many jobs have no more. The most jobs do not count: they are judged.
        let speed = |config: &Config| view.report.first_speed(config).unwrap_or_default();
        all.retain(|config| config.threads < most.threads);
        let best = all.iter().map(|config| speed(config)).fold(0.0, f64::max);
        all.retain(|config| speed(config) >= 0.95 * best);
        let few = match all[..] {
            [few, .., last] if last.threads >= 2 * few.threads => few,
            _ => {
                let fewer = most.threads;
                return Err(format!("the drive is not at its limit with fewer than {fewer} jobs"));
            }
        };
        let what = format!("bytes a second, {} jobs over {}", most.threads, few.threads);
        Ok(vec![view.chosen_ratio(what, BytesPerS, most, few, AtMost(1.05))?])
    },
}];
