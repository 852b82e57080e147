//! S3 Figure 13, sections 2.2 and 3.5: the ladder.

use super::{store_at, store_of, store_plan};
use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s3-fig13",
    figure: "S3 Figure 13, sections 2.2 and 3.5",
    shows: "rungs of the ladder that are switches of one store: the size of pages, the memory of parents, one lock and one thread for all I/O",
    found: "Pages of 4 KiB doubled TPC-C's throughput; finding parents from the root had taken over 10 % of the processor time.",
    needs: "the study's own file",
    plan,
}];

/// Bytes of the larger pages.
const LARGE_PAGE: u32 = 16 << 10;

fn plan(lab: &Lab) -> Plan {
    let shown = [
        (Metric::IosPerS, Scale::Log),
        (Metric::CpuUsPerIo, Scale::Linear),
        (Metric::DeviceBytesPerOp, Scale::Linear),
    ];
    let plan = Plan::new("bytes of a page", Scale::Log, &shown);
    store_plan(lab, plan, |mut plan, name| {
        for (label, work) in [("lookups", StoreWork::Lookup), ("TPC-C", StoreWork::Tpcc)] {
            let page = |bytes| StoreUse { page_bytes: bytes, ..StoreUse::new(work) };
            let mut all = vec![series(label, [4096, LARGE_PAGE], |bytes| {
                Some(store_at(lab.cores(), name, page(bytes)))
            })];
            if work == StoreWork::Lookup {
                all.push(series("lookups, parents from the root", [4096], |bytes| {
                    let from_root = StoreUse { parents_from_root: true, ..page(bytes) };
                    Some(store_at(lab.cores(), name, from_root))
                }));
                for (label, channels) in [
                    ("lookups, one lock for I/O", Channels::OneLock),
                    ("lookups, one thread for I/O", Channels::OneThread),
                ] {
                    all.push(series(label, [4096], |bytes| {
                        Some(store_at(lab.cores(), name, page(bytes)).channels(channels))
                    }));
                }
            }
            plan = plan.group(label, all);
        }
        plan.remark(
            "Rungs that are no switch of one store are elsewhere: the interface in s3-fig15; md and threads in place of tasks would be other \
             engines.",
        )
    })
}

pub(crate) const ROWS: &[Row] = &[
    Tested(Finding {
        name: "s3-amplification",
        source: "S3 section 2.2",
        experiment: "s3-fig13",
        claim: "A store with pages of 4 KiB reads a quarter of the bytes for a record that one with 16 KiB reads.",
        test: "lookups, ten times more data than memory: 16 KiB pages 3.5 to 4.5 times the bytes of the device for a lookup",
        judge: |view| {
            let (large, small) = pages(view, Lookup)?;
            let what = "bytes for a lookup, pages of 16 over 4 KiB";
            Ok(vec![view.ratio(what, DeviceBytesPerOp, &large, &small, Between(3.5, 4.5))?])
        },
    }),
    untested(
        "s3-task-switch",
        "S3 section 3.2",
        "Switching between tasks takes about 20 cycles, between threads of the kernel thousands.",
        &[Experiment],
    ),
    Tested(Finding {
        name: "s3-rung-page",
        source: "S3 Figure 13",
        experiment: "s3-fig13",
        claim: "Pages of 4 instead of 16 KiB double the engine's TPC-C throughput.",
        test: "ten times more data than memory: at least 1.5 times the transactions of TPC-C, and no fewer lookups",
        judge: |view| {
            let part = |what: &str, work, wanted| {
                let (large, small) = pages(view, work)?;
                view.ratio(
                    format!("{what}, pages of 4 over 16 KiB"),
                    IosPerS,
                    &small,
                    &large,
                    wanted,
                )
            };
            Ok(vec![
                part("transactions a second", Tpcc, AtLeast(1.5))?,
                part("lookups a second", Lookup, AtLeast(1.0))?,
            ])
        },
    }),
    untested(
        "s3-rung-cpu",
        "S3 Figure 13",
        "Removing processor bottlenecks inside the engine adds 30 % to its TPC-C throughput.",
        &[Engine],
    ),
    untested(
        "s3-rung-raid",
        "S3 Figure 13",
        "Striping in the engine instead of Linux md adds 30 % to TPC-C and nearly doubles lookups.",
        &[Engine, Drives],
    ),
    untested(
        "s3-rung-tasks",
        "S3 Figure 13",
        "Tasks instead of blocking threads add 16 % to TPC-C and 25 % to lookups.",
        &[Engine],
    ),
    untested(
        "s3-rung-spdk",
        "S3 Figure 13",
        "SPDK instead of libaio adds 4 % to TPC-C and 32 % to lookups.",
        &[Engine, SameDrive, Drives],
    ),
    Tested(Finding {
        name: "s3-parents",
        source: "S3 section 3.5",
        experiment: "s3-fig13",
        claim: "Finding a page's parent from the root takes over 10 % of the processor time; remembering it saves that.",
        test: "lookups, ten times more data than memory: from the root at least 1.1 times the processor time",
        judge: |view| {
            let (root, hint) = (
                store_of(
                    view,
                    "s3-fig13",
                    StoreUse { parents_from_root: true, ..StoreUse::new(Lookup) },
                )?,
                store_of(view, "s3-fig13", StoreUse::new(Lookup))?,
            );
            let what = "processor time of a lookup, parents from the root over remembered";
            Ok(vec![view.ratio(what, CpuUsPerIo, &root, &hint, AtLeast(1.1))?])
        },
    }),
    Tested(Finding {
        name: "s3-partitions",
        source: "S3 section 3.5",
        experiment: "s3-fig13",
        claim: "One lock over I/O and cooling limits the engine; partitions by page lift that.",
        test: "lookups, ten times more data than memory, as many workers as cores, two at most, one lock over I/O (cooling has none here): at most \
               0.95 times the lookups for a second of processor time",
        judge: |view| {
            view.two_cores()?;
            let own = store_of(view, "s3-fig13", StoreUse::new(Lookup))?;
            let locked = own.clone().channels(Channels::OneLock);
            let what = "lookups for a second of processor time, one lock over none";
            Ok(vec![view.ratio(what, IosPerCpuS, &locked, &own, AtMost(0.95))?])
        },
    }),
];

fn pages(view: &View<'_>, work: StoreWork) -> Result<(Config, Config), String> {
    let large = StoreUse { page_bytes: LARGE_PAGE, ..StoreUse::new(work) };
    Ok((store_of(view, "s3-fig13", large)?, store_of(view, "s3-fig13", StoreUse::new(work))?))
}
