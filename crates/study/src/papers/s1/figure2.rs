//! S1 Figure 2: one thread by queue depth, on one core and on two.

use super::{DEEP, K, PLAIN, at, depths, each, kernel};
use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s1-fig2",
    figure: "S1 Figure 2",
    shows: "IOPS and median latency of one thread by queue depth, on one core and on two",
    found: "On one core io_uring with a kernel thread (iou+k) fell to 13 KIOPS and 8 ms where the best mode of io_uring had 171 KIOPS; on \
            two cores it had 260 KIOPS, 17 % under SPDK, with io_uring at 182 and libaio at 150.",
    needs: "two cores for the second half",
    plan,
}];

fn plan(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Linear), (Metric::P50Us, Scale::Log)];
    let mut plan = Plan::new("queue depth", Scale::Log, &shown);
    for cores in [1, 2] {
        if cores > lab.cores() {
            plan = plan.skip("two cores: one only may be used");
            continue;
        }
        let series = by_interface(lab, depths(lab), |name, depth| {
            Some(lab.mix.of(Config::new(name, cores).depth(depth)))
        });
        plan = plan.group(&cores_words(cores), series);
    }
    if lab.cores() > 2 {
        let series = by_interface(lab, &[16, 128], |name, depth| {
            Some(lab.mix.of(Config::new(name, 3).depth(depth)))
        });
        plan = plan.group(&cores_words(3), series);
    }
    plan.remark(
        "Threads are confined by affinity, the kernel's submission thread with them. The drive's interrupts go where the \
         machine sends them.",
    )
}

