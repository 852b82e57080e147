//! S5 Figure 3, and SPDK's rows of S1: the user-space driver on soft drives, which every user can
//! run.

use crate::papers::prelude::*;
use crate::papers::s1::depths;

pub(crate) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "user-space",
        figure: "S1 Figures 2 and 3, S5: the row of SPDK",
        shows: "the user-space NVMe driver on soft drives: IOPS, latency, system calls and processor time by queue depth",
        found: "SPDK needs no system call and no interrupt for an I/O, and the least processor time of all (S1); one core drives 21 fast drives \
            through it (S5).",
        needs: "nothing",
        plan: soft,
    },
    Experiment {
        name: "s5-soft",
        figure: "S5 Figure 3, on soft drives",
        shows: "IOPS of one core through the user-space driver as soft drives are added",
        found: "IOPS grew with every drive until the core was full, at 21 drives, and then stayed.",
        needs: "nothing",
        plan: scale_up,
    },
];

/// The drive of the scale-up experiment. It has a latency, so that one drive does not keep a core
/// busy.
const SCALE_UP_DRIVE: &str = "softnvme:profile=optane";

/// Requests in flight on each drive of the scale-up experiment.
const SCALE_UP_DEPTH: u32 = 1;

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
        series(&label, depths(lab).iter().copied(), |depth| {
            Some(Config::new(format!("{SOFT_DRIVE}{options}"), 1).depth(depth))
        })
    };
    plan.group("one core, the driver and the soft drive on it", DRIVES.map(of).into()).remark(
        "Not this machine's drives: NVMe controllers made of software in this process, whose work one core does besides the driver's. It shows \
         what the driver costs and how it behaves on a drive of a known shape; its figures are not to be set against those of the devices above.",
    )
}

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
    plan.group("one core for the driver and the drives, one request a drive", vec![series]).remark(
        "Drives made of software, whose work takes the same core: the knee comes far sooner than with real ones, but has the same form.",
    )
}

pub(crate) const ROWS: &[Finding] = &[Finding {
    name: "s5-scale-up",
    source: "S5 Figure 3",
    experiment: "s5-soft",
    needs: &[SoftDrive],
    claim: "One core's IOPS through SPDK grow with every drive until the core is full, and then stay.",
    test: "soft drives on one core, one request each: two at least 0.9 times twice the IOPS of one; the most (8 or 24) at most 1.05 times those of the number before",
    judge: |view| {
        let of = |drives: u32| {
            let config = Config::new(SCALE_UP_DRIVE, 1).depth(SCALE_UP_DEPTH * drives);
            config.drives(drives, Assignment::All)
        };
        let part = |what: &str, above, below, wanted| {
            view.ratio(what, Metric::IosPerS, &of(above), &of(below), wanted)
        };
        let mut counts: Vec<u32> = configs(view, "s5-soft", SCALE_UP_DRIVE)
            .into_iter()
            .map(|config| config.drives)
            .collect();
        counts.sort_unstable();
        let [.., before, most] = counts[..] else { return Err(view.skipped("s5-soft")) };
        let what = format!("IOPS of {most} over {before}");
        Ok(vec![
            part("IOPS of two soft drives over one", 2, 1, AtLeast(1.8))?,
            part(&what, most, before, AtMost(1.05))?,
        ])
    },
}];
