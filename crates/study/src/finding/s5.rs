//! The findings of S5.

use super::{Finding, all_configs, configs};
use crate::config::{Assignment, Config};
use crate::experiment::s4::DEPTH_ASYNC;
use crate::experiment::user_space::{SCALE_UP_DEPTH, SCALE_UP_DRIVE};
use crate::lab::USER_SPACE;
use crate::measure::Metric;
use crate::outcome::Threshold;

pub(super) const USER_SPACE_LATENCY: Finding = Finding {
    name: "s5-user-space-latency",
    source: "S5, queue depth 1",
    experiment: "s5-latency",
    claim: "At queue depth 1 the user-space driver's latency is 60 % better than io_uring's.",
    test: "one core: at most 0.7 times the median latency of io_uring",
    judge: |view| {
        view.need(USER_SPACE)?;
        let (own, uring) = (Config::new(USER_SPACE, 1), Config::new("io_uring", 1));
        let what = "median latency at queue depth 1, user space over io_uring";
        Ok(vec![view.ratio(what, Metric::P50Us, &own, &uring, Threshold::AtMost(0.7))?])
    },
};

pub(super) const USER_SPACE_CORE: Finding = Finding {
    name: "s5-user-space-core",
    source: "S5, one core",
    experiment: "s5-core",
    claim: "One core drives many more drives through the user-space driver (21) than through io_uring (4).",
    test: "one core, the most drives: at least 2 times the IOPS of io_uring",
    judge: |view| {
        view.need(USER_SPACE)?;
        let drives = view.need_drives("s5-core")?;
        let of = |name: &str| {
            configs(view, "s5-core", name)
                .into_iter()
                .find(|config| config.drives == drives)
                .ok_or_else(|| view.skipped("s5-core"))
        };
        let (own, uring) = (of(USER_SPACE)?, of("io_uring")?);
        let what = format!("IOPS of one core on {drives} drives, user space over io_uring");
        Ok(vec![view.ratio(what, Metric::IosPerS, own, uring, Threshold::AtLeast(2.0))?])
    },
};

pub(super) const SCALE_UP: Finding = Finding {
    name: "s5-scale-up",
    source: "S5 Figure 3",
    experiment: "s5-soft",
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
            part("IOPS of two soft drives over one", 2, 1, Threshold::AtLeast(1.8))?,
            part(&what, most, before, Threshold::AtMost(1.05))?,
        ])
    },
};

pub(super) const FOUR_JOBS: Finding = Finding {
    name: "s5-four-jobs",
    source: "S5, in the text",
    experiment: "s4-sync",
    claim: "Four jobs with libaio and queue depth 64 take one drive to its limit.",
    test: "at least 0.95 times the most IOPS of any interface, depth and number of threads on that drive",
    judge: |view| {
        let four = Config::new("libaio", view.report.cores).threads(4).depth(DEPTH_ASYNC);
        let mut others: Vec<&Config> = ["s1-fig2", "s4-sync", "s4-outstanding"]
            .into_iter()
            .flat_map(|experiment| all_configs(view, experiment))
            .collect();
        others.retain(|config| **config != four);
        let most = view.fastest(others).ok_or_else(|| view.skipped("s4-sync"))?;
        let what = format!("IOPS, four jobs over {most}");
        Ok(vec![view.chosen_ratio(what, Metric::IosPerS, &four, most, Threshold::AtLeast(0.95))?])
    },
};
