//! What S3 found.

use super::{Finding, View};
use crate::config::{Assignment, Config};
use crate::measure::Metric;
use crate::statistics::Threshold;

use Metric::{BytesPerS, IosPerS, P99Us};
use Threshold::{AtLeast, AtMost};

pub(super) const DRIVES_ADD_UP: Finding = Finding {
    name: "s3-drives-add-up",
    source: "S3 Figure 2a",
    experiment: "s3-fig2a",
    claim: "Drives add up: eight give eight times the reads of one.",
    test: "N drives: at least 0.9 N times the IOPS of one",
    judge: |view| {
        let drives = view.need_drives("s3-fig2a")?;
        let name = view.main_interface("s3-fig2a")?;
        let configs = configs(view, "s3-fig2a", name);
        let of = |drives: u32| configs.iter().copied().find(|config| config.drives == drives);
        let (one, all) = of(1).zip(of(drives)).ok_or_else(|| view.skipped("s3-fig2a"))?;
        let what = format!("IOPS of {drives} drives over one");
        Ok(vec![view.ratio(what, IosPerS, all, one, AtLeast(0.9 * f64::from(drives)))?])
    },
};

pub(super) const WRITES_COST: Finding = Finding {
    name: "s3-writes-cost",
    source: "S3 Figure 2b",
    experiment: "s3-fig2b",
    claim: "A few writes cost much: 10 % of them take the array from 12.5 to 8.9 million I/Os a second.",
    test: "with 10 % writes at most 0.9 times the IOPS of reads alone",
    judge: |view| {
        let name = view.main_interface("s3-fig2b")?;
        let configs = configs(view, "s3-fig2b", name);
        let of = |reads: u8| configs.iter().copied().find(|config| config.read_percent == reads);
        let (reads, mixed) = of(100).zip(of(90)).ok_or_else(|| view.skipped("s3-fig2b"))?;
        Ok(vec![
            view.ratio("IOPS with 10 % writes over reads", IosPerS, mixed, reads, AtMost(0.9))?,
            view.told("p99 latency with 10 % writes, us", P99Us, mixed)?,
        ])
    },
};

pub(super) const FOUR_KIB: Finding = Finding {
    name: "s3-four-kib",
    source: "S3 Figure 3",
    experiment: "s3-fig3",
    claim: "4 KiB pages are the best trade-off.",
    test: "smaller pages: at most 1.1 times the IOPS of 4 KiB; pages of 16 KiB: at most 0.9 times",
    judge: |view| {
        let name = view.main_interface("s3-fig3")?;
        let configs = configs(view, "s3-fig3", name);
        let of = |bytes: u32| configs.iter().copied().find(|config| config.block_bytes == bytes);
        let (page, large) = of(4096).zip(of(16384)).ok_or_else(|| view.skipped("s3-fig3"))?;
        let mut evidence =
            vec![view.ratio("IOPS of 16 KiB over 4 KiB", IosPerS, large, page, AtMost(0.9))?];
        if let Some(small) = of(512) {
            let what = "IOPS of 512 B over 4 KiB";
            evidence.push(view.ratio(what, IosPerS, small, page, AtMost(1.1))?);
        }
        if let Some(largest) = of(65536) {
            let interval = view.ratio_of(BytesPerS, page, largest)?;
            evidence.push(super::Evidence::told("bandwidth of 4 KiB over 64 KiB", interval));
        }
        Ok(evidence)
    },
};

pub(super) const THOUSAND_OUTSTANDING: Finding = Finding {
    name: "s3-thousand-outstanding",
    source: "S3 Figure 4",
    experiment: "s3-fig4",
    claim: "About 1000 requests must be outstanding for good throughput.",
    test: "1024 outstanding: at least 0.9 times the most IOPS at any number; 256 outstanding: at most 0.9 times those of 1024",
    judge: |view| {
        let name = view.main_interface("s3-fig4")?;
        let configs = configs(view, "s3-fig4", name);
        let of = |total: u32| {
            configs.iter().copied().find(|config| config.threads * config.depth == total)
        };
        let (few, many) = of(256).zip(of(1024)).ok_or_else(|| view.skipped("s3-fig4"))?;
        let most = view.fastest(configs.iter().copied()).ok_or_else(|| view.missing(many))?;
        let total = most.threads * most.depth;
        let what = format!("IOPS of 1024 outstanding over {total}, the most");
        Ok(vec![
            view.ratio(what, IosPerS, many, most, AtLeast(0.9))?,
            view.ratio("IOPS of 256 outstanding over 1024", IosPerS, few, many, AtMost(0.9))?,
        ])
    },
};

