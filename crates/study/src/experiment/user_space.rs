//! The user-space driver where everybody can run it: on drives made of software.

use super::{Experiment, Plan, Scale, s1, series};
use crate::config::Config;
use crate::lab::{Lab, SOFT_DRIVE};
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

/// Options of the drive, and what they stand for.
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
