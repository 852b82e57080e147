//! S3 Figure 13, sections 2.2 and 3.5: the ladder.

use super::figure12::blocking;
use super::{DEPTH, STORE, store_at, store_of, store_plan, user_space, user_space_ratio};
use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "s3-switches",
        figure: "S3 section 3.2",
        shows: "the time of a switch between tasks of the engine, and between threads of the kernel, on one core",
        found: "A task took about 20 cycles, a thread thousands.",
        needs: "nothing",
        plan: switches,
    },
    Experiment {
        name: "s3-md",
        figure: "S3 Figure 13, striping",
        shows: "random reads over all drives, and over the Linux md array of them",
        found: "Striping in the engine in place of md nearly doubled lookups.",
        needs: "an md array over the other devices, named as the last device",
        plan: md,
    },
    Experiment {
        name: "s3-fig13",
        figure: "S3 Figure 13, sections 2.2 and 3.5",
        shows: "rungs of the ladder that are switches of one store: the size of pages, the memory of parents, one lock and one thread for all I/O",
        found: "Pages of 4 KiB doubled TPC-C's throughput; finding parents from the root had taken over 10 % of the processor time.",
        needs: "the study's own file, or devices that may be written",
        plan,
    },
];

/// The numbers of workers that have one task each and wait for it.
const BLOCKING: [u32; 2] = [16, 64];

pub(super) fn from_root(store: StoreUse) -> StoreUse {
    StoreUse { parents_from_root: true, ..store }
}

fn switches(_: &Lab) -> Plan {
    let plan = Plan::new("threads", Scale::Linear, &[(Metric::CpuUsPerIo, Scale::Log)]);
    let of = |label: &str, name: &str| series(label, [1], |_| Some(Config::new(name, 1)));
    plan.group("", vec![of("tasks", TASK_SWITCH), of("threads", THREAD_SWITCH)])
}

/// Returns the points of the drives' own stripe, and of the md array with index `md` over them.
fn striped(interface: &str, cores: u32, devices: u32, md: u32) -> (Config, Config) {
    let base = Config::new(interface, cores).threads(cores).depth(DEPTH);
    // The array is the last device.
    let own = base.clone().drives(devices.min(md), Assignment::All);
    (own, base.first(md))
}

fn md(lab: &Lab) -> Plan {
    let plan = Plan::new("threads", Scale::Linear, &[(Metric::IosPerS, Scale::Linear)]);
    let (Some(at), Some(name)) = (lab.means.md, lab.main_interface()) else {
        return plan.skip(Md.lacking(&lab.here()).unwrap_or_default());
    };
    let (own, md) = striped(name, lab.cores(), lab.devices.len() as u32, at);
    let of = |label: &str, config: Config| series(label, [lab.cores()], |_| Some(config.clone()));
    plan.group(name, vec![of("own stripe", own), of("md", md)])
}

/// Bytes of the larger pages.
pub(super) const LARGE_PAGE: u32 = 16 << 10;

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
            let from_root = |bytes| store_at(lab.cores(), name, from_root(page(bytes)));
            if lab.effort != Effort::Quick {
                for threads in BLOCKING {
                    let of = |_| Some(blocking(name, lab.cores(), threads, page(4096)));
                    all.push(series(&format!("{label}, {threads} blocking threads"), [4096], of));
                }
            }
            if work == StoreWork::Tpcc {
                all.push(series(
                    "TPC-C, parents from the root, one lock for I/O",
                    [4096],
                    |bytes| Some(from_root(bytes).channels(Channels::OneLock)),
                ));
            }
            if work == StoreWork::Lookup {
                all.push(series("lookups, parents from the root", [4096], |bytes| {
                    Some(from_root(bytes))
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
            "Rungs that are no switch of one store are elsewhere: the interface in s3-fig15, md in s3-md. Blocking threads are workers with one \
             task each, which wait for each I/O.",
        )
    })
}

