//! S3's findings about storage engines, tested on this project's own engine.

use super::{Finding, Judged, View};
use crate::config::{Channels, Config};
use crate::experiment::engine::{FITS, FORTY, HALF, LARGE_PAGE, TEN};
use crate::measure::Metric;
use crate::outcome::Threshold::{AtLeast, AtMost, Between};
use crate::store::{StoreUse, StoreWork};

use Metric::{
    CpuUsPerDeviceIo, CpuUsPerIo, DeviceBytesPerOp, EvictionShare, IosPerCpuS, IosPerS,
    LatencyOverRead, ReadsPerOp, WriteShare, WritesPerOp,
};
use StoreWork::{Lookup, Tpcc};

pub(super) const AMPLIFICATION: Finding = Finding {
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
};

pub(super) const CYCLES: Finding = Finding {
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
};

pub(super) const SQPOLL: Finding = Finding {
    name: "s3-sqpoll",
    source: "S3 sections 3.4 and 4.5",
    experiment: "s3-fig15",
    claim: "In a storage engine the kernel thread of iou+k lowers throughput and efficiency: it takes cores from the workers.",
    test: "lookups, as many workers as cores, two at most: iou+k at most the throughput of io_uring, and at least its processor time",
    judge: |view| {
        view.need("io_uring+k")?;
        let (k, plain) = (lookups(view, "io_uring+k"), lookups(view, "io_uring"));
        Ok(vec![
            view.ratio("lookups a second, iou+k over io_uring", IosPerS, &k, &plain, AtMost(1.0))?,
            view.ratio("processor time, the same", CpuUsPerIo, &k, &plain, AtLeast(1.0))?,
        ])
    },
};

pub(super) const URING_LIBAIO: Finding = Finding {
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
};

pub(super) const ONE_CORE: Finding = Finding {
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
};

pub(super) const RUNG_PAGE: Finding = Finding {
    name: "s3-rung-page",
    source: "S3 Figure 13",
    experiment: "s3-fig13",
    claim: "Pages of 4 instead of 16 KiB double the engine's TPC-C throughput.",
    test: "ten times more data than memory: at least 1.5 times the transactions of TPC-C, and no fewer lookups",
    judge: |view| {
        let part = |what: &str, work, wanted| {
            let (large, small) = pages(view, work)?;
            view.ratio(format!("{what}, pages of 4 over 16 KiB"), IosPerS, &small, &large, wanted)
        };
        Ok(vec![
            part("transactions a second", Tpcc, AtLeast(1.5))?,
            part("lookups a second", Lookup, AtLeast(1.0))?,
        ])
    },
};

pub(super) const PARENTS: Finding = Finding {
    name: "s3-parents",
    source: "S3 section 3.5",
    experiment: "s3-fig13",
    claim: "Finding a page's parent from the root takes over 10 % of the processor time; remembering it saves that.",
    test: "lookups, ten times more data than memory: from the root at least 1.1 times the processor time",
    judge: |view| {
        let (root, hint) = (
            of(view, "s3-fig13", StoreUse { parents_from_root: true, ..StoreUse::new(Lookup) })?,
            of(view, "s3-fig13", StoreUse::new(Lookup))?,
        );
        let what = "processor time of a lookup, parents from the root over remembered";
        Ok(vec![view.ratio(what, CpuUsPerIo, &root, &hint, AtLeast(1.1))?])
    },
};

pub(super) const ONE_LOCK: Finding = Finding {
    name: "s3-partitions",
    source: "S3 section 3.5",
    experiment: "s3-fig13",
    claim: "One lock over I/O and cooling limits the engine; partitions by page lift that.",
    test: "lookups, ten times more data than memory, as many workers as cores, two at most, one lock over I/O (cooling has none here): at most \
           0.95 times the lookups for a second of processor time",
    judge: |view| {
        view.two_cores()?;
        let own = of(view, "s3-fig13", StoreUse::new(Lookup))?;
        let locked = own.clone().channels(Channels::OneLock);
        let what = "lookups for a second of processor time, one lock over none";
        Ok(vec![view.ratio(what, IosPerCpuS, &locked, &own, AtMost(0.95))?])
    },
};

pub(super) const IO_PER_TX: Finding = Finding {
    name: "s3-io-per-tx",
    source: "S3 section 4.7",
    experiment: "s3-fig14",
    claim: "With ten times more data than memory, a TPC-C transaction takes 3.5 reads and 2.8 writes.",
    test: "writes 0.35 to 0.5 of the requests to the device",
    judge: |view| {
        let ten = grown(view, TEN)?;
        Ok(vec![
            view.value("writes' share", WriteShare, &ten, Between(0.35, 0.5))?,
            view.told("reads of a transaction", ReadsPerOp, &ten)?,
            view.told("writes of a transaction", WritesPerOp, &ten)?,
        ])
    },
};

