//! S3 Figure 15, sections 3.4 and 4.5: the engine over each interface.

use super::{FITS, NOT_QUICK, TEN, store_plan, user_space, user_space_ratio};
use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "s3-poll",
        figure: "S3 section 4.5, polling",
        shows: "a search for completions by the user-space driver with nothing in flight, and a system call that does nothing",
        found: "SPDK needs about 80 ns to find out that nothing has completed.",
        needs: "nothing",
        plan: poll,
    },
    Experiment {
        name: "s3-fig15",
        figure: "S3 Figure 15, sections 3.4 and 4.5",
        shows: "lookups of a store by workers, over each interface, with ten times more data than memory, and with all in memory",
        found: "In the engine io_uring was 2 % slower than libaio; its kernel thread took cores from the workers.",
        needs: "the study's own file, or devices that may be written",
        plan,
    },
];

fn poll(_: &Lab) -> Plan {
    let plan = Plan::new("threads", Scale::Linear, &[(Metric::CpuUsPerIo, Scale::Log)]);
    let of = |label: &str, name: &str| series(label, [1], |_| Some(Config::new(name, 1)));
    plan.group("", vec![of("an empty poll", EMPTY_POLL), of("a system call", BARE_CALL)])
}

fn plan(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Log), (Metric::CpuUsPerIo, Scale::Log)];
    store_plan(lab, Plan::new("workers", Scale::Linear, &shown), |mut plan, _| {
        let few = lab.effort == Effort::Quick;
        let workers: Vec<u32> = [1, 2].into_iter().filter(|n| *n <= lab.cores()).collect();
        let names = KERNEL.into_iter().chain([USER_SPACE]);
        let names: Vec<&str> = names.filter(|name| lab.has(name)).collect();
        let model = lab.means.user_space_store().filter(|_| lab.means.user_space_store_is_model());
        for (title, percent) in [("data ten times the memory", TEN), ("data in memory", FITS)] {
            let of = StoreUse { data_percent: percent, ..StoreUse::new(StoreWork::Lookup) };
            let names = names.iter();
            // With the data in memory there is no I/O, so the interfaces do not differ.
            let names = names.filter(|name| percent == TEN || **name == "io_uring");
            let most = lab.cores().min(2);
            let wanted = |n: &u32| !few || percent == FITS || *n == most;
            let workers = workers.iter().copied().filter(wanted);
            let of = |name: &str| series(name, workers.clone(), |n| Some(of.on(name, n)));
            plan = plan.group(title, names.map(|name| of(name)).collect());
            if let Some(model) = model.filter(|_| percent == TEN) {
                plan = plan.group(&format!("a model of a drive, {title}"), vec![of(model)]);
            }
        }
        let most = lab.cores().min(2);
        let threads = submission_threads(lab).into_iter();
        let of = |(label, name): (&str, String)| {
            series(label, [most], |n| Some(StoreUse::new(Lookup).on(&name, n)))
        };
        plan = plan
            .group("submission threads of io_uring+k, data ten times", threads.map(of).collect());
        if let Some(model) = model {
            plan = plan.remark(format!(
                "The user-space driver has no drive of its own here, so its series is over {model}, a drive made of software in this process, with the \
                 times of a flash drive. What that drive does takes the workers' processors, and counts as the driver's time. Throughputs \
                 of the model and of the devices are not to be set against each other; processor times are."
            ));
        }
        if few {
            return plan.skip(NOT_QUICK);
        }
        let of = |name: &str| series(name, [most], |n| Some(StoreUse::new(Tpcc).on(name, n)));
        match lab.means.user_space_store() {
            None => plan.skip(Stores(USER_SPACE).lacking(&lab.here()).unwrap_or_default()),
            Some(_) => {
                plan = plan.group("TPC-C", names.iter().map(|name| of(name)).collect());
                plan.group("a model of a drive, TPC-C", model.into_iter().map(of).collect())
            }
        }
    })
}

/// The kernel's interfaces that stores are run over.
const KERNEL: [&str; 6] =
    ["libaio", "io_uring", "io_uring+p", "io_uring+k", "io_uring_cmd", "io_uring_cmd+p"];

