//! What S5 found.

use super::Finding;
use super::s3::configs;
use crate::config::Config;
use crate::lab::USER_SPACE;
use crate::measure::Metric;
use crate::statistics::Threshold;

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
