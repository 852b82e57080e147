//! The findings of S1.

use super::{Evidence, Finding, Judged, View, all_configs};
use crate::config::{Assignment, Config};
use crate::lab::{LIBAIO_CALLS, USER_SPACE};
use crate::measure::Metric;
use crate::outcome::Threshold;

use Metric::{CpuUsPerIo, HelperCores, IosPerS, P50Us, SubmitShare, SystemCallsPerIo};
use Threshold::{AtLeast, AtMost, Between};

/// The depth of S1's comparisons at load.
const DEEP: u32 = 128;

/// Interfaces without a kernel thread, in the order of S1.
const PLAIN: [&str; 4] = ["libaio", "io_uring", "io_uring+p", USER_SPACE];

pub(super) const USER_SPACE_FIRST: Finding = Finding {
    name: "s1-user-space-first",
    source: "S1 Figure 2",
    experiment: "s1-fig2",
    claim: "The polled user-space driver (SPDK) is fastest, on one core and on two.",
    test: "queue depth 128: at least 1.1 times the IOPS of the fastest interface of the kernel",
    judge: |view| {
        view.need(USER_SPACE)?;
        let part = |cores: u32| {
            let configs = kernel(view, cores);
            let fastest =
                view.fastest(&configs).ok_or("no interface of the kernel was measured")?;
            let what = format!("IOPS on {cores} core(s), times those of {}", fastest.interface);
            let own = at(USER_SPACE, cores);
            view.chosen_ratio(what, IosPerS, &own, fastest, AtLeast(1.1))
        };
        (1..=view.report.cores.min(2)).map(part).collect()
    },
};

