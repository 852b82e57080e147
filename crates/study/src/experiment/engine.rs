//! S3's figures of storage engines, repeated with this project's own engine. The store is one file
//! in the study's folder.

use super::{Experiment, Plan, Scale, series};
use crate::config::{Channels, Config};
use crate::lab::{Effort, Lab};
use crate::measure::Metric;
use crate::store::{StoreUse, StoreWork};

pub(super) const INTERFACES: Experiment = Experiment {
    name: "s3-fig15",
    figure: "S3 Figure 15, sections 3.4 and 4.5",
    shows: "lookups of a store by workers, over the kernel's interfaces, with ten times more data than memory, and with all in memory",
    found: "In the engine io_uring was 2 % slower than libaio; its kernel thread took cores from the workers.",
    needs: "the study's own file",
    plan: interfaces,
};

pub(super) const GROWTH: Experiment = Experiment {
    name: "s3-fig14",
    figure: "S3 Figure 14, section 4.7",
    shows: "transactions of TPC-C by the size of the data",
    found: "With ten times more data than memory 1.1 of 2 to 3 million transactions were left, with forty times 0.4.",
    needs: "the study's own file",
    plan: growth,
};

pub(super) const LADDER: Experiment = Experiment {
    name: "s3-fig13",
    figure: "S3 Figure 13, sections 2.2 and 3.5",
    shows: "rungs of the ladder that are switches of one store: the size of pages, the memory of parents, one lock and one thread for all I/O",
    found: "Pages of 4 KiB doubled TPC-C's throughput; finding parents from the root had taken over 10 % of the processor time.",
    needs: "the study's own file",
    plan: ladder,
};

pub(super) const CYCLES: Experiment = Experiment {
    name: "s3-fig16",
    figure: "S3 Figure 16",
    shows: "eviction's share of the workers' time by the size of the data",
    found: "With data larger than memory eviction took 14 % of the processor time.",
    needs: "the study's own file",
    plan: cycles,
};

pub(super) const ARRIVALS: Experiment = Experiment {
    name: "s3-fig17",
    figure: "S3 Figure 17",
    shows: "latency of lookups and transactions that arrive at random times, by their rate, in reads of the device",
    found: "The latency of a lookup was that of its I/O; a transaction took many.",
    needs: "the study's own file",
    plan: arrivals,
};

/// Bytes of the larger pages.
pub(crate) const LARGE_PAGE: u32 = 16 << 10;
/// The load at which latencies are compared, in percent of the peak throughput.
pub(crate) const HALF: u32 = 50;

/// The amount of data that fits into memory, in percent of the memory.
pub(crate) const FITS: u32 = 50;
/// Ten times as much data as memory, in percent of the memory.
pub(crate) const TEN: u32 = 1000;
/// Forty times as much data as memory, in percent of the memory.
pub(crate) const FORTY: u32 = 4000;

/// The reason why a quick study leaves TPC-C out, except where page sizes are compared.
const NOT_QUICK: &str = "TPC-C takes a while to load, and a quick study leaves it out";

/// Returns the point over the interface that is used where the interface is not compared.
pub(crate) fn at(lab_cores: u32, interface: &str, of: StoreUse) -> Config {
    of.on(interface, lab_cores.min(2))
}

/// Completes a plan with the main interface, or notes why the plan has no points.
fn plan_of(lab: &Lab, plan: Plan, with: impl FnOnce(Plan, &str) -> Plan) -> Plan {
    if !lab.stores {
        return plan.skip("a store is made in a file of --dir, where no device is given");
    }
    match lab.main_interface() {
        Some(name) => with(plan, name),
        None => plan,
    }
}

