//! The findings of S3.

use super::{Evidence, Finding, View, all_configs, configs};
use crate::config::{Assignment, Channels, Config};
use crate::experiment::s3::TPCC_READ_PERCENT;
use crate::lab::USER_SPACE;
use crate::measure::Metric;
use crate::outcome::Threshold;

use Metric::{BytesPerS, CpuUsPerIo, IosPerCpuS, IosPerS, KernelShare, P50Us};
use Threshold::{AtLeast, AtMost, Between};

pub(super) const DRIVES_ADD_UP: Finding = Finding {
    name: "s3-drives-add-up",
    source: "S3 Figure 2a",
    experiment: "s3-fig2a",
    claim: "Drives add up: eight give eight times the reads of one.",
    test: "N drives, as many requests for each: at least 0.9 N times the IOPS of one; not where the cores are full",
    judge: |view| {
        let drives = view.need_drives("s3-fig2a")?;
        let name = view.main_interface("s3-fig2a")?;
        let configs = configs(view, "s3-fig2a", name);
        let of = |drives: u32| configs.iter().copied().find(|config| config.drives == drives);
        let (one, all) = of(1).zip(of(drives)).ok_or_else(|| view.skipped("s3-fig2a"))?;
        let what = format!("IOPS of {drives} drives over one");
        let wanted = AtLeast(0.9 * f64::from(drives));
        let evidence = view.ratio(what, IosPerS, all, one, wanted)?;
        if evidence.outcome == crate::Outcome::DoesNotHold && view.report.cores_full(all) {
            return Err("the cores are full before the drives are".to_owned());
        }
        Ok(vec![evidence])
    },
};

pub(super) const WRITES_COST: Finding = Finding {
    name: "s3-writes-cost",
    source: "S3 Figure 2b",
    experiment: "s3-fig2b",
    claim: "A few writes cost much: 10 % of them take the array from 12.5 to 8.9 million I/Os a second, 25 % to 7, writes alone to 4.7.",
    test: "with 10, 25 and 100 % writes at most 0.85, 0.75 and 0.6 times the IOPS of reads alone",
    judge: |view| {
        let name = view.main_interface("s3-fig2b")?;
        let configs = configs(view, "s3-fig2b", name);
        let of = |reads: u8| {
            let found = configs.iter().copied().find(|config| config.read_percent == reads);
            found.ok_or_else(|| view.skipped("s3-fig2b"))
        };
        [(10, 0.85), (25, 0.75), (100, 0.6)]
            .into_iter()
            .map(|(writes, most)| {
                let what = format!("IOPS with {writes} % writes over reads");
                view.ratio(what, IosPerS, of(100 - writes)?, of(100)?, AtMost(most))
            })
            .collect()
    },
};

pub(super) const FOUR_KIB: Finding = Finding {
    name: "s3-four-kib",
    source: "S3 Figure 3, question 3",
    experiment: "s3-fig3",
    claim: "4 KiB pages are the best trade-off: nearly all of the bandwidth, the least latency, and smaller ones have fewer I/Os.",
    test: "4 KiB at least 0.85 times the bandwidth of the largest size; larger ones at least its median latency; 512 bytes at most 0.9 times \
           its IOPS",
    judge: |view| {
        let name = view.main_interface("s3-fig3")?;
        let configs = configs(view, "s3-fig3", name);
        let of = |bytes: u32| configs.iter().copied().find(|config| config.block_bytes == bytes);
        let page = of(4096).ok_or_else(|| view.skipped("s3-fig3"))?;
        let largest = configs.iter().copied().max_by_key(|config| config.block_bytes);
        let largest = largest.ok_or_else(|| view.skipped("s3-fig3"))?;
        let mut evidence = vec![
            view.ratio(
                "bandwidth, 4 KiB over the largest",
                BytesPerS,
                page,
                largest,
                AtLeast(0.85),
            )?,
            view.ratio(
                "median latency, the largest over 4 KiB",
                P50Us,
                largest,
                page,
                AtLeast(1.0),
            )?,
        ];
        if let Some(small) = of(512) {
            let what = "IOPS, 512 B over 4 KiB";
            evidence.push(view.ratio(what, IosPerS, small, page, AtMost(0.9))?);
        }
        Ok(evidence)
    },
};

