//! S3 Figure 4: requests outstanding.

use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s3-fig4",
    figure: "S3 Figure 4",
    shows: "random reads by requests outstanding for each drive",
    found: "Eight drives need about 1000 requests outstanding for good throughput, and 3000 to be saturated.",
    needs: "nothing",
    plan,
}];

fn plan(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Linear), (Metric::P50Us, Scale::Log)];
    let plan = Plan::new("requests outstanding for each drive", Scale::Log, &shown);
    let Some(name) = lab.main_interface() else { return plan };
    let drives = lab.devices.len() as u32;
    let totals: &[u32] = match lab.effort {
        Effort::Full => &[1, 2, 4, 8, 16, 32, 64, 125, 250, 375, 500, 1000, 2000],
        _ => &[1, 4, 16, 64, 125, 375, 500, 1000],
    };
    let of = |total| Some(outstanding_config(lab, name, total * drives));
    let series = series(name, totals.iter().copied(), of);
    let title = if drives > 1 { format!("{drives} drives") } else { String::new() };
    plan.group(&title, vec![series])
}

pub(crate) const ROWS: &[Finding] = &[Finding {
    name: "s3-thousand-outstanding",
    source: "S3 Figure 4",
    experiment: "s3-fig4",
    needs: &[],
    claim: "Eight drives need about 1000 requests outstanding for good throughput and 3000 for all of it: 125 and 375 for each.",
    test: "125 for each drive 0.7 to 0.95 times the most IOPS of 500 and more, 375 at least 0.95 times",
    judge: |view| {
        let name = view.main_interface("s3-fig4")?;
        let drives = view.report.devices.len().max(1) as u32;
        let ran = view.report.experiment("s3-fig4").ok_or_else(|| view.skipped("s3-fig4"))?;
        let all: Vec<(f64, &Config)> = ran
            .plan
            .groups
            .iter()
            .flat_map(|group| &group.series)
            .flat_map(|series| series.points.iter().map(|(x, config)| (*x, config)))
            .filter(|(_, config)| config.interface == name && config.drives == drives)
            .collect();
        let of = |x: f64| all.iter().find(|point| point.0 == x).map(|point| point.1);
        let (good, full) = of(125.0).zip(of(375.0)).ok_or_else(|| view.skipped("s3-fig4"))?;
        let deep = all.iter().filter(|point| point.0 >= 500.0).map(|point| point.1);
        let most = view.fastest(deep).ok_or_else(|| view.missing(full))?;
        Ok(vec![
            view.chosen_ratio("IOPS, 125 over the most", IosPerS, good, most, Between(0.7, 0.95))?,
            view.chosen_ratio("IOPS, 375 over the most", IosPerS, full, most, AtLeast(0.95))?,
        ])
    },
}];

/// Returns a configuration with `total` requests in flight, distributed over at most one thread for
/// each core.
fn outstanding_config(lab: &Lab, name: &str, total: u32) -> Config {
    let drives = lab.devices.len() as u32;
    let threads = lab.cores().min(total).next_power_of_two().min(total);
    let threads = if threads > lab.cores() { threads / 2 } else { threads };
    Config::new(name, lab.cores())
        .threads(threads)
        .depth(total / threads)
        .drives(drives, Assignment::All)
}