pub(super) const ONLY_SPDK_SATURATES: Finding = Finding {
    name: "s1-only-spdk-saturates",
    source: "S1 section 3.1",
    experiment: "s1-fig2",
    claim: "Only SPDK takes one drive to its limit with one core; with every other interface the core is the limit.",
    test: "one core, each at its best depth: SPDK at least 0.95 times the most of any other interface, depth and number of threads; every \
           interface of the kernel at most 0.95 times the most of all",
    judge: |view| {
        view.need(USER_SPACE)?;
        let own = best(view, USER_SPACE, 1, 1)?;
        let all = one_drive(view);
        let most_but = |name: &str, what: &Config| {
            let others = all.iter().copied().filter(|one| one.interface != name && *one != what);
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
        Ok(evidence)
    },
};

pub(super) const K_LATENCY_TWO: Finding = Finding {
    name: "s1-k-latency-two",
    source: "S1 Figure 2d",
    experiment: "s1-fig2",
    claim: "On two cores and up to 200 KIOPS the median latency of iou+k is within 10 % of SPDK's.",
    test: "two cores, the greatest depth at which iou+k has at most 0.65 of SPDK's peak: at most 1.1 times its median latency there",
    judge: |view| {
        let cores = view.two_cores()?;
        let (k, own) = below_peak(view, "io_uring+k", cores, 0.65)?;
        let what = format!("median latency, iou+k over SPDK, depth {}", k.depth);
        Ok(vec![view.chosen_ratio(what, P50Us, &k, &own, AtMost(1.1))?])
    },
};

pub(super) const P_EQUALS_SPDK: Finding = Finding {
    name: "s1-p-equals-spdk",
    source: "S1 Figure 2",
    experiment: "s1-fig2",
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
};

pub(super) const THREE_CORES: Finding = Finding {
    name: "s1-three-cores",
    source: "S1 section 3.1",
    experiment: "s1-fig2",
    claim: "A third core for one drive changes nothing.",
    test: "queue depth 128: each interface 0.95 to 1.05 times the IOPS of two cores",
    judge: |view| {
        if view.report.cores < 3 {
            return Err(format!("there are {} cores", view.report.cores));
        }
        let names = ["libaio", "io_uring", "io_uring+p", "io_uring+k", USER_SPACE];
        each(view, &names, |name| {
            let what = format!("IOPS of {name}, three cores over two");
            view.ratio(what, IosPerS, &at(name, 3), &at(name, 2), Between(0.95, 1.05))
        })
    },
};

pub(super) const U_WORST: Finding = Finding {
    name: "s1-u-worst",
    source: "S1 lesson 2",
    experiment: "s1-fig2",
    claim: "Given the cores, plain io_uring is never better than its polled modes.",
    test: "two cores, queue depth 128: at most the IOPS of iou+p, and of iou+k",
    judge: |view| {
        let cores = view.two_cores()?;
        ["io_uring+p", "io_uring+k"]
            .into_iter()
            .map(|name| {
                view.need(name)?;
                let what = format!("io_uring over {name}");
                view.speed(&what, &at("io_uring", cores), &at(name, cores), AtMost(1.0))
            })
            .collect()
    },
};

pub(super) const KERNEL_THREAD_COLLAPSES: Finding = Finding {
    name: "s1-kernel-thread-collapses",
    source: "S1 Figure 2a",
    experiment: "s1-fig2",
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
};

pub(super) const K_LATENCY_FLAT: Finding = Finding {
    name: "s1-k-latency-flat",
    source: "S1 Figure 2c",
    experiment: "s1-fig2",
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
};

pub(super) const K_CPU_SHARE: Finding = Finding {
    name: "s1-k-cpu-share",
    source: "S1 section 3.1",
    experiment: "s1-fig2",
    claim: "On one core the kernel thread of iou+k takes about half of it.",
    test: "one core, queue depth 128: 0.3 to 0.7 of the core",
    judge: |view| {
        let what = "cores that the kernel's thread kept busy";
        Ok(vec![view.value(what, HelperCores, &at("io_uring+k", 1), Between(0.3, 0.7))?])
    },
};

pub(super) const KERNEL_THREAD_TWO_CORES: Finding = Finding {
    name: "s1-kernel-thread-two-cores",
    source: "S1 Figure 2b",
    experiment: "s1-fig2",
    claim: "Given two cores, iou+k comes closest to SPDK, well ahead of plain io_uring (+43 %).",
    test: "two cores, queue depth 128: at least 1.1 times the IOPS of io_uring; not where the device bounds both",
    judge: |view| {
        let cores = view.two_cores()?;
        let (k, plain) = (at("io_uring+k", cores), at("io_uring", cores));
        let what = "IOPS, iou+k over io_uring, two cores";
        let evidence = view.ratio(what, IosPerS, &k, &plain, AtLeast(1.1))?;
        if view.both_bound(&k, &plain) {
            return Err("the device is the limit of both, which says nothing of them".to_owned());
        }
        Ok(vec![evidence])
    },
};

pub(super) const K_TWICE_CPU: Finding = Finding {
    name: "s1-k-twice-cpu",
    source: "S1 section 3.2, lesson 3",
    experiment: "s1-fig2",
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
};

pub(super) const SECOND_CORE: Finding = Finding {
    name: "s1-second-core",
    source: "S1 Figure 2",
    experiment: "s1-fig2",
    claim: "A second core gives little to the interfaces without a kernel thread: 3 % to SPDK and to libaio.",
    test: "queue depth 128: each at most 1.1 times the IOPS of one core",
    judge: |view| {
        let cores = view.two_cores()?;
        each(view, &PLAIN, |name| {
            let what = format!("IOPS of {name}, two cores over one");
            view.ratio(what, IosPerS, &at(name, cores), &at(name, 1), AtMost(1.1))
        })
    },
};

pub(super) const POLLING_LATENCY: Finding = Finding {
    name: "s1-polling-latency",
    source: "S1 section 3.1",
    experiment: "s1-fig2",
    claim: "Up to queue depth 16 iou+p has less latency than plain io_uring, and at depth 128 as many IOPS or more.",
    test: "one core: at depths 1 and 16 at most 0.95 times the median latency, at 128 at least 1.0 times the IOPS",
    judge: |view| {
        view.need("io_uring+p")?;
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
};

pub(super) const SHALLOW_ALIKE: Finding = Finding {
    name: "s1-shallow-alike",
    source: "S1 Figure 2",
    experiment: "s1-fig2",
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
};

pub(super) const IO_URING_OVER_LIBAIO: Finding = Finding {
    name: "s1-io-uring-over-libaio",
    source: "S1 Figure 2",
    experiment: "s1-fig2",
    claim: "Past queue depth 16 io_uring is ahead of libaio, since it makes fewer system calls: 182 against 151 KIOPS at most.",
    test: "two cores, each at its best depth past 16: at least 1.05 times the IOPS of libaio; I/Os for a second of processor time where \
           the device bounds both",
    judge: |view| {
        let cores = view.report.cores.min(2);
        let (uring, aio) = (best(view, "io_uring", cores, 17)?, best(view, "libaio", cores, 17)?);
        if view.both_bound(&uring, &aio) {
            return Ok(vec![view.speed("io_uring over libaio", &uring, &aio, AtLeast(1.05))?]);
        }
        let what = format!("IOPS, io_uring at {} over libaio at {}", uring.depth, aio.depth);
        Ok(vec![view.chosen_ratio(what, IosPerS, &uring, &aio, AtLeast(1.05))?])
    },
};

pub(super) const HOOK: Finding = Finding {
    name: "s1-hook",
    source: "S1 Figures 2c and 2d",
    experiment: "s1-fig2",
    claim: "Past the depth at which throughput is highest, more depth adds latency and costs a little throughput.",
    test: "one core, the interface of libaio and io_uring that falls most: at the greatest depth at most 0.98 times the IOPS of the best \
           depth, and at least 1.1 times the median latency",
    judge: |view| {
        let fall = |name: &str| {
            let (best, deep) = (best(view, name, 1, 1).ok()?, at(name, 1));
            let ratio = view.report.first_speed(&deep)? / view.report.first_speed(&best)?.max(1e-9);
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
            view.chosen_ratio(format!("latency of {words}"), P50Us, &deep, &best, AtLeast(1.1))?,
        ])
    },
};

pub(super) const LIBAIO_CALLS_TWO: Finding = Finding {
    name: "s1-libaio-calls",
    source: "S1 section 2, Figure 3",
    experiment: "s1-fig3",
    claim: "libaio needs two system calls for an I/O, one to submit and one to ask for its end; io_uring needs fewer.",
    test: "completions asked for by calls: at least 1.8 at queue depth 1; io_uring at most 0.75 times as many at depths 1, 16 and 128",
    judge: |view| {
        let aio = |depth| calls(view, LIBAIO_CALLS, depth);
        let what = "system calls per I/O of libaio at depth 1";
        let mut evidence = vec![view.value(what, SystemCallsPerIo, &aio(1), AtLeast(1.8))?];
        for depth in [1, 16, DEEP] {
            let uring = calls(view, "io_uring", depth);
            let what = format!("system calls, io_uring over libaio, depth {depth}");
            evidence.push(view.ratio(what, SystemCallsPerIo, &uring, &aio(depth), AtMost(0.75))?);
        }
        Ok(evidence)
    },
};

pub(super) const POLLING_CALLS: Finding = Finding {
    name: "s1-polling-calls",
    source: "S1 section 3.1, Figure 3",
    experiment: "s1-fig3",
    claim: "Up to queue depth 16 plain io_uring makes fewer system calls than its polled mode: the interrupt's delay batches.",
    test: "at depths 1, 4 and 16 at most as many per I/O, and at 16 at most 0.95 times as many",
    judge: |view| {
        view.need("io_uring+p")?;
        [(1, 1.0), (4, 1.0), (16, 0.95)]
            .into_iter()
            .map(|(depth, most)| {
                let (plain, polled) =
                    (calls(view, "io_uring", depth), calls(view, "io_uring+p", depth));
                let what = format!("system calls, io_uring over iou+p, depth {depth}");
                view.ratio(what, SystemCallsPerIo, &plain, &polled, AtMost(most))
            })
            .collect()
    },
};

pub(super) const IO_URING_CALLS: Finding = Finding {
    name: "s1-io-uring-calls",
    source: "S1 section 3.1, Figure 3",
    experiment: "s1-fig3",
    claim: "At depth, io_uring makes about one system call for an I/O, polled or not.",
    test: "one request a call, queue depths 64 and 128: 0.8 to 1.1",
    judge: |view| {
        let mut evidence = Vec::new();
        for depth in [64, DEEP] {
            evidence.extend(each(view, &["io_uring", "io_uring+p"], |name| {
                let what = format!("system calls per I/O of {name} at depth {depth}");
                view.value(what, SystemCallsPerIo, &calls(view, name, depth), Between(0.8, 1.1))
            })?);
        }
        Ok(evidence)
    },
};

pub(super) const KERNEL_THREAD_CALLS: Finding = Finding {
    name: "s1-kernel-thread-calls",
    source: "S1 Figure 3",
    experiment: "s1-fig3",
    claim: "With a kernel thread, and with SPDK, I/O needs no system call.",
    test: "queue depths 1, 16 and 128: at most 0.01 per I/O",
    judge: |view| {
        let mut evidence = Vec::new();
        for depth in [1, 16, DEEP] {
            evidence.extend(each(view, &["io_uring+k", USER_SPACE], |name| {
                let what = format!("system calls per I/O of {name} at depth {depth}");
                view.value(what, SystemCallsPerIo, &calls(view, name, depth), AtMost(0.01))
            })?);
        }
        Ok(evidence)
    },
};

pub(super) const LIBAIO_BUFFERED: Finding = Finding {
    name: "s1-libaio-buffered",
    source: "S1 section 2",
    experiment: "s3-cache",
    claim: "libaio is asynchronous for unbuffered files only; with the page cache in between, submitting blocks.",
    test: "page cache empty at first, queue depth 1: submitting takes at least 0.8 of an I/O's time",
    judge: |view| {
        let config = Config::new("libaio", view.report.cores.min(2)).cached();
        Ok(vec![view.value(
            "submission's share of an I/O's time",
            SubmitShare,
            &config,
            AtLeast(0.8),
        )?])
    },
};

pub(super) const MORE_CORES: Finding = Finding {
    name: "s1-more-cores",
    source: "S1 Figure 4",
    experiment: "s1-fig4",
    claim: "Only iou+k gains clearly from more cores than drives; it needs two for each.",
    test: "from as many cores as drives to the most measured: iou+k at least 1.25 times the IOPS, the others at most 1.1 times",
    judge: |view| {
        let drives = view.need_drives("s1-fig4")?.min(5);
        let (fewest, most) = (drives, (2 * drives).min(view.report.cores));
        if most <= fewest {
            return Err(format!("{drives} drives and {} cores", view.report.cores));
        }
        let part = |name: &str, wanted| {
            let what = format!("IOPS of {name}, {most} cores over {fewest}");
            let (above, below) = (array(name, most, drives), array(name, fewest, drives));
            view.ratio(what, IosPerS, &above, &below, wanted)
        };
        let mut evidence = vec![part("io_uring+k", AtLeast(1.25))?];
        evidence.extend(each(view, &PLAIN, |name| part(name, AtMost(1.1)))?);
        Ok(evidence)
    },
};

pub(super) const TOO_FEW_CORES: Finding = Finding {
    name: "s1-too-few-cores",
    source: "S1 Figure 5",
    experiment: "s1-fig5",
    claim: "With less than 1.5 cores for each drive iou+k falls behind io_uring, and with one it has half of the others' throughput.",
    test: "at the fewest drives with at most 1.43 cores each at most 0.9 times the IOPS of io_uring; with at most 1 core each at most \
           0.65 times those of io_uring, and of libaio",
    judge: |view| {
        let drives = view.need_drives("s1-fig5")?;
        let cores = view.report.cores;
        let of = |name: &str, drives: u32| array(name, (2 * drives).min(cores), drives);
        let measured = |most: f64| {
            (1..=drives).find(|n| {
                f64::from((2 * n).min(cores)) / f64::from(*n) <= most
                    && view.report.point(&of("io_uring", *n)).is_some()
            })
        };
        let part = |drives: u32, other: &str, most| {
            let what = format!("IOPS, iou+k over {other}, {drives} drives on {cores} cores");
            view.ratio(what, IosPerS, &of("io_uring+k", drives), &of(other, drives), AtMost(most))
        };
        let Some(few) = measured(1.43) else {
            return Err(format!("{cores} cores are enough for {drives} drives"));
        };
        let mut evidence = vec![part(few, "io_uring", 0.9)?];
        if let Some(one) = measured(1.0) {
            evidence.extend([part(one, "io_uring", 0.65)?, part(one, "libaio", 0.65)?]);
        }
        Ok(evidence)
    },
};

pub(super) const CHOICE: Finding = Finding {
    name: "s1-choice",
    source: "S1, lessons",
    experiment: "s1-fig2",
    claim: "Which interface of the kernel is best depends on the cores there are for each drive.",
    test: "queue depth 128, chosen and judged in different rounds: on two cores, another interface of the kernel than the fastest of one \
           core has at least 1.05 times its IOPS",
    judge: |view| {
        let cores = view.two_cores()?;
        let on_one = kernel(view, 1);
        let first = view.fastest(&on_one).ok_or_else(|| view.skipped("s1-fig2"))?;
        let mut on_two = kernel(view, cores);
        on_two.retain(|config| config.interface != first.interface);
        let other = view.fastest(&on_two).ok_or("one interface of the kernel only was measured")?;
        let same = at(&first.interface, cores);
        let words = format!("{} over {}, the fastest on one", other.interface, first.interface);
        let what = format!("IOPS on two cores, {words}");
        Ok(vec![view.chosen_ratio(what, IosPerS, other, &same, AtLeast(1.05))?])
    },
};

fn at(interface: &str, cores: u32) -> Config {
    Config::new(interface, cores).depth(DEEP)
}

/// Returns a configuration with one thread for each of several drives.
fn array(interface: &str, cores: u32, drives: u32) -> Config {
    at(interface, cores).threads(drives).drives(drives, Assignment::Own)
}

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
    all.retain(|one| one.interface == USER_SPACE || super::is_kernel_s(&one.interface));
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

/// Returns the point at which system calls are counted: on two cores, or on one if there is only
/// one.
fn calls(view: &View<'_>, interface: &str, depth: u32) -> Config {
    Config::new(interface, view.report.cores.min(2)).depth(depth)
}

/// Returns every usable kernel interface at the depth of S1's comparisons.
fn kernel(view: &View<'_>, cores: u32) -> Vec<Config> {
    view.kernel_interfaces().map(|name| at(name, cores)).collect()
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

/// Collects evidence for each interface that can be used.
fn each(
    view: &View<'_>,
    names: &[&str],
    part: impl Fn(&str) -> Result<Evidence, String>,
) -> Judged {
    let usable: Vec<&&str> = names.iter().filter(|name| view.has(name)).collect();
    match usable.is_empty() {
        true => Err(names
            .iter()
            .map(|name| view.need(name).err().unwrap_or_default())
            .collect::<Vec<_>>()
            .join("; ")),
        false => usable.into_iter().map(|name| part(name)).collect(),
    }
}