/// Returns the settings of the kernel's submission thread that are compared, each with a
/// description; none where there is no such thread.
fn submission_threads(lab: &Lab) -> Vec<(&'static str, String)> {
    let Some(last) = lab.cpus.last().filter(|_| lab.has("io_uring+k")) else { return Vec::new() };
    let of = |switches: &str| match switches {
        "" => "io_uring+k".to_owned(),
        _ => format!("io_uring+k:{switches}"),
    };
    vec![
        ("a thread for each worker", of("")),
        ("one thread for all (ATTACH_WQ)", of("shared=on")),
        ("a thread for each worker, on one core (SQ_AFF)", of(&format!("cpu={last}"))),
        ("one thread for all, on one core", of(&format!("cpu={last},shared=on"))),
    ]
}

pub(crate) const ROWS: &[Finding] = &[
    Finding {
        name: "s3-cycles",
        source: "S3 section 2.5",
        experiment: "s3-fig15",
        needs: &[Stores(STORE_KERNEL), Interface("io_uring")],
        claim: "At the array's full rate there are 13,000 cycles for an I/O, and the kernel takes half of them.",
        test: "io_uring, two cores, lookups with ten times more data than memory: the kernel's share of the processor time 0.3 to 0.7",
        judge: |view| {
            let engine = lookups(view, "io_uring");
            let what = "the kernel's share of the processor time of lookups";
            Ok(vec![
                view.value(what, KernelShare, &engine, Between(0.3, 0.7))?,
                view.told("us of processor time for a lookup", CpuUsPerIo, &engine)?,
            ])
        },
    },
    Finding {
        name: "s3-sqpoll",
        source: "S3 sections 3.4 and 4.5",
        experiment: "s3-fig15",
        needs: &[Stores(STORE_KERNEL), Interface("io_uring+k")],
        claim: "In a storage engine the kernel thread of iou+k lowers throughput and efficiency: it takes cores from the workers, \
                also as one thread for all rings (ATTACH_WQ) and with a core of its own (SQ_AFF).",
        test: "lookups, as many workers as cores, two at most: iou+k at most the throughput of io_uring, with a thread for each worker and with one for \
               all, on any core and on one; with a thread for each worker at least its processor time",
        judge: |view| {
            let (k, plain) = (lookups(view, "io_uring+k"), lookups(view, "io_uring"));
            let what = "processor time, iou+k over io_uring";
            let mut evidence = vec![view.ratio(what, CpuUsPerIo, &k, &plain, AtLeast(1.0))?];
            let all = all_configs(view, "s3-fig15");
            let is_lookup = |one: &&&Config| one.store == k.store && one.threads == k.threads;
            let is_thread = |one: &&&Config| one.interface.starts_with("io_uring+k");
            let mut threads: Vec<&&Config> =
                all.iter().filter(is_lookup).filter(is_thread).collect();
            // Two groups show the thread for each worker.
            let mut known = std::collections::HashSet::new();
            threads.retain(|one| known.insert(one.interface.clone()));
            for one in threads {
                let what = format!("lookups a second, {} over io_uring", one.interface);
                evidence.push(view.ratio(what, IosPerS, one, &plain, AtMost(1.0))?);
            }
            Ok(evidence)
        },
    },
    Finding {
        name: "s3-polled-engine",
        source: "S3 section 4.3",
        experiment: "s3-fig15",
        needs: &[Stores(USER_SPACE), Interface("io_uring+p")],
        claim: "With iou+p the engine has the same TPC-C throughput as with SPDK, and 8 % fewer lookups.",
        test: "as many workers as cores, two at most: iou+p 0.95 to 1.05 times the transactions of SPDK, and 0.85 to 1.0 times the lookups; on a model, \
               those for a second of processor time",
        judge: |view| {
            let part = |work, words: &str, wanted| {
                let of = |name| StoreUse::new(work).on(name, view.report.cores.min(2));
                let what = format!("{words}, iou+p over SPDK");
                let pair = (&of("io_uring+p"), &of(user_space(view)?));
                user_space_ratio(view, what, pair, wanted, false)
            };
            Ok(vec![
                part(Tpcc, "transactions", Between(0.95, 1.05))?,
                part(Lookup, "lookups", Between(0.85, 1.0))?,
            ])
        },
    },
    Finding {
        name: "s3-few-cores",
        source: "S3 Figure 15",
        experiment: "s3-fig15",
        needs: &[Stores(USER_SPACE), Cores(2)],
        claim: "On few cores SPDK gives the engine 60 to 80 % more lookups than the kernel's interfaces; less with more cores.",
        test: "one worker: at least 1.3 times the lookups of the fastest interface of the kernel; two workers: at most the lead of one; on a model, \
               lookups for a second of processor time",
        judge: |view| {
            let lead = |workers, wanted| {
                let of = |name: &str| StoreUse::new(Lookup).on(name, workers);
                let kernel: Vec<Config> = view.kernel_interfaces().map(of).collect();
                let best = view.fastest(&kernel).ok_or_else(|| view.skipped("s3-fig15"))?;
                let plural = if workers == 1 { "" } else { "s" };
                let what = format!(
                    "lookups of {workers} worker{plural}, user space over {}",
                    best.interface
                );
                user_space_ratio(view, what, (&of(user_space(view)?), best), wanted, true)
            };
            let one = lead(1, AtLeast(1.3))?;
            let two = lead(2, AtMost(one.mid))?;
            Ok(vec![one, two])
        },
    },
    Finding {
        name: "s3-uring-libaio",
        source: "S3 section 4.5",
        experiment: "s3-fig15",
        needs: &[Stores(STORE_KERNEL), Interface("io_uring"), Interface("libaio")],
        claim: "In the engine io_uring is 2 % slower than libaio, and iou+p 5 to 8 % faster.",
        test: "lookups for a second of processor time: io_uring 0.93 to 1.0 times those of libaio; iou+p at least 1.02 times",
        judge: |view| {
            let aio = lookups(view, "libaio");
            let part = |name: &str, wanted| {
                let what = format!("lookups for a second of processor time, {name} over libaio");
                view.ratio(what, IosPerCpuS, &lookups(view, name), &aio, wanted)
            };
            let polled = view.where_usable("io_uring+p", "lookups over iou+p", || {
                part("io_uring+p", AtLeast(1.02))
            })?;
            Ok(vec![part("io_uring", Between(0.93, 1.0))?, polled])
        },
    },
    Finding {
        name: "s3-poll-cost",
        source: "S3 section 4.5",
        experiment: "s3-poll",
        needs: &[],
        claim: "Looking for completions that are not there costs SPDK about 80 ns.",
        test: "the user-space driver on a soft drive with nothing in flight: at most half the time of a system call that does nothing",
        judge: |view| {
            let (poll, call) = (Config::new(EMPTY_POLL, 1), Config::new(BARE_CALL, 1));
            Ok(vec![
                view.ratio("an empty poll over a call", CpuUsPerIo, &poll, &call, AtMost(0.5))?,
                view.told("us of an empty poll", CpuUsPerIo, &poll)?,
            ])
        },
    },
    Finding {
        name: "s3-one-core",
        source: "S3 section 3.4",
        experiment: "s3-fig15",
        needs: &[Stores(STORE_KERNEL), Interface("io_uring"), Cores(2)],
        claim: "Workers that all do the same do as well on one core as on many, core by core.",
        test: "lookups, data in memory: one worker at least 0.9 of a half of two workers' throughput",
        judge: |view| {
            let of = StoreUse { data_percent: FITS, ..StoreUse::new(Lookup) };
            let (one, two) = (of.on("io_uring", 1), of.on("io_uring", 2));
            let what = "lookups a second, one worker over two";
            Ok(vec![view.ratio(what, IosPerS, &one, &two, AtLeast(0.45))?])
        },
    },
];

/// Returns the point of lookups with ten times more data than memory, with one worker for each
/// core.
fn lookups(view: &View<'_>, interface: &str) -> Config {
    StoreUse::new(Lookup).on(interface, view.report.cores.min(2))
}
