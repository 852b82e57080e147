//! S3 Figure 15, sections 3.4 and 4.5: the engine over each interface.

use super::{FITS, TEN, store_plan};
use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s3-fig15",
    figure: "S3 Figure 15, sections 3.4 and 4.5",
    shows: "lookups of a store by workers, over the kernel's interfaces, with ten times more data than memory, and with all in memory",
    found: "In the engine io_uring was 2 % slower than libaio; its kernel thread took cores from the workers.",
    needs: "the study's own file",
    plan,
}];

fn plan(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Linear), (Metric::CpuUsPerIo, Scale::Linear)];
    store_plan(lab, Plan::new("workers", Scale::Linear, &shown), |mut plan, _| {
        let few = lab.effort == Effort::Quick;
        let workers: Vec<u32> = [1, 2].into_iter().filter(|n| *n <= lab.cores()).collect();
        let names = ["libaio", "io_uring", "io_uring+p", "io_uring+k"];
        for (title, percent) in [("data ten times the memory", TEN), ("data in memory", FITS)] {
            let of = StoreUse { data_percent: percent, ..StoreUse::new(StoreWork::Lookup) };
            let names = names.iter().filter(|name| lab.has(name));
            // With the data in memory there is no I/O, so the interfaces do not differ.
            let names = names.filter(|name| percent == TEN || **name == "io_uring");
            let most = lab.cores().min(2);
            let wanted = |n: &u32| !few || percent == FITS || *n == most;
            let workers = workers.iter().copied().filter(wanted);
            let all =
                names.map(|name| series(name, workers.clone(), |n| Some(of.on(name, n)))).collect();
            plan = plan.group(title, all);
        }
        plan
    })
}

pub(crate) const ROWS: &[Row] = &[
    Tested(Finding {
        name: "s3-cycles",
        source: "S3 section 2.5",
        experiment: "s3-fig15",
        claim: "At the array's full rate there are 13,000 cycles for an I/O, and the kernel takes half of them.",
        test: "io_uring, two cores: a read without a store 0.3 to 0.7 of the processor time of a read within lookups",
        judge: |view| {
            let cores = view.report.cores.min(2);
            let raw = Config::new("io_uring", cores).depth(128);
            let engine = StoreUse::new(Lookup).on("io_uring", cores);
            let what = "processor time of a read, without a store over within";
            Ok(vec![view.ratio(what, CpuUsPerDeviceIo, &raw, &engine, Between(0.3, 0.7))?])
        },
    }),
    Tested(Finding {
        name: "s3-sqpoll",
        source: "S3 sections 3.4 and 4.5",
        experiment: "s3-fig15",
        claim: "In a storage engine the kernel thread of iou+k lowers throughput and efficiency: it takes cores from the workers.",
        test: "lookups, as many workers as cores, two at most: iou+k at most the throughput of io_uring, and at least its processor time",
        judge: |view| {
            view.need("io_uring+k")?;
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
    }),
    untested(
        "s3-polled-engine",
        "S3 section 4.3",
        "With iou+p the engine has the same TPC-C throughput as with SPDK, and 8 % fewer lookups.",
        &[Engine, SameDrive, PollQueues],
    ),
    untested(
        "s3-few-cores",
        "S3 Figure 15",
        "On few cores SPDK gives the engine 60 to 80 % more lookups than the kernel's interfaces; less with more cores.",
        &[Engine, SameDrive, Drives, Cores],
    ),
    Tested(Finding {
        name: "s3-uring-libaio",
        source: "S3 section 4.5",
        experiment: "s3-fig15",
        claim: "In the engine io_uring is 2 % slower than libaio, and iou+p 5 to 8 % faster.",
        test: "lookups for a second of processor time: io_uring 0.93 to 1.0 times those of libaio; iou+p, where there is one, at least 1.02 times",
        judge: |view| {
            let aio = lookups(view, "libaio");
            let part = |name: &str, wanted| {
                let what = format!("lookups for a second of processor time, {name} over libaio");
                view.ratio(what, IosPerCpuS, &lookups(view, name), &aio, wanted)
            };
            let mut evidence = vec![part("io_uring", Between(0.93, 1.0))?];
            if view.has("io_uring+p") {
                evidence.push(part("io_uring+p", AtLeast(1.02))?);
            }
            Ok(evidence)
        },
    }),
    untested(
        "s3-poll-cost",
        "S3 section 4.5",
        "Looking for completions that are not there costs SPDK about 80 ns.",
        &[Experiment],
    ),
    Tested(Finding {
        name: "s3-one-core",
        source: "S3 section 3.4",
        experiment: "s3-fig15",
        claim: "Workers that all do the same do as well on one core as on many, core by core.",
        test: "lookups, data in memory: one worker at least 0.9 of a half of two workers' throughput",
        judge: |view| {
            view.two_cores()?;
            let of = StoreUse { data_percent: FITS, ..StoreUse::new(Lookup) };
            let (one, two) = (of.on("io_uring", 1), of.on("io_uring", 2));
            let what = "lookups a second, one worker over two";
            Ok(vec![view.ratio(what, IosPerS, &one, &two, AtLeast(0.45))?])
        },
    }),
];

/// Returns the point of lookups with ten times more data than memory, with one worker for each
/// core.
fn lookups(view: &View<'_>, interface: &str) -> Config {
    StoreUse::new(Lookup).on(interface, view.report.cores.min(2))
}
