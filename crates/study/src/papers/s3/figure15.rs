//! S3 Figure 15, sections 3.4 and 4.5: the engine over each interface.

use super::{FITS, TEN, store_plan};
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
        shows: "lookups of a store by workers, over the kernel's interfaces, with ten times more data than memory, and with all in memory",
        found: "In the engine io_uring was 2 % slower than libaio; its kernel thread took cores from the workers.",
        needs: "the study's own file",
        plan,
    },
];

fn poll(_: &Lab) -> Plan {
    let plan = Plan::new("threads", Scale::Linear, &[(Metric::CpuUsPerIo, Scale::Log)]);
    let of = |label: &str, name: &str| series(label, [1], |_| Some(Config::new(name, 1)));
    plan.group("", vec![of("an empty poll", EMPTY_POLL), of("a system call", BARE_CALL)])
}

fn plan(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Linear), (Metric::CpuUsPerIo, Scale::Linear)];
    store_plan(lab, Plan::new("workers", Scale::Linear, &shown), |mut plan, _| {
        let few = lab.effort == Effort::Quick;
        let workers: Vec<u32> = [1, 2].into_iter().filter(|n| *n <= lab.cores()).collect();
        let names = ["libaio", "io_uring", "io_uring+p", "io_uring+k", USER_SPACE];
        let usable =
            |name: &&&str| lab.has(name) && (**name != USER_SPACE || lab.stores_over(USER_SPACE));
        for (title, percent) in [("data ten times the memory", TEN), ("data in memory", FITS)] {
            let of = StoreUse { data_percent: percent, ..StoreUse::new(StoreWork::Lookup) };
            let names = names.iter().filter(usable);
            // With the data in memory there is no I/O, so the interfaces do not differ.
            let names = names.filter(|name| percent == TEN || **name == "io_uring");
            let most = lab.cores().min(2);
            let wanted = |n: &u32| !few || percent == FITS || *n == most;
            let workers = workers.iter().copied().filter(wanted);
            let all =
                names.map(|name| series(name, workers.clone(), |n| Some(of.on(name, n)))).collect();
            plan = plan.group(title, all);
        }
        if lab.stores_over(USER_SPACE) {
            let tpcc = StoreUse::new(StoreWork::Tpcc);
            let most = lab.cores().min(2);
            let of = |name: &&str| series(name, [most], |n| Some(tpcc.on(name, n)));
            plan = plan.group("TPC-C", names.iter().filter(usable).map(of).collect());
        }
        plan
    })
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
        claim: "In a storage engine the kernel thread of iou+k lowers throughput and efficiency: it takes cores from the workers.",
        test: "lookups, as many workers as cores, two at most: iou+k at most the throughput of io_uring, and at least its processor time",
        judge: |view| {
            let (k, plain) = (lookups(view, "io_uring+k"), lookups(view, "io_uring"));
            Ok(vec![
                view.ratio(
                    "lookups a second, iou+k over io_uring",
                    IosPerS,
                    &k,
                    &plain,
                    AtMost(1.0),
                )?,
                view.ratio("processor time, the same", CpuUsPerIo, &k, &plain, AtLeast(1.0))?,
            ])
        },
    },
    Finding {
        name: "s3-polled-engine",
        source: "S3 section 4.3",
        experiment: "s3-fig15",
        needs: &[Stores(USER_SPACE), Interface("io_uring+p")],
        claim: "With iou+p the engine has the same TPC-C throughput as with SPDK, and 8 % fewer lookups.",
        test: "as many workers as cores, two at most: iou+p 0.95 to 1.05 times the transactions of SPDK, and 0.85 to 1.0 times the lookups",
        judge: |view| {
            let part = |work, words: &str, wanted| {
                let of = |name| StoreUse::new(work).on(name, view.report.cores.min(2));
                let what = format!("{words} a second, iou+p over SPDK");
                view.ratio(what, IosPerS, &of("io_uring+p"), &of(USER_SPACE), wanted)
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
        test: "one worker: at least 1.3 times the lookups of the fastest interface of the kernel; two workers: at most the lead of one",
        judge: |view| {
            let lead = |workers, wanted| {
                let of = |name: &str| StoreUse::new(Lookup).on(name, workers);
                let kernel: Vec<Config> = view.kernel_interfaces().map(of).collect();
                let best = view.fastest(&kernel).ok_or_else(|| view.skipped("s3-fig15"))?;
                let what =
                    format!("lookups of {workers} worker(s), user space over {}", best.interface);
                view.chosen_ratio(what, IosPerS, &of(USER_SPACE), best, wanted)
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