pub(crate) const ROWS: &[Finding] = &[
    Finding {
        name: "s1-only-spdk-saturates",
        source: "S1 section 3.1",
        experiment: "s1-fig2",
        needs: &[Interface(USER_SPACE)],
        claim: "Only SPDK takes one drive to its limit with one core; with every other interface the core is the limit.",
        test: "one core, each at its best depth: SPDK at least 0.95 times the most of any other interface, depth and number of threads; every \
               interface of the kernel at most 0.95 times the most of all",
        judge: |view| {
            let own = best(view, USER_SPACE, 1, 1)?;
            let all = one_drive(view);
            let most_but = |name: &str, what: &Config| {
                let others =
                    all.iter().copied().filter(|one| one.interface != name && *one != what);
                view.fastest(others).ok_or_else(|| view.skipped("s1-fig2"))
            };
            let part = |one: &Config, most: &Config, wanted| {
                let what = format!("IOPS, {} on one core over {most}", one.interface);
                view.chosen_ratio(what, IosPerS, one, most, wanted)
            };
            let mut evidence = vec![part(&own, most_but(USER_SPACE, &own)?, AtLeast(0.95))?];
            for name in view.kernel_interfaces() {
                let one = best(view, name, 1, 1)?;
                evidence.push(part(&one, most_but(name, &one)?, AtMost(0.95))?);
            }
            let unusable =
                ["libaio", "io_uring", "io_uring+p", K].map(|name| (name, view.need(name)));
            let unusable = unusable.into_iter().filter_map(|(name, needed)| {
                Some(Evidence::untested(format!("IOPS, {name}"), needed.err()?))
            });
            evidence.extend(unusable);
            Ok(evidence)
        },
    },
    Finding {
        name: "s1-user-space-first",
        source: "S1 Figure 2",
        experiment: "s1-fig2",
        needs: &[Interface(USER_SPACE)],
        claim: "The polled user-space driver (SPDK) is fastest, on one core and on two.",
        test: "queue depth 128: at least 1.1 times the IOPS of the fastest interface of the kernel",
        judge: |view| {
            let part = |cores: u32| {
                let configs = kernel(view, cores);
                let fastest =
                    view.fastest(&configs).ok_or("no interface of the kernel was measured")?;
                let what = format!("IOPS on {cores} core(s), times those of {}", fastest.interface);
                let own = at(USER_SPACE, cores);
                view.chosen_ratio(what, IosPerS, &own, fastest, AtLeast(1.1))
            };
            let two = match view.two_cores() {
                Ok(cores) => part(cores)?,
                Err(why) => Evidence::untested("IOPS on 2 cores", why),
            };
            Ok(vec![part(1)?, two])
        },
    },
    Finding {
        name: "s1-kernel-thread-collapses",
        source: "S1 Figure 2a",
        experiment: "s1-fig2",
        needs: &[Interface(K)],
        claim: "On one core iou+k collapses to a tenth of the others' throughput: thread and kernel thread take turns.",
        test: "one core, queue depth 128: at most half the IOPS of io_uring, and of libaio",
        judge: |view| {
            ["io_uring", "libaio"]
                .into_iter()
                .map(|name| {
                    let what = format!("IOPS, iou+k over {name}, one core");
                    view.ratio(what, IosPerS, &at("io_uring+k", 1), &at(name, 1), AtMost(0.5))
                })
                .collect()
        },
    },
    Finding {
        name: "s1-k-latency-flat",
        source: "S1 Figure 2c",
        experiment: "s1-fig2",
        needs: &[Interface(K)],
        claim: "On one core the median latency of iou+k is the same 8 ms at any load, ten to a hundred times the others'.",
        test: "one core: at queue depth 128 at most 2 times the median latency of depth 1, and there at least 10 times that of io_uring",
        judge: |view| {
            let (shallow, deep) = (Config::new("io_uring+k", 1), at("io_uring+k", 1));
            let plain = Config::new("io_uring", 1);
            Ok(vec![
                view.ratio("latency, depth 128 over 1", P50Us, &deep, &shallow, AtMost(2.0))?,
                view.ratio(
                    "latency at depth 1 over io_uring's",
                    P50Us,
                    &shallow,
                    &plain,
                    AtLeast(10.0),
                )?,
            ])
        },
    },
    Finding {
        name: "s1-k-cpu-share",
        source: "S1 section 3.1",
        experiment: "s1-fig2",
        needs: &[Interface(K)],
        claim: "On one core the kernel thread of iou+k takes about half of it.",
        test: "one core, queue depth 128: 0.3 to 0.7 of the core",
        judge: |view| {
            let what = "cores that the kernel's thread kept busy";
            Ok(vec![view.value(what, HelperCores, &at("io_uring+k", 1), Between(0.3, 0.7))?])
        },
    },
    Finding {
        name: "s1-kernel-thread-two-cores",
        source: "S1 Figure 2b",
        experiment: "s1-fig2",
        needs: &[Cores(2), Interface(K)],
        claim: "Given two cores, iou+k comes closest to SPDK, well ahead of plain io_uring (+43 %).",
        test: "two cores, queue depth 128: at least 1.1 times the IOPS of io_uring; not where the device bounds both",
        judge: |view| {
            let cores = view.two_cores()?;
            let (k, plain) = (at("io_uring+k", cores), at("io_uring", cores));
            let what = "IOPS, iou+k over io_uring, two cores";
            let evidence = view.ratio(what, IosPerS, &k, &plain, AtLeast(1.1))?;
            if view.both_bound(&k, &plain) {
                return Err(
                    "the device is the limit of both, which says nothing of them".to_owned()
                );
            }
            Ok(vec![evidence])
        },
    },
    Finding {
        name: "s1-k-twice-cpu",
        source: "S1 section 3.2, lesson 3",
        experiment: "s1-fig2",
        needs: &[Cores(2), Interface(K)],
        claim: "iou+k pays for its speed with two threads that poll, and so with twice the cores.",
        test: "two cores, queue depth 128: at least 1.5 times the processor time per I/O of io_uring",
        judge: |view| {
            let cores = view.two_cores()?;
            let (k, plain) = (at("io_uring+k", cores), at("io_uring", cores));
            Ok(vec![view.ratio(
                "CPU per I/O, iou+k over io_uring",
                CpuUsPerIo,
                &k,
                &plain,
                AtLeast(1.5),
            )?])
        },
    },
    Finding {
        name: "s1-k-latency-two",
        source: "S1 Figure 2d",
        experiment: "s1-fig2",
        needs: &[Cores(2), Interface(K), Interface(USER_SPACE)],
        claim: "On two cores and up to 200 KIOPS the median latency of iou+k is within 10 % of SPDK's.",
        test: "two cores, the greatest depth at which iou+k has at most 0.65 of SPDK's peak: at most 1.1 times its median latency there",
        judge: |view| {
            let cores = view.two_cores()?;
            let (k, own) = below_peak(view, "io_uring+k", cores, 0.65)?;
            let what = format!("median latency, iou+k over SPDK, depth {}", k.depth);
            Ok(vec![view.chosen_ratio(what, P50Us, &k, &own, AtMost(1.1))?])
        },
    },
    Finding {
        name: "s1-second-core",
        source: "S1 Figure 2",
        experiment: "s1-fig2",
        needs: &[Cores(2)],
        claim: "A second core gives little to the interfaces without a kernel thread: 3 % to SPDK and to libaio.",
        test: "queue depth 128: each at most 1.1 times the IOPS of one core",
        judge: |view| {
            let cores = view.two_cores()?;
            each(view, &PLAIN, |name| {
                let what = format!("IOPS of {name}, two cores over one");
                view.ratio(what, IosPerS, &at(name, cores), &at(name, 1), AtMost(1.1))
            })
        },
    },
    Finding {
        name: "s1-three-cores",
        source: "S1 section 3.1",
        experiment: "s1-fig2",
        needs: &[Cores(3)],
        claim: "A third core for one drive changes nothing.",
        test: "queue depth 128: each interface 0.95 to 1.05 times the IOPS of two cores",
        judge: |view| {
            let names = ["libaio", "io_uring", "io_uring+p", K, USER_SPACE];
            each(view, &names, |name| {
                let what = format!("IOPS of {name}, three cores over two");
                view.ratio(what, IosPerS, &at(name, 3), &at(name, 2), Between(0.95, 1.05))
            })
        },
    },
    Finding {
        name: "s1-p-equals-spdk",
        source: "S1 Figure 2",
        experiment: "s1-fig2",
        needs: &[Interface("io_uring+p"), Interface(USER_SPACE)],
        claim: "iou+p is as good as SPDK up to about 150 KIOPS; beyond, its system calls bind it.",
        test: "one core: at the greatest depth at which iou+p has at most half of SPDK's peak at most 1.1 times its median latency, at 128 at \
               most 0.9 times its IOPS",
        judge: |view| {
            let (p, own) = below_peak(view, "io_uring+p", 1, 0.5)?;
            let what = format!("median latency, iou+p over SPDK, depth {}", p.depth);
            let deep = (at("io_uring+p", 1), at(USER_SPACE, 1));
            Ok(vec![
                view.chosen_ratio(what, P50Us, &p, &own, AtMost(1.1))?,
                view.ratio("IOPS at depth 128", IosPerS, &deep.0, &deep.1, AtMost(0.9))?,
            ])
        },
    },
    Finding {
        name: "s1-polling-latency",
        source: "S1 section 3.1",
        experiment: "s1-fig2",
        needs: &[Interface("io_uring+p"), Interface("io_uring")],
        claim: "Up to queue depth 16 iou+p has less latency than plain io_uring, and at depth 128 as many IOPS or more.",
        test: "one core: at depths 1 and 16 at most 0.95 times the median latency, at 128 at least 1.0 times the IOPS",
        judge: |view| {
            let of = |name: &str, depth| Config::new(name, 1).depth(depth);
            let mut evidence = [1, 16]
                .into_iter()
                .map(|depth| {
                    let (polled, plain) = (of("io_uring+p", depth), of("io_uring", depth));
                    let what = format!("median latency at depth {depth}, iou+p over io_uring");
                    view.ratio(what, P50Us, &polled, &plain, AtMost(0.95))
                })
                .collect::<Result<Vec<_>, _>>()?;
            let (polled, plain) = (of("io_uring+p", DEEP), of("io_uring", DEEP));
            evidence.push(view.speed(
                "iou+p over io_uring, depth 128",
                &polled,
                &plain,
                AtLeast(1.0),
            )?);
            Ok(evidence)
        },
    },
    Finding {
        name: "s1-shallow-alike",
        source: "S1 Figure 2",
        experiment: "s1-fig2",
        needs: &[Interface("io_uring"), Interface("libaio")],
        claim: "Up to queue depth 16 io_uring and libaio are alike in IOPS and latency.",
        test: "one core, depths 1 and 16: 0.9 to 1.15 times the IOPS of libaio, 0.9 to 1.1 times its median latency",
        judge: |view| {
            let mut evidence = Vec::new();
            for depth in [1, 16] {
                let (uring, aio) = (at("io_uring", 1).depth(depth), at("libaio", 1).depth(depth));
                let what = format!("IOPS at depth {depth}, io_uring over libaio");
                evidence.push(view.ratio(what, IosPerS, &uring, &aio, Between(0.9, 1.15))?);
                let what = format!("median latency at depth {depth}, the same");
                evidence.push(view.ratio(what, P50Us, &uring, &aio, Between(0.9, 1.1))?);
            }
            Ok(evidence)
        },
    },
    Finding {
        name: "s1-io-uring-over-libaio",
        source: "S1 Figure 2",
        experiment: "s1-fig2",
        needs: &[Interface("io_uring"), Interface("libaio")],
        claim: "Past queue depth 16 io_uring is ahead of libaio, since it makes fewer system calls: 182 against 151 KIOPS at most.",
        test: "two cores, each at its best depth past 16: at least 1.05 times the IOPS of libaio; I/Os for a second of processor time where \
               the device bounds both",
        judge: |view| {
            let cores = view.report.cores.min(2);
            let (uring, aio) =
                (best(view, "io_uring", cores, 17)?, best(view, "libaio", cores, 17)?);
            if view.both_bound(&uring, &aio) {
                return Ok(vec![view.speed(
                    "io_uring over libaio",
                    &uring,
                    &aio,
                    AtLeast(1.05),
                )?]);
            }
            let what = format!("IOPS, io_uring at {} over libaio at {}", uring.depth, aio.depth);
            Ok(vec![view.chosen_ratio(what, IosPerS, &uring, &aio, AtLeast(1.05))?])
        },
    },
    Finding {
        name: "s1-hook",
        source: "S1 Figures 2c and 2d",
        experiment: "s1-fig2",
        needs: &[],
        claim: "Past the depth at which throughput is highest, more depth adds latency and costs a little throughput.",
        test: "one core, the interface of libaio and io_uring that falls most: at the greatest depth at most 0.98 times the IOPS of the best \
               depth, and at least 1.1 times the median latency",
        judge: |view| {
            let fall = |name: &str| {
                let (best, deep) = (best(view, name, 1, 1).ok()?, at(name, 1));
                let ratio =
                    view.report.first_speed(&deep)? / view.report.first_speed(&best)?.max(1e-9);
                (best != deep).then_some((ratio, best, deep))
            };
            let falls = ["libaio", "io_uring"].into_iter().filter_map(fall);
            let Some((_, best, deep)) = falls.min_by(|a, b| a.0.total_cmp(&b.0)) else {
                return Err(
                    "throughput was highest at the greatest depth, or was not measured".to_owned()
                );
            };
            let words = format!("{}, depth {} over {}", deep.interface, deep.depth, best.depth);
            Ok(vec![
                view.chosen_ratio(format!("IOPS of {words}"), IosPerS, &deep, &best, AtMost(0.98))?,
                view.chosen_ratio(
                    format!("latency of {words}"),
                    P50Us,
                    &deep,
                    &best,
                    AtLeast(1.1),
                )?,
            ])
        },
    },
    Finding {
        name: "s1-cache-misses",
        source: "S1 section 3.1",
        experiment: "s1-fig2",
        needs: &[Interface(USER_SPACE), Interface("io_uring+p"), Counters],
        claim: "At the same IOPS iou+p misses the processor's caches more often than SPDK, 5 against 0.6 %.",
        test: "two cores, queue depth 16: at least twice the share of cache references that miss",
        judge: |view| {
            let cores = view.report.cores.min(2);
            let of = |name: &str| Config::new(name, cores).depth(16);
            let what = "cache misses per reference, iou+p over SPDK";
            let (polled, own) = (of("io_uring+p"), of(USER_SPACE));
            Ok(vec![
                view.ratio(what, CacheMissShare, &polled, &own, AtLeast(2.0))?,
                view.ratio_told("IOPS, the same", IosPerS, &polled, &own)?,
            ])
        },
    },
];

