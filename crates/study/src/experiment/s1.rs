//! S1: libaio, SPDK and `io_uring`, by queue depth, cores and drives.

use super::{Experiment, Plan, Scale, by_interface, cores_words, counts, several_devices};
use crate::config::{Assignment, Config};
use crate::lab::{Effort, LIBAIO_CALLS, Lab};
use crate::measure::Metric;

pub(super) const QUEUE_DEPTH: Experiment = Experiment {
    name: "s1-fig2",
    figure: "S1 Figure 2",
    shows: "IOPS and median latency of one thread by queue depth, on one core and on two",
    found: "On one core io_uring with a kernel thread (iou+k) fell to 13 KIOPS and 8 ms where the best mode of io_uring had 171 KIOPS; on \
            two cores it had 260 KIOPS, 17 % under SPDK, with io_uring at 182 and libaio at 150.",
    needs: "two cores for the second half",
    plan: queue_depth,
};

pub(super) const SYSTEM_CALLS: Experiment = Experiment {
    name: "s1-fig3",
    figure: "S1 Figure 3",
    shows: "system calls per I/O by queue depth",
    found: "libaio needs two, fewer as batches grow; io_uring at most about one; iou+k and SPDK none.",
    needs: "nothing",
    plan: system_calls,
};

pub(super) const CORES_PER_DRIVE: Experiment = Experiment {
    name: "s1-fig4",
    figure: "S1 Figure 4",
    shows: "J drives with as many cores, one more, two more, and twice as many",
    found: "Only iou+k gains from more cores than drives: with two for each it was 45 % over io_uring and 15 % under SPDK, with \
            one for each under half of libaio.",
    needs: "several devices, more cores than devices",
    plan: cores_per_drive,
};

pub(super) const DRIVES: Experiment = Experiment {
    name: "s1-fig5",
    figure: "S1 Figure 5",
    shows: "one thread for each of 1 to N drives, queue depth 128",
    found: "SPDK was first everywhere; iou+k followed 9 to 16 % behind while there were two cores for each drive, and was last \
            when there were not.",
    needs: "several devices",
    plan: drives,
};

/// Depths of the figure.
pub(crate) fn depths(lab: &Lab) -> &'static [u32] {
    match lab.effort {
        Effort::Quick | Effort::Usual => &[1, 4, 16, 64, 128],
        Effort::Full => &[1, 2, 4, 8, 16, 32, 64, 128],
    }
}

fn queue_depth(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Linear), (Metric::P50Us, Scale::Log)];
    let mut plan = Plan::new("queue depth", Scale::Log, &shown);
    for cores in [1, 2] {
        if cores > lab.cores() {
            plan = plan.skip("two cores: one only may be used");
            continue;
        }
        let series = by_interface(lab, depths(lab), |name, depth| {
            Some(lab.mix.of(Config::new(name, cores).depth(depth)))
        });
        plan = plan.group(&cores_words(cores), series);
    }
    if lab.cores() > 2 {
        let series = by_interface(lab, &[16, 128], |name, depth| {
            Some(lab.mix.of(Config::new(name, 3).depth(depth)))
        });
        plan = plan.group(&cores_words(3), series);
    }
    plan.remarks.push(
        "Threads are confined by affinity, the kernel's submission thread with them. The drive's interrupts go where the \
         machine sends them."
            .to_owned(),
    );
    plan
}

fn system_calls(lab: &Lab) -> Plan {
    let cores = lab.cores().min(2);
    let plan = Plan::new("queue depth", Scale::Log, &[(Metric::SystemCallsPerIo, Scale::Linear)]);
    let mut series =
        by_interface(lab, depths(lab), |name, depth| Some(Config::new(name, cores).depth(depth)));
    if lab.has("libaio") {
        // The papers' libaio asks the kernel for completions; ours reads them from the mapped ring.
        series.push(super::series("libaio, io_getevents", depths(lab).iter().copied(), |depth| {
            Some(Config::new(LIBAIO_CALLS, cores).depth(depth))
        }));
    }
    let mut plan = plan.group(&cores_words(cores), series);
    plan.remarks.push(
        "Counted by the channels themselves. posix counts those of its pool of threads, without the waking of threads.".to_owned(),
    );
    plan
}

fn cores_per_drive(lab: &Lab) -> Plan {
    let mut plan = Plan::new(
        "cores",
        Scale::Linear,
        &[(Metric::IosPerS, Scale::Linear), (Metric::P50Us, Scale::Log)],
    );
    if !several_devices(lab, &mut plan) {
        return plan;
    }
    let drives = (lab.devices.len() as u32).min(5).min(lab.cores());
    if drives < 2 {
        return plan.skip("one core only: drives and cores cannot be varied against each other");
    }
    let mut cores = vec![drives, drives + 1, drives + 2, 2 * drives];
    cores.dedup();
    let possible: Vec<u32> = cores.iter().copied().filter(|c| *c <= lab.cores()).collect();
    for missing in cores.iter().filter(|c| **c > lab.cores()) {
        plan = plan
            .skip(format!("{drives} drives with {missing} cores: there are {} cores", lab.cores()));
    }
    let series = by_interface(lab, &possible, |name, cores| {
        Some(Config::new(name, cores).threads(drives).depth(128).drives(drives, Assignment::Own))
    });
    plan.group(&format!("{drives} drives"), series)
}

fn drives(lab: &Lab) -> Plan {
    let mut plan = Plan::new("drives", Scale::Linear, &[(Metric::IosPerS, Scale::Linear)]);
    if !several_devices(lab, &mut plan) {
        return plan;
    }
    let xs = counts(lab.devices.len() as u32);
    let series = by_interface(lab, &xs, |name, drives| {
        let cores = (2 * drives).min(lab.cores());
        Some(Config::new(name, cores).threads(drives).depth(128).drives(drives, Assignment::Own))
    });
    plan.group("two cores for each drive, as far as there are", series)
}
