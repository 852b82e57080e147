//! Experiments with the user-space driver on soft drives, which every user can run.

use super::{Experiment, Plan, Scale, s1, series};
use crate::config::{Assignment, Config};
use crate::lab::{Effort, Lab, SOFT_DRIVE};
use crate::measure::Metric;

pub(super) const SOFT: Experiment = Experiment {
    name: "user-space",
    figure: "S1 Figures 2 and 3, S5: the row of SPDK",
    shows: "the user-space NVMe driver on soft drives: IOPS, latency, system calls and processor time by queue depth",
    found: "SPDK needs no system call and no interrupt for an I/O, and the least processor time of all (S1); one core drives 21 fast drives \
            through it (S5).",
    needs: "nothing",
    plan: soft,
};

pub(super) const SCALE_UP: Experiment = Experiment {
    name: "s5-soft",
    figure: "S5 Figure 3, on soft drives",
    shows: "IOPS of one core through the user-space driver as soft drives are added",
    found: "IOPS grew with every drive until the core was full, at 21 drives, and then stayed.",
    needs: "nothing",
    plan: scale_up,
};

/// The drive of the scale-up experiment. It has a latency, so that one drive does not keep a core
/// busy.
pub(crate) const SCALE_UP_DRIVE: &str = "softnvme:profile=optane";

/// Requests in flight on each drive of the scale-up experiment.
pub(crate) const SCALE_UP_DEPTH: u32 = 1;

fn scale_up(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Linear), (Metric::CpuUsPerIo, Scale::Linear)];
    let plan = Plan::new("drives", Scale::Linear, &shown);
    let xs: &[u32] = match lab.effort {
        Effort::Full => &[1, 2, 4, 8, 16, 24],
        Effort::Usual => &[1, 2, 4, 8, 16, 24],
        Effort::Quick => &[1, 2, 4, 8],
    };
    let series = series(SCALE_UP_DRIVE, xs.iter().copied(), |drives| {
        let config = Config::new(SCALE_UP_DRIVE, 1).depth(SCALE_UP_DEPTH * drives);
        Some(config.drives(drives, Assignment::All))
    });
    let mut plan =
        plan.group("one core for the driver and the drives, one request a drive", vec![series]);
    plan.remarks.push(
        "Drives made of software, whose work takes the same core: the knee comes far sooner than with real ones, but has the same form."
            .to_owned(),
    );
    plan
}

/// Options of the drive, each with the feature it stands for.
const DRIVES: [(&str, &str); 3] = [
    ("", "memory, no delays"),
    (":profile=optane", "like 3D XPoint"),
    (":profile=tlc", "like data-centre flash"),
];

fn soft(lab: &Lab) -> Plan {
    let shown = [
        (Metric::IosPerS, Scale::Log),
        (Metric::P50Us, Scale::Log),
        (Metric::SystemCallsPerIo, Scale::Linear),
        (Metric::CpuUsPerIo, Scale::Log),
    ];
    let plan = Plan::new("queue depth", Scale::Log, &shown);
    let of = |(options, words): (&str, &str)| {
        let label = format!("{SOFT_DRIVE}{options} ({words})");
        series(&label, s1::depths(lab).iter().copied(), |depth| {
            Some(Config::new(format!("{SOFT_DRIVE}{options}"), 1).depth(depth))
        })
    };
    let mut plan =
        plan.group("one core, the driver and the soft drive on it", DRIVES.map(of).into());
    plan.remarks.push(
        "Not this machine's drives: NVMe controllers made of software in this process, whose work one core does besides the driver's. It shows \
         what the driver costs and how it behaves on a drive of a known shape; its figures are not to be set against those of the devices above."
            .to_owned(),
    );
    plan
}
