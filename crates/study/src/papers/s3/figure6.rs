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

pub(crate) const ROWS: &[Finding] = &[
    Finding {
        name: "s3-polling-reaches-more",
        source: "S3 Figure 6, section 6",
        experiment: "s3-fig6",
        needs: &[Interface("io_uring+p")],
        claim: "With reads alone, libaio and io_uring with interrupts stop short of what polled io_uring reaches.",
        test: "reads: each, with its best number of threads, at most 0.95 times the IOPS of polled io_uring with its own",
        judge: |view| {
            let best = |name: &str| best(view, name, 100);
            let polled = best("io_uring+p")?;
            let part = |name: &str| {
                let what = format!("IOPS, {name} over polled");
                view.where_usable(name, &what, || {
                    view.chosen_ratio(&what, IosPerS, best(name)?, polled, AtMost(0.95))
                })
            };
            ["libaio", "io_uring"].into_iter().map(part).collect()
        },
    },
    Finding {
        name: "s3-all-reach",
        source: "S3 question 2, section 4.5",
        experiment: "s3-fig6",
        needs: &[Writes],
        claim: "With TPC-C's mix of reads and writes every asynchronous interface reaches what the drives can do, given the cores.",
        test: "44 % writes: each, with its best number of threads, at least 0.95 times the IOPS of the fastest; not where its cores, or those of the \
               fastest, are full",
        judge: |view| {
            let all = all_configs(view, "s3-fig6");
            let mixed = || {
                all.iter().copied().filter(|config| {
                    config.read_percent == TPCC_READ_PERCENT && config.interface != "posix"
                })
            };
            let most = view.fastest(mixed()).ok_or_else(|| view.skipped("s3-fig6"))?;
            if view.report.cores_full(most) {
                return Err(format!("the cores are full before the drives: {most}"));
            }
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
                    let part = view.chosen_ratio(&*what, IosPerS, own, most, AtLeast(0.95))?;
                    // An interface whose cores are full was not given the cores that it needs.
                    Ok(match part.outcome {
                        Outcome::Holds => part,
                        _ if view.report.cores_full(own) => {
                            Evidence::untested(what, "it would need more cores than there are")
                        }
                        _ => part,
                    })
                })
                .collect()
        },
    },
    Finding {
        name: "s3-threads",
        source: "S3 Figure 6",
        experiment: "s3-fig6",
        needs: &[Interface(USER_SPACE), Interface("io_uring+p"), Drives(2), Cores(3)],
        claim: "SPDK needs 3 threads for all of the array, iou+p 16.",
        test: "reads: with the fewest threads with which SPDK has 0.95 times the most IOPS of all, it has them again, and iou+p has at most 0.95 times \
               the most with the most threads under three times as many",
        judge: |view| {
            let mut reads = all_configs(view, "s3-fig6");
            reads.retain(|config| !config.writes());
            let most =
                view.fastest(reads.iter().copied()).ok_or_else(|| view.skipped("s3-fig6"))?;
            let speed = |config: &Config| view.report.first_speed(config).unwrap_or_default();
            let of = |name: &str| {
                let mut own: Vec<&Config> =
                    reads.iter().copied().filter(|config| config.interface == name).collect();
                own.sort_by_key(|config| config.threads);
                own
            };
            let enough = of(USER_SPACE).into_iter().find(|one| speed(one) >= 0.95 * speed(most));
            let few = enough.ok_or("SPDK does not reach the most of all interfaces")?;
            let polled = of("io_uring+p").into_iter().rfind(|one| one.threads < 3 * few.threads);
            let polled = polled.ok_or_else(|| view.skipped("s3-fig6"))?;
            let part = |one: &Config, wanted| {
                let what =
                    format!("IOPS, {} with {} thread(s) over the most", one.interface, one.threads);
                view.chosen_ratio(what, IosPerS, one, most, wanted)
            };
            let mut evidence = vec![part(polled, AtMost(0.95))?];
            if few != most {
                evidence.push(part(few, AtLeast(0.95))?);
            }
            Ok(evidence)
        },
    },
    Finding {
        name: "s3-bypass",
        source: "S3 question 2",
        experiment: "s1-fig2",
        needs: &[Interface(USER_SPACE), Interface("io_uring+p")],
        claim: "Bypassing the kernel is not needed for throughput, but costs the least processor time.",
        test: "one core, queue depth 128: at most half the processor time per I/O of iou+p",
        judge: |view| {
            let of = |name: &str| Config::new(name, 1).depth(128);
            let what = "processor time per I/O, user space over iou+p";
            let (own, polled) = (of(USER_SPACE), of("io_uring+p"));
            Ok(vec![view.ratio(what, CpuUsPerIo, &own, &polled, AtMost(0.5))?])
        },
    },
];

/// Returns the configuration with the number of threads at which an interface was fastest in the
/// first rounds.
fn best<'a>(view: &View<'a>, name: &str, read_percent: u8) -> Result<&'a Config, String> {
    let mut own = configs(view, "s3-fig6", name);
    own.retain(|config| config.read_percent == read_percent);
    let missing = || own.first().map_or_else(|| view.skipped("s3-fig6"), |one| view.missing(one));
    view.fastest(own.iter().copied()).ok_or_else(missing)
}
