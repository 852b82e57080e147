//! S3 Figure 6 and question 2: threads by interface.

use super::DEPTH;
use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s3-fig6",
    figure: "S3 Figures 6 and 11",
    shows: "random reads by threads, for each interface; with 44 % writes where they are allowed",
    found: "SPDK reaches what the drives can do with 3 threads, io_uring polled with 16; libaio and io_uring with interrupts stopped \
            near 10 of 12.5 million reads. With 44 % writes, as of TPC-C, all reach the drives' 6.7 million.",
    needs: "more than one core",
    plan,
}];

/// The percentage of reads in S3's TPC-C workload.
const TPCC_READ_PERCENT: u8 = 56;

fn plan(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Linear), (Metric::CpuUsPerIo, Scale::Linear)];
    let mut plan = Plan::new("threads", Scale::Linear, &shown);
    if lab.cores() < 2 {
        plan = plan.skip("more than one thread: one core only may be used");
    }
    let drives = lab.devices.len() as u32;
    let xs = counts(lab.cores());
    let reads = |name: &str, threads| {
        Config::new(name, lab.cores()).threads(threads).depth(DEPTH).drives(drives, Assignment::All)
    };
    let series = by_interface(lab, &xs, |name, threads| Some(reads(name, threads)));
    let title = format!("all threads on {}", cores_words(lab.cores()));
    plan = plan.group(&title, series);
    if lab.devices.iter().any(|device| !device.may_write) {
        return plan.skip("44 % writes: the devices may not be written");
    }
    let mixed = by_interface(lab, &xs, |name, threads| {
        Some(reads(name, threads).read_percent(TPCC_READ_PERCENT))
    });
    plan.group(&format!("44 % writes, {title}"), mixed)
}

pub(crate) const ROWS: &[Row] = &[
    Tested(Finding {
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
    }),
    Tested(Finding {
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
    }),
    untested(
        "s3-threads",
        "S3 Figure 6",
        "SPDK needs 3 threads for all of the array, iou+p 16.",
        &[SameDrive, PollQueues, Drives, Cores],
    ),
    Tested(Finding {
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
    }),
];

/// Returns the configuration with the number of threads at which an interface was fastest in the
/// first rounds.
fn best<'a>(view: &View<'a>, name: &str, read_percent: u8) -> Result<&'a Config, String> {
    let mut own = configs(view, "s3-fig6", name);
    own.retain(|config| config.read_percent == read_percent);
    let missing = || own.first().map_or_else(|| view.skipped("s3-fig6"), |one| view.missing(one));
    view.fastest(own.iter().copied()).ok_or_else(missing)
}