pub(super) const GROWTH_10: Finding = Finding {
    name: "s3-growth-10",
    source: "S3 Figure 14",
    experiment: "s3-fig14",
    claim: "With ten times more data than memory, TPC-C keeps a third to half of its throughput in memory.",
    test: "at least 0.3 times the transactions of data in memory",
    judge: |view| growth(view, "ten times the memory over in memory", (TEN, FITS), 0.3),
};

pub(super) const GROWTH_40: Finding = Finding {
    name: "s3-growth-40",
    source: "S3 Figure 14",
    experiment: "s3-fig14",
    claim: "As data grow to forty times the memory, throughput falls gently.",
    test: "TPC-C: at least 0.25 times the transactions of ten times the memory",
    judge: |view| growth(view, "forty times the memory over ten", (FORTY, TEN), 0.25),
};

pub(super) const CPU_SHARES: Finding = Finding {
    name: "s3-cpu-shares",
    source: "S3 Figure 16",
    experiment: "s3-fig16",
    claim: "With data larger than memory eviction takes 14 % of the processor time, and submitting 16 to 19 %, with SPDK 2 %.",
    test: "TPC-C, ten times more data than memory: eviction 0.05 to 0.25 of the workers' time, waiting left out (submission: no, the kernel does \
           it while workers wait)",
    judge: |view| {
        let ten = of(view, "s3-fig16", StoreUse::new(Tpcc))?;
        Ok(vec![view.value("eviction's share", EvictionShare, &ten, Between(0.05, 0.25))?])
    },
};

pub(super) const LATENCY_LOOKUP: Finding = Finding {
    name: "s3-latency-lookup",
    source: "S3 Figure 17",
    experiment: "s3-fig17",
    claim: "When lookups arrive at random times, the latency of one is that of its I/O.",
    test: "at 25 and 50 % of the peak: mean latency at most 1.3 times that of a read of the device in the same run",
    judge: |view| {
        let part = |percent| {
            let at = StoreUse { rate_percent: Some(percent), ..StoreUse::new(Lookup) };
            let what = format!("mean latency over a read's, {percent} % of the peak");
            view.value(what, LatencyOverRead, &of(view, "s3-fig17", at)?, AtMost(1.3))
        };
        [25, HALF].into_iter().map(part).collect()
    },
};

pub(super) const LATENCY_TX: Finding = Finding {
    name: "s3-latency-tx",
    source: "S3 Figure 17",
    experiment: "s3-fig17",
    claim: "A TPC-C transaction takes many times an I/O, since its reads follow each other and writes delay them.",
    test: "at 50 % of the peak: mean latency at least 3 times that of a read of the device in the same run",
    judge: |view| {
        let at = StoreUse { rate_percent: Some(HALF), ..StoreUse::new(Tpcc) };
        let what = "mean latency of a transaction over a read's";
        Ok(vec![view.value(what, LatencyOverRead, &of(view, "s3-fig17", at)?, AtLeast(3.0))?])
    },
};

/// Returns the point of lookups with ten times more data than memory, with one worker for each
/// core.
fn lookups(view: &View<'_>, interface: &str) -> Config {
    StoreUse::new(Lookup).on(interface, view.report.cores.min(2))
}

/// Returns the point of a store in an experiment, over the interface that the experiment was run
/// with.
fn of(view: &View<'_>, experiment: &str, store: StoreUse) -> Result<Config, String> {
    let interface = view.main_interface(experiment)?;
    Ok(store.on(interface, view.report.cores.min(2)))
}

fn pages(view: &View<'_>, work: StoreWork) -> Result<(Config, Config), String> {
    let large = StoreUse { page_bytes: LARGE_PAGE, ..StoreUse::new(work) };
    Ok((of(view, "s3-fig13", large)?, of(view, "s3-fig13", StoreUse::new(work))?))
}

fn grown(view: &View<'_>, data_percent: u32) -> Result<Config, String> {
    of(view, "s3-fig14", StoreUse { data_percent, ..StoreUse::new(Tpcc) })
}

fn growth(view: &View<'_>, words: &str, sizes: (u32, u32), least: f64) -> Judged {
    let (larger, smaller) = (grown(view, sizes.0)?, grown(view, sizes.1)?);
    let what = format!("transactions a second, {words}");
    Ok(vec![view.ratio(what, IosPerS, &larger, &smaller, AtLeast(least))?])
}