pub(super) const SYNC: Finding = Finding {
    name: "s3-sync",
    source: "S3 section 2.3",
    experiment: "s1-fig2",
    claim: "One synchronous request at a time takes about 100 us, so a thread gets 10 KIOPS, a fraction of the drive's.",
    test: "one core: one read at a time at most 0.2 times the most IOPS of one asynchronous thread",
    judge: |view| {
        let all = all_configs(view, "s1-fig2");
        let asynchronous =
            all.iter().copied().filter(|config| config.cores == 1 && config.interface != "posix");
        let most = view.fastest(asynchronous).ok_or_else(|| view.skipped("s1-fig2"))?;
        let what = format!("IOPS, pread over {} at depth {}", most.interface, most.depth);
        Ok(vec![view.chosen_ratio(what, IosPerS, &Config::new("posix", 1), most, AtMost(0.2))?])
    },
};

pub(super) const THOUSAND_OUTSTANDING: Finding = Finding {
    name: "s3-thousand-outstanding",
    source: "S3 Figure 4",
    experiment: "s3-fig4",
    claim: "Eight drives need about 1000 requests outstanding for good throughput and 3000 for all of it: 125 and 375 for each.",
    test: "125 for each drive 0.7 to 0.95 times the most IOPS of 500 and more, 375 at least 0.95 times",
    judge: |view| {
        let name = view.main_interface("s3-fig4")?;
        let drives = view.report.devices.len().max(1) as u32;
        let ran = view.report.experiment("s3-fig4").ok_or_else(|| view.skipped("s3-fig4"))?;
        let all: Vec<(f64, &Config)> = ran
            .plan
            .groups
            .iter()
            .flat_map(|group| &group.series)
            .flat_map(|series| series.points.iter().map(|(x, config)| (*x, config)))
            .filter(|(_, config)| config.interface == name && config.drives == drives)
            .collect();
        let of = |x: f64| all.iter().find(|point| point.0 == x).map(|point| point.1);
        let (good, full) = of(125.0).zip(of(375.0)).ok_or_else(|| view.skipped("s3-fig4"))?;
        let deep = all.iter().filter(|point| point.0 >= 500.0).map(|point| point.1);
        let most = view.fastest(deep).ok_or_else(|| view.missing(full))?;
        Ok(vec![
            view.chosen_ratio("IOPS, 125 over the most", IosPerS, good, most, Between(0.7, 0.95))?,
            view.chosen_ratio("IOPS, 375 over the most", IosPerS, full, most, AtLeast(0.95))?,
        ])
    },
};

pub(super) const POLLING_REACHES_MORE: Finding = Finding {
    name: "s3-polling-reaches-more",
    source: "S3 Figure 6, section 6",
    experiment: "s3-fig6",
    claim: "With reads alone, libaio and io_uring with interrupts stop short of what polled io_uring reaches.",
    test: "reads: each, with its best number of threads, at most 0.95 times the IOPS of polled io_uring with its own",
    judge: |view| {
        view.need("io_uring+p")?;
        let best = |name: &str| best(view, name, 100);
        let polled = best("io_uring+p")?;
        ["libaio", "io_uring"]
            .into_iter()
            .filter(|name| view.has(name))
            .map(|name| {
                let what = format!("IOPS, {name} over polled");
                view.chosen_ratio(what, IosPerS, best(name)?, polled, AtMost(0.95))
            })
            .collect()
    },
};

pub(super) const ALL_REACH: Finding = Finding {
    name: "s3-all-reach",
    source: "S3 question 2, section 4.5",
    experiment: "s3-fig6",
    claim: "With TPC-C's mix of reads and writes every asynchronous interface reaches what the drives can do, given the cores.",
    test: "44 % writes: each, with its best number of threads, at least 0.95 times the IOPS of the fastest",
    judge: |view| {
        let all = all_configs(view, "s3-fig6");
        let mixed = || {
            all.iter().copied().filter(|config| {
                config.read_percent == TPCC_READ_PERCENT && config.interface != "posix"
            })
        };
        let most = view.fastest(mixed()).ok_or_else(|| view.skipped("s3-fig6"))?;
        let mut names: Vec<&str> = mixed().map(|config| config.interface.as_str()).collect();
        names.dedup();
        names.retain(|name| *name != most.interface);
        if names.is_empty() {
            return Err(format!("{} is the only asynchronous interface here", most.interface));
        }
        names
            .into_iter()
            .map(|name| {
                let what = format!("IOPS, {name} over {}, the fastest", most.interface);
                let own = best(view, name, TPCC_READ_PERCENT)?;
                view.chosen_ratio(what, IosPerS, own, most, AtLeast(0.95))
            })
            .collect()
    },
};