fn interfaces(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Linear), (Metric::CpuUsPerIo, Scale::Linear)];
    plan_of(lab, Plan::new("workers", Scale::Linear, &shown), |mut plan, _| {
        let few = lab.effort == Effort::Quick;
        let workers: Vec<u32> = [1, 2].into_iter().filter(|n| *n <= lab.cores()).collect();
        let names = ["libaio", "io_uring", "io_uring+p", "io_uring+k"];
        for (title, percent) in [("data ten times the memory", TEN), ("data in memory", FITS)] {
            let of = StoreUse { data_percent: percent, ..StoreUse::new(StoreWork::Lookup) };
            let names = names.iter().filter(|name| lab.has(name));
            // In memory there is no I/O to differ by.
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

fn growth(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Log), (Metric::WriteShare, Scale::Linear)];
    let plan = Plan::new("data, percent of the memory", Scale::Log, &shown);
    plan_of(lab, plan, |plan, name| {
        if lab.effort == Effort::Quick {
            return plan.skip(NOT_QUICK);
        }
        let xs: &[u32] = match lab.effort {
            Effort::Full => &[FITS, 200, 500, TEN, 2000, FORTY],
            _ => &[FITS, TEN, FORTY],
        };
        let tpcc = StoreUse::new(StoreWork::Tpcc);
        let of = |percent| Some(at(lab.cores(), name, StoreUse { data_percent: percent, ..tpcc }));
        plan.group(name, vec![series("TPC-C", xs.iter().copied(), of)])
    })
}

fn ladder(lab: &Lab) -> Plan {
    let shown = [
        (Metric::IosPerS, Scale::Log),
        (Metric::CpuUsPerIo, Scale::Linear),
        (Metric::DeviceBytesPerOp, Scale::Linear),
    ];
    let plan = Plan::new("bytes of a page", Scale::Log, &shown);
    plan_of(lab, plan, |mut plan, name| {
        for (label, work) in [("lookups", StoreWork::Lookup), ("TPC-C", StoreWork::Tpcc)] {
            let page = |bytes| StoreUse { page_bytes: bytes, ..StoreUse::new(work) };
            let mut all = vec![series(label, [4096, LARGE_PAGE], |bytes| {
                Some(at(lab.cores(), name, page(bytes)))
            })];
            if work == StoreWork::Lookup {
                all.push(series("lookups, parents from the root", [4096], |bytes| {
                    let from_root = StoreUse { parents_from_root: true, ..page(bytes) };
                    Some(at(lab.cores(), name, from_root))
                }));
                for (label, channels) in [
                    ("lookups, one lock for I/O", Channels::OneLock),
                    ("lookups, one thread for I/O", Channels::OneThread),
                ] {
                    all.push(series(label, [4096], |bytes| {
                        Some(at(lab.cores(), name, page(bytes)).channels(channels))
                    }));
                }
            }
            plan = plan.group(label, all);
        }
        plan.remarks.push(
            "Rungs that are no switch of one store are elsewhere: the interface in s3-fig15; md and threads in place of tasks would be other \
             engines."
                .to_owned(),
        );
        plan
    })
}

fn cycles(lab: &Lab) -> Plan {
    let shown = [(Metric::EvictionShare, Scale::Linear)];
    let plan = Plan::new("data, percent of the memory", Scale::Log, &shown);
    plan_of(lab, plan, |plan, name| {
        let of = |work| {
            move |percent| {
                let store = StoreUse { data_percent: percent, ..StoreUse::new(work) };
                Some(at(lab.cores(), name, store))
            }
        };
        let mut all = vec![series("lookups", [FITS, TEN], of(StoreWork::Lookup))];
        let mut plan = plan;
        match lab.effort {
            Effort::Quick => plan = plan.skip(NOT_QUICK),
            _ => all.push(series("TPC-C", [FITS, TEN], of(StoreWork::Tpcc))),
        }
        plan = plan.group(name, all);
        plan.remarks.push(
            "By the processor's clock, part by part of the workers' loop; waiting is left out. All parts: qpair bench lookup --cycles."
                .to_owned(),
        );
        plan
    })
}

fn arrivals(lab: &Lab) -> Plan {
    let shown = [(Metric::LatencyOverRead, Scale::Log), (Metric::P99Us, Scale::Log)];
    let plan = Plan::new("percent of the peak", Scale::Linear, &shown);
    plan_of(lab, plan, |plan, name| {
        let xs: &[u32] = match lab.effort {
            Effort::Full => &[25, HALF, 75, 90],
            Effort::Usual => &[25, HALF, 80],
            Effort::Quick => &[25, HALF],
        };
        let of = |work| {
            move |percent| {
                let store = StoreUse { rate_percent: Some(percent), ..StoreUse::new(work) };
                Some(at(lab.cores(), name, store))
            }
        };
        let mut all = vec![series("lookups", xs.iter().copied(), of(StoreWork::Lookup))];
        let mut plan = plan;
        match lab.effort {
            Effort::Quick => plan = plan.skip(NOT_QUICK),
            _ => all.push(series("TPC-C", xs.iter().copied(), of(StoreWork::Tpcc))),
        }
        plan.group("data ten times the memory", all)
    })
}
