//! S2: the cost of the layers between a program and its drive.

use super::{Experiment, Plan, Scale, counts, series};
use crate::config::Config;
use crate::lab::{BARE_CALL, Lab};
use crate::measure::Metric;

pub(super) const JOBS: Experiment = Experiment {
    name: "s2-jobs",
    figure: "S2 section 5.1",
    shows: "reads of 128 KiB by the number of jobs, one request each",
    found: "Once the drive was at its limit, more jobs added nothing.",
    needs: "nothing",
    plan: jobs,
};

pub(super) const COSTS: Experiment = Experiment {
    name: "s2-costs",
    figure: "S2 Figure 3",
    shows: "processor time of a call that does nothing, and of a read of 4 KiB",
    found: "Going to the kernel and back costs 0.5 to 2 us, the I/O stack 5 to 15 us (both cited).",
    needs: "the system call pread",
    plan: costs,
};

/// Bytes of a job's requests.
pub(crate) const JOB_BLOCK: u32 = 128 << 10;

fn jobs(lab: &Lab) -> Plan {
    let shown = [(Metric::BytesPerS, Scale::Linear), (Metric::P50Us, Scale::Log)];
    let plan = Plan::new("jobs", Scale::Log, &shown);
    let Some(name) = lab.main_interface() else { return plan };
    let cores = lab.cores();
    let xs: Vec<u32> = counts(4 * cores).into_iter().filter(|n| n.is_power_of_two()).collect();
    let xs = if xs.contains(&(4 * cores)) { xs } else { [xs, vec![cores, 4 * cores]].concat() };
    let of = |jobs| Some(Config::new(name, cores).threads(jobs).block_bytes(JOB_BLOCK));
    plan.group("", vec![series(name, xs, of)])
}

fn costs(lab: &Lab) -> Plan {
    let shown = [(Metric::CpuUsPerIo, Scale::Linear), (Metric::P50Us, Scale::Linear)];
    let plan = Plan::new("queue depth", Scale::Linear, &shown);
    if !lab.has("posix") {
        return plan.skip("the devices take no pread");
    }
    let of = |label: &str, name: &str| series(label, [1], |_| Some(Config::new(name, 1)));
    plan.group("", vec![of("a call that does nothing", BARE_CALL), of("pread of 4 KiB", "posix")])
}