pub(super) const ONE_IO_THREAD: Finding = Finding {
    name: "s3-one-io-thread",
    source: "S3 section 3.4, Figure 10",
    experiment: "s3-fig10",
    claim: "A single thread for all I/O gets 630 thousand reads a second, 820 thousand with iou+p: far under the array's.",
    test: "as many threads as cores that hand all requests to one: at most 0.9 times the I/Os for a second of processor time of threads with \
           channels of their own",
    judge: |view| {
        view.two_cores()?;
        let name = view.main_interface("s3-fig10")?;
        let all = all_configs(view, "s3-fig10");
        let of = |channels| {
            all.iter()
                .copied()
                .find(|config| config.threads == view.report.cores && config.channels == channels)
                .ok_or_else(|| view.skipped("s3-fig10"))
        };
        let (one, own) = (of(Channels::OneThread)?, of(Channels::Own)?);
        let what =
            format!("I/Os for a second of processor time, {name}, one thread over each its own");
        Ok(vec![
            view.ratio(what, IosPerCpuS, one, own, AtMost(0.9))?,
            view.told("IOPS by one thread", IosPerS, one)?,
        ])
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

pub(super) const BATCHING: Finding = Finding {
    name: "s3-batching",
    source: "S3 section 4.6",
    experiment: "s3-batches",
    claim: "Submitting requests in batches gives the kernel's interfaces 3 %.",
    test: "queue depth 128, batches of 32: 1.0 to 1.1 times the IOPS of one request a call; I/Os for a second of processor time where the \
           device bounds both",
    judge: |view| {
        let all = all_configs(view, "s3-batches");
        let singles = all.iter().filter(|config| config.batch == 1);
        let evidence = singles
            .map(|single| {
                let many = (*single).clone().batch(32);
                let what = format!("{}, 32 at once over 1", single.interface);
                view.speed(&what, &many, single, Between(1.0, 1.1))
            })
            .collect::<Result<Vec<Evidence>, _>>()?;
        if evidence.is_empty() { Err(view.skipped("s3-batches")) } else { Ok(evidence) }
    },
};

pub(super) const BARE: Finding = Finding {
    name: "s3-bare",
    source: "S3 section 2.5",
    experiment: "s3-cache",
    claim: "For peak throughput, file system, RAID and page cache must be out of the way.",
    test: "queue depth 16: through the page cache at most 0.9 times the IOPS around it",
    judge: |view| {
        let all = all_configs(view, "s3-cache");
        let cached = all.iter().find(|config| config.cached && config.depth == 16);
        let cached = cached.ok_or_else(|| view.skipped("s3-cache"))?;
        let direct = Config { cached: false, ..(*cached).clone() };
        let what = format!("IOPS of {}, page cache over direct", cached.interface);
        Ok(vec![view.ratio(what, IosPerS, cached, &direct, AtMost(0.9))?])
    },
};

pub(super) const OVERSUBSCRIBED: Finding = Finding {
    name: "s3-oversubscribed",
    source: "S3 section 2.6",
    experiment: "s1-fig2",
    claim: "With hundreds of blocking threads the cores are full, mostly with the kernel's work.",
    test: "128 threads that block: the kernel's share of the processor time at least 0.5",
    judge: |view| {
        let config = Config::new("posix", view.report.cores.min(2)).depth(128);
        Ok(vec![view.value("the kernel's share", KernelShare, &config, AtLeast(0.5))?])
    },
};

pub(super) const BYPASS: Finding = Finding {
    name: "s3-bypass",
    source: "S3 question 2",
    experiment: "s1-fig2",
    claim: "Bypassing the kernel is not needed for throughput, but costs the least processor time.",
    test: "one core, queue depth 128: at most half the processor time per I/O of iou+p",
    judge: |view| {
        view.need(USER_SPACE)?;
        view.need("io_uring+p")?;
        let of = |name: &str| Config::new(name, 1).depth(128);
        let what = "processor time per I/O, user space over iou+p";
        let (own, polled) = (of(USER_SPACE), of("io_uring+p"));
        Ok(vec![view.ratio(what, CpuUsPerIo, &own, &polled, AtMost(0.5))?])
    },
};

/// Returns the configuration with the number of threads at which an interface was fastest in the
/// first rounds.
fn best<'a>(view: &View<'a>, name: &str, read_percent: u8) -> Result<&'a Config, String> {
    let mut own = configs(view, "s3-fig6", name);
    own.retain(|config| config.read_percent == read_percent);
    let missing = || own.first().map_or_else(|| view.skipped("s3-fig6"), |one| view.missing(one));
    view.fastest(own.iter().copied()).ok_or_else(missing)
}