pub(super) const ALL_REACH: Finding = Finding {
    name: "s3-all-reach",
    source: "S3 Figures 6 and 11",
    experiment: "s3-fig6",
    claim: "Every asynchronous interface reaches what the drives can do, given the cores.",
    test: "each, with its best number of threads: at least 0.95 times the IOPS of the fastest",
    judge: |view| {
        let all = all_configs(view, "s3-fig6");
        let asynchronous = || all.iter().copied().filter(|config| config.interface != "posix");
        let most = view.fastest(asynchronous()).ok_or_else(|| view.skipped("s3-fig6"))?;
        let mut names: Vec<&str> = asynchronous().map(|config| config.interface.as_str()).collect();
        names.dedup();
        names.retain(|name| *name != most.interface);
        if names.is_empty() {
            return Err(format!("{} is the only asynchronous interface here", most.interface));
        }
        names
            .into_iter()
            .map(|name| {
                let own = configs(view, "s3-fig6", name);
                let best = view
                    .fastest(own.iter().copied())
                    .ok_or_else(|| own.first().map_or_else(String::new, |c| view.missing(c)))?;
                let what = format!("IOPS, {name} over {}, the fastest", most.interface);
                view.ratio(what, IosPerS, best, most, AtLeast(0.95))
            })
            .collect()
    },
};

pub(super) const POLLING_REACHES_MORE: Finding = Finding {
    name: "s3-polling-reaches-more",
    source: "S3 Figures 6 and 11",
    experiment: "s3-fig6",
    claim: "io_uring with interrupts stops short of what the drives can do; polled, it does not.",
    test: "polled, with its best number of threads: at least 1.05 times the IOPS of io_uring",
    judge: |view| {
        view.need("io_uring+p")?;
        let best = |name: &str| {
            view.fastest(configs(view, "s3-fig6", name)).ok_or_else(|| view.skipped("s3-fig6"))
        };
        let (polled, plain) = (best("io_uring+p")?, best("io_uring")?);
        Ok(vec![view.ratio("IOPS, polled over io_uring", IosPerS, polled, plain, AtLeast(1.05))?])
    },
};

pub(super) const ALL_TO_ALL: Finding = Finding {
    name: "s3-all-to-all",
    source: "S3 Figure 11",
    experiment: "s3-fig11",
    claim: "Letting every thread use every drive costs next to nothing.",
    test: "all drives: at least 0.95 times the IOPS of a drive for each thread",
    judge: |view| {
        let drives = view.need_drives("s3-fig11")?;
        let all = all_configs(view, "s3-fig11");
        let of = |assignment| {
            all.iter()
                .copied()
                .find(|config| config.drives == drives && config.assignment == assignment)
                .ok_or_else(|| view.skipped("s3-fig11"))
        };
        let (own, all) = (of(Assignment::Own)?, of(Assignment::All)?);
        let what = format!("IOPS of {drives} drives, all-to-all over assigned");
        Ok(vec![view.ratio(what, IosPerS, all, own, AtLeast(0.95))?])
    },
};

/// The configurations of an experiment.
fn all_configs<'a>(view: &View<'a>, experiment: &str) -> Vec<&'a Config> {
    view.report.experiment(experiment).map(|ran| ran.plan.configs().collect()).unwrap_or_default()
}

/// Those of one interface.
pub(super) fn configs<'a>(view: &View<'a>, experiment: &str, interface: &str) -> Vec<&'a Config> {
    let mut all = all_configs(view, experiment);
    all.retain(|config| config.interface == interface);
    all
}
