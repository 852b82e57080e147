//! S5 Figure 6: latency at queue depth 1.

use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s5-latency",
    figure: "S5, latency at queue depth 1",
    shows: "latency of one request at a time, by interface and cores",
    found: "At queue depth 1 SPDK's latency is 60 % better than the kernel's.",
    needs: "nothing",
    plan,
}];

fn plan(lab: &Lab) -> Plan {
    let shown = [(Metric::P50Us, Scale::Linear), (Metric::P99Us, Scale::Log)];
    let mut plan = Plan::new("cores", Scale::Linear, &shown);
    let cores: Vec<u32> = [1, 2].into_iter().filter(|cores| *cores <= lab.cores()).collect();
    if cores.len() < 2 {
        plan = plan.skip("two cores: one only may be used");
    }
    let series = by_interface(lab, &cores, |name, cores| Some(Config::new(name, cores)));
    plan.group("queue depth 1", series)
}

pub(crate) const ROWS: &[Finding] = &[Finding {
    name: "s5-user-space-latency",
    source: "S5, queue depth 1",
    experiment: "s5-latency",
    needs: &[Interface(USER_SPACE), Interface("io_uring")],
    claim: "At queue depth 1 the user-space driver's latency is 60 % better than io_uring's.",
    test: "one core: at most 0.7 times the median latency of io_uring",
    judge: |view| {
        let (own, uring) = (Config::new(USER_SPACE, 1), Config::new("io_uring", 1));
        let what = "median latency at queue depth 1, user space over io_uring";
        Ok(vec![view.ratio(what, Metric::P50Us, &own, &uring, AtMost(0.7))?])
    },
}];
