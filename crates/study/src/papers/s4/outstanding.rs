//! S4 section 5.2: threads and outstanding requests.

use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s4-outstanding",
    figure: "S4, threads and outstanding requests",
    shows: "random reads by outstanding requests of each thread, for several numbers of threads",
    found: "Throughput levels off at about 128 requests outstanding.",
    needs: "nothing",
    plan,
}];

fn plan(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Linear), (Metric::P99Us, Scale::Log)];
    let plan = Plan::new("outstanding requests of each thread", Scale::Log, &shown);
    let depths: &[u32] = match lab.effort {
        Effort::Full => &[1, 4, 16, 32, 64, 128, 256, 512, 1024],
        _ => &[1, 32, 128, 512],
    };
    let mut threads = vec![1, lab.cores(), 2 * lab.cores()];
    threads.dedup();
    let Some(name) = lab.main_interface() else { return plan };
    let all = threads
        .iter()
        .map(|count| {
            let label =
                if *count == 1 { "1 thread".to_owned() } else { format!("{count} threads") };
            series(&label, depths.iter().copied(), |depth| {
                Some(Config::new(name, lab.cores()).threads(*count).depth(depth))
            })
        })
        .collect();
    plan.group(&format!("{name} on {}", cores_words(lab.cores())), all)
}

pub(crate) const ROWS: &[Finding] = &[Finding {
    name: "s4-plateau",
    source: "S4 section 5.2",
    experiment: "s4-outstanding",
    needs: &[],
    claim: "Throughput levels off at about 128 outstanding requests.",
    test: "one thread: 128 outstanding at least 1.05 times the IOPS of 32, and 512 at most 1.05 times those of 128",
    judge: |view| {
        let name = view.main_interface("s4-outstanding")?;
        let of = |depth| Config::new(name, view.report.cores).depth(depth);
        Ok(vec![
            view.ratio("IOPS of 128 over 32", IosPerS, &of(128), &of(32), AtLeast(1.05))?,
            view.ratio("IOPS of 512 over 128", IosPerS, &of(512), &of(128), AtMost(1.05))?,
        ])
    },
}];