pub(crate) const ROWS: &[Finding] = &[
    Finding {
        name: "s3-amplification",
        source: "S3 section 2.2",
        experiment: "s3-fig13",
        needs: STORE,
        claim: "A store with pages of 4 KiB reads a quarter of the bytes for a record that one with 16 KiB reads.",
        test: "lookups, ten times more data than memory: 16 KiB pages 3.5 to 4.5 times the bytes of the device for a lookup",
        judge: |view| {
            let (large, small) = pages(view, Lookup)?;
            let what = "bytes for a lookup, pages of 16 over 4 KiB";
            Ok(vec![view.ratio(what, DeviceBytesPerOp, &large, &small, Between(3.5, 4.5))?])
        },
    },
    Finding {
        name: "s3-task-switch",
        source: "S3 section 3.2",
        experiment: "s3-switches",
        needs: &[],
        claim: "Switching between tasks takes about 20 cycles, between threads of the kernel thousands.",
        test: "one core: a switch between tasks of the engine at most 0.1 times the time of one between threads that wake each other",
        judge: |view| {
            let (task, thread) = (Config::new(TASK_SWITCH, 1), Config::new(THREAD_SWITCH, 1));
            Ok(vec![
                view.ratio(
                    "a task's switch over a thread's",
                    CpuUsPerIo,
                    &task,
                    &thread,
                    AtMost(0.1),
                )?,
                view.told("us of a task's switch", CpuUsPerIo, &task)?,
                view.told("us of a thread's switch", CpuUsPerIo, &thread)?,
            ])
        },
    },
    Finding {
        name: "s3-rung-page",
        source: "S3 Figure 13",
        experiment: "s3-fig13",
        needs: STORE,
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
    },
    Finding {
        name: "s3-rung-cpu",
        source: "S3 Figure 13",
        experiment: "s3-fig13",
        needs: STORE,
        claim: "Removing processor bottlenecks inside the engine adds 30 % to its TPC-C throughput.",
        test: "TPC-C, ten times more data than memory: at least 1.1 times the transactions with parents looked for from the root and one lock over I/O",
        judge: |view| {
            let (fast, slow) = (
                store_of(view, "s3-fig13", StoreUse::new(Tpcc))?,
                store_of(view, "s3-fig13", from_root(StoreUse::new(Tpcc)))?,
            );
            let slow = slow.channels(Channels::OneLock);
            let what = "transactions a second, as it is over with both bottlenecks";
            Ok(vec![view.ratio(what, IosPerS, &fast, &slow, AtLeast(1.1))?])
        },
    },
    Finding {
        name: "s3-rung-raid",
        source: "S3 Figure 13",
        experiment: "s3-md",
        needs: &[Md],
        claim: "Striping in the engine instead of Linux md adds 30 % to TPC-C and nearly doubles lookups.",
        test: "random reads of 4 KiB, as many threads as cores: all drives at least 1.1 times the IOPS of the md array over them",
        judge: |view| {
            let name = view.main_interface("s3-md")?;
            let at = view.report.means.md.ok_or_else(|| view.skipped("s3-md"))?;
            let (own, md) = striped(name, view.report.cores, view.report.devices.len() as u32, at);
            let what = "reads a second, own stripe over md";
            Ok(vec![view.ratio(what, IosPerS, &own, &md, AtLeast(1.1))?])
        },
    },
    Finding {
        name: "s3-rung-tasks",
        source: "S3 Figure 13",
        experiment: "s3-fig13",
        needs: STORE,
        claim: "Tasks instead of blocking threads add 16 % to TPC-C and 25 % to lookups.",
        test: "ten times more data than memory: tasks at least 1.1 times the operations of workers that have one task each and wait for it, 16 or 64 of them, \
               lookups and TPC-C",
        judge: |view| {
            let part = |work, words: &str| {
                let tasks = store_of(view, "s3-fig13", StoreUse::new(work))?;
                let threads = BLOCKING.map(|threads| {
                    blocking(&tasks.interface, view.report.cores, threads, StoreUse::new(work))
                });
                let best = view.fastest(&threads).ok_or_else(|| view.missing(&threads[0]))?;
                let what =
                    format!("{words} a second, tasks over {} blocking threads", best.threads);
                view.chosen_ratio(what, IosPerS, &tasks, best, AtLeast(1.1))
            };
            Ok(vec![part(Lookup, "lookups")?, part(Tpcc, "transactions")?])
        },
    },
    Finding {
        name: "s3-rung-spdk",
        source: "S3 Figure 13",
        experiment: "s3-fig15",
        needs: &[Stores(USER_SPACE), Interface("libaio")],
        claim: "SPDK instead of libaio adds 4 % to TPC-C and 32 % to lookups.",
        test: "as many workers as cores, two at most: 0.95 to 1.15 times the transactions of libaio, and at least 1.15 times the lookups; on a model, \
               those for a second of processor time",
        judge: |view| {
            let part = |work, words: &str, wanted| {
                let of = |name| StoreUse::new(work).on(name, view.report.cores.min(2));
                let what = format!("{words}, user space over libaio");
                let pair = (&of(user_space(view)?), &of("libaio"));
                user_space_ratio(view, what, pair, wanted, false)
            };
            Ok(vec![
                part(Tpcc, "transactions", Between(0.95, 1.15))?,
                part(Lookup, "lookups", AtLeast(1.15))?,
            ])
        },
    },
    Finding {
        name: "s3-parents",
        source: "S3 section 3.5",
        experiment: "s3-fig13",
        needs: STORE,
        claim: "Finding a page's parent from the root takes over 10 % of the processor time; remembering it saves that.",
        test: "lookups, ten times more data than memory: from the root at least 1.1 times the processor time",
        judge: |view| {
            let (root, hint) = (
                store_of(view, "s3-fig13", from_root(StoreUse::new(Lookup)))?,
                store_of(view, "s3-fig13", StoreUse::new(Lookup))?,
            );
            let what = "processor time of a lookup, parents from the root over remembered";
            Ok(vec![view.ratio(what, CpuUsPerIo, &root, &hint, AtLeast(1.1))?])
        },
    },
    Finding {
        name: "s3-partitions",
        source: "S3 section 3.5",
        experiment: "s3-fig13",
        needs: &[Stores(STORE_KERNEL), Cores(2)],
        claim: "One lock over I/O and cooling limits the engine; partitions by page lift that.",
        test: "lookups, ten times more data than memory, as many workers as cores, two at most, one lock over I/O (cooling has none here): at most \
               0.95 times the lookups for a second of processor time",
        judge: |view| {
            let own = store_of(view, "s3-fig13", StoreUse::new(Lookup))?;
            let locked = own.clone().channels(Channels::OneLock);
            let what = "lookups for a second of processor time, one lock over none";
            Ok(vec![view.ratio(what, IosPerCpuS, &locked, &own, AtMost(0.95))?])
        },
    },
];

fn pages(view: &View<'_>, work: StoreWork) -> Result<(Config, Config), String> {
    let large = StoreUse { page_bytes: LARGE_PAGE, ..StoreUse::new(work) };
    Ok((store_of(view, "s3-fig13", large)?, store_of(view, "s3-fig13", StoreUse::new(work))?))
}
