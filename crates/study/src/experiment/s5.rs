//! S5: SPDK and `io_uring` as interchangeable block devices: one core, and one request at a time.

use super::{Experiment, Plan, Scale, by_interface, cores_words, counts, several_devices};
use crate::config::{Assignment, Config};
use crate::lab::Lab;
use crate::measure::Metric;

pub(super) const ONE_CORE: Experiment = Experiment {
    name: "s5-core",
    figure: "S5, one core",
    shows: "IOPS of one core as drives are added",
    found: "One core drives 21 fast drives through SPDK, and 4 through io_uring.",
    needs: "several devices",
    plan: one_core,
};

pub(super) const LATENCY: Experiment = Experiment {
    name: "s5-latency",
    figure: "S5, latency at queue depth 1",
    shows: "latency of one request at a time, by interface and cores",
    found: "At queue depth 1 SPDK's latency is 60 % better than the kernel's.",
    needs: "nothing",
    plan: latency,
};

fn one_core(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Linear), (Metric::CpuUsPerIo, Scale::Linear)];
    let mut plan = Plan::new("drives", Scale::Linear, &shown);
    if !several_devices(lab, &mut plan) {
        return plan;
    }
    let xs = counts(lab.devices.len() as u32);
    let series = by_interface(lab, &xs, |name, drives| {
        Some(Config::new(name, 1).depth(128 * drives).drives(drives, Assignment::All))
    });
    plan.group("one thread on one core, 128 requests for each drive", series)
}

fn latency(lab: &Lab) -> Plan {
    let shown = [(Metric::P50Us, Scale::Linear), (Metric::P99Us, Scale::Log)];
    let plan = Plan::new("cores", Scale::Linear, &shown);
    let mut plan = plan;
    let cores: Vec<u32> = [1, 2].into_iter().filter(|cores| *cores <= lab.cores()).collect();
    if cores.len() < 2 {
        plan = plan.skip(format!("{}: one only may be used", cores_words(2)));
    }
    let series = by_interface(lab, &cores, |name, cores| Some(Config::new(name, cores)));
    plan.group("queue depth 1", series)
}