/// Returns all configurations that read 4 KiB of the first drive at full speed.
fn one_drive<'a>(view: &View<'a>) -> Vec<&'a Config> {
    let plain = |one: &&Config| {
        **one == Config::new(&*one.interface, one.cores).threads(one.threads).depth(one.depth)
    };
    let mut all: Vec<&Config> = ["s1-fig2", "s4-sync", "s4-outstanding"]
        .into_iter()
        .flat_map(|experiment| all_configs(view, experiment))
        .filter(plain)
        .collect();
    all.retain(|one| one.interface == USER_SPACE || is_kernel_s(&one.interface));
    all
}

/// Returns an interface at the greatest depth at which it reaches at most a share of the user-space
/// driver's peak, and the user-space driver at that depth.
fn below_peak(
    view: &View<'_>,
    name: &str,
    cores: u32,
    share: f64,
) -> Result<(Config, Config), String> {
    view.need(USER_SPACE)?;
    view.need(name)?;
    let speed = |config: &Config| view.report.first_speed(config);
    let peak = speed(&best(view, USER_SPACE, cores, 1)?).unwrap_or_default();
    let of = |name: &str, depth| Config::new(name, cores).depth(depth);
    let fits = |depth: &u32| speed(&of(name, *depth)).is_some_and(|here| here <= share * peak);
    let depth = (1..=DEEP)
        .rev()
        .find(fits)
        .ok_or_else(|| format!("{name} has more than {share} of SPDK's peak at every depth"))?;
    Ok((of(name, depth), of(USER_SPACE, depth)))
}

/// Returns the depth, `from` or more, at which an interface was fastest in the first rounds.
fn best(view: &View<'_>, interface: &str, cores: u32, from: u32) -> Result<Config, String> {
    let point = |depth: &u32| Config::new(interface, cores).depth(*depth);
    let depths: Vec<Config> = (from..=DEEP)
        .filter(|depth| view.report.point(&point(depth)).is_some())
        .map(|depth| point(&depth))
        .collect();
    view.fastest(&depths).cloned().ok_or_else(|| view.missing(&at(interface, cores)))
}
