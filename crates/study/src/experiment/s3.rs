//! S3: the throughput of an array of NVMe drives, and how to reach it.

use super::{Experiment, Plan, Scale, by_interface, cores_words, counts, series, several_devices};
use crate::config::{Assignment, Channels, Config};
use crate::lab::{Effort, Lab};
use crate::measure::Metric;

pub(super) const DRIVE_SCALING: Experiment = Experiment {
    name: "s3-fig2a",
    figure: "S3 Figure 2a",
    shows: "random reads as drives are added",
    found: "Eight drives gave eight times one: 12.5 million reads a second.",
    needs: "several devices",
    plan: drive_scaling,
};

pub(super) const WRITE_MIX: Experiment = Experiment {
    name: "s3-fig2b",
    figure: "S3 Figure 2b",
    shows: "random I/O by the share of writes",
    found: "12.5 million I/Os a second with reads only, 8.9 with 10 % writes, 7 with 25 %.",
    needs: "a device that may be written",
    plan: write_mix,
};

pub(super) const PAGE_SIZE: Experiment = Experiment {
    name: "s3-fig3",
    figure: "S3 Figure 3",
    shows: "random reads by page size: IOPS, bandwidth, latency",
    found: "4 KiB is the best trade-off: smaller pages bring no more I/Os, larger ones fewer.",
    needs: "nothing",
    plan: page_size,
};

pub(super) const OUTSTANDING: Experiment = Experiment {
    name: "s3-fig4",
    figure: "S3 Figure 4",
    shows: "random reads by requests outstanding for each drive",
    found: "Eight drives need about 1000 requests outstanding for good throughput, and 3000 to be saturated.",
    needs: "nothing",
    plan: outstanding,
};

pub(super) const THREADS: Experiment = Experiment {
    name: "s3-fig6",
    figure: "S3 Figures 6 and 11",
    shows: "random reads by threads, for each interface; with 44 % writes where they are allowed",
    found: "SPDK reaches what the drives can do with 3 threads, io_uring polled with 16; libaio and io_uring with interrupts stopped \
            near 10 of 12.5 million reads. With 44 % writes, as of TPC-C, all reach the drives' 6.7 million.",
    needs: "more than one core",
    plan: threads,
};

pub(super) const ONE_FOR_ALL: Experiment = Experiment {
    name: "s3-fig10",
    figure: "S3 Figure 10, section 3.4",
    shows: "random reads by threads with channels of their own, by threads that hand all to one, and by threads under one lock",
    found: "One thread for all I/O stopped at 630 thousand of 12.5 million reads a second.",
    needs: "more than one core",
    plan: one_for_all,
};

pub(super) const ALL_TO_ALL: Experiment = Experiment {
    name: "s3-fig11",
    figure: "S3 Figure 11",
    shows: "each thread one drive, against each thread all drives",
    found: "All-to-all costs next to nothing.",
    needs: "several devices",
    plan: all_to_all,
};

pub(super) const BATCHES: Experiment = Experiment {
    name: "s3-batches",
    figure: "S3 section 4.6",
    shows: "random reads by the requests that are handed to the kernel at once",
    found: "Batches give the kernel's interfaces 3 %.",
    needs: "nothing",
    plan: batches,
};

pub(super) const PAGE_CACHE: Experiment = Experiment {
    name: "s3-cache",
    figure: "S3 section 2.5, S1 section 2",
    shows: "random reads around the page cache and through it, the cache empty at first",
    found: "Peak throughput needs the page cache out of the way (S3); libaio blocks where it is not (S1).",
    needs: "libaio or io_uring",
    plan: page_cache,
};

/// Requests in flight on each drive where the depth is not compared.
const DEPTH: u32 = 128;

fn drive_scaling(lab: &Lab) -> Plan {
    let mut plan = Plan::new("drives", Scale::Linear, &[(Metric::IosPerS, Scale::Linear)]);
    if !several_devices(lab, &mut plan) {
        return plan;
    }
    let xs = counts(lab.devices.len() as u32);
    let of = |name: &str, drives: u32| {
        Config::new(name, lab.cores())
            .threads(lab.cores())
            .depth((DEPTH * drives / lab.cores()).max(1))
            .drives(drives, Assignment::All)
    };
    let series = by_interface(lab, &xs, |name, drives| Some(of(name, drives)));
    plan.group(&cores_words(lab.cores()), series)
}

fn write_mix(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Linear), (Metric::P99Us, Scale::Log)];
    let plan = Plan::new("writes, % of requests", Scale::Linear, &shown);
    if lab.devices.first().is_none_or(|device| !device.may_write) {
        return plan.skip("the device may not be written: --allow-writes destroys what is on it");
    }
    let percents: &[u32] = match lab.effort {
        Effort::Full => &[0, 5, 10, 25, 50, 75, 100],
        _ => &[0, 10, 25, 50, 100],
    };
    let Some(name) = lab.main_interface() else { return plan };
    let cores = lab.cores().min(2);
    let series = series(name, percents.iter().copied(), |writes| {
        Some(Config::new(name, cores).depth(64).read_percent(100 - writes as u8))
    });
    plan.group("", vec![series])
}

fn page_size(lab: &Lab) -> Plan {
    let shown = [
        (Metric::IosPerS, Scale::Linear),
        (Metric::BytesPerS, Scale::Linear),
        (Metric::P50Us, Scale::Log),
    ];
    let mut plan = Plan::new("page size, bytes", Scale::Log, &shown);
    let Some(name) = lab.main_interface() else { return plan };
    let block = lab.devices.first().map_or(512, |device| device.logical_block_bytes);
    if block > 512 {
        plan = plan.skip(format!("pages under {block} bytes: the device has no smaller blocks"));
    }
    let sizes = (9..=16).map(|power| 1 << power).filter(|bytes| *bytes >= block);
    let cores = lab.cores().min(2);
    let series =
        series(name, sizes, |bytes| Some(Config::new(name, cores).depth(64).block_bytes(bytes)));
    plan.group("", vec![series])
}

fn outstanding(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Linear), (Metric::P50Us, Scale::Log)];
    let plan = Plan::new("requests outstanding for each drive", Scale::Log, &shown);
    let Some(name) = lab.main_interface() else { return plan };
    let drives = lab.devices.len() as u32;
    let totals: &[u32] = match lab.effort {
        Effort::Full => &[1, 2, 4, 8, 16, 32, 64, 125, 250, 375, 500, 1000, 2000],
        _ => &[1, 4, 16, 64, 125, 375, 500, 1000],
    };
    let of = |total| Some(outstanding_config(lab, name, total * drives));
    let series = series(name, totals.iter().copied(), of);
    let title = if drives > 1 { format!("{drives} drives") } else { String::new() };
    plan.group(&title, vec![series])
}

/// Returns a configuration with `total` requests in flight, distributed over at most one thread for
/// each core.
fn outstanding_config(lab: &Lab, name: &str, total: u32) -> Config {
    let drives = lab.devices.len() as u32;
    let threads = lab.cores().min(total).next_power_of_two().min(total);
    let threads = if threads > lab.cores() { threads / 2 } else { threads };
    Config::new(name, lab.cores())
        .threads(threads)
        .depth(total / threads)
        .drives(drives, Assignment::All)
}

fn threads(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Linear), (Metric::CpuUsPerIo, Scale::Linear)];
    let mut plan = Plan::new("threads", Scale::Linear, &shown);
    if lab.cores() < 2 {
        plan = plan.skip("more than one thread: one core only may be used");
    }
    let drives = lab.devices.len() as u32;
    let xs = counts(lab.cores());
    let series = by_interface(lab, &xs, |name, threads| {
        Some(
            Config::new(name, lab.cores())
                .threads(threads)
                .depth(DEPTH)
                .drives(drives, Assignment::All),
        )
    });
    let title = format!("all threads on {}", cores_words(lab.cores()));
    plan = plan.group(&title, series);
    if lab.devices.iter().any(|device| !device.may_write) {
        return plan.skip("44 % writes: the devices may not be written");
    }
    let mixed = by_interface(lab, &xs, |name, threads| {
        Some(
            Config::new(name, lab.cores())
                .threads(threads)
                .depth(DEPTH)
                .drives(drives, Assignment::All)
                .read_percent(TPCC_READ_PERCENT),
        )
    });
    plan.group(&format!("44 % writes, {title}"), mixed)
}

/// The percentage of reads in S3's TPC-C workload.
pub(crate) const TPCC_READ_PERCENT: u8 = 56;

fn batches(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Linear), (Metric::CpuUsPerIo, Scale::Linear)];
    let plan = Plan::new("requests handed over at once", Scale::Log, &shown);
    let mut all = by_interface(lab, &[1, 4, 32], |name, batch| {
        Some(Config::new(name, lab.cores().min(2)).depth(DEPTH).batch(batch))
    });
    all.retain(|series| ["libaio", "io_uring"].contains(&series.label.as_str()));
    plan.group("queue depth 128", all)
}

fn page_cache(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Log), (Metric::SubmitShare, Scale::Linear)];
    let plan = Plan::new("queue depth", Scale::Log, &shown);
    let Some(name) = ["io_uring", "libaio"].into_iter().find(|name| lab.has(name)) else {
        return plan.skip("neither libaio nor io_uring can be used");
    };
    let mut names = vec![name, "libaio"];
    names.dedup();
    names.retain(|name| lab.has(name));
    let of = |name: &str, depth| Config::new(name, lab.cores().min(2)).depth(depth);
    let mut all = Vec::new();
    for name in names {
        all.push(series(&format!("{name}, direct"), [1, 16], |depth| Some(of(name, depth))));
        let cached = |depth| Some(of(name, depth).cached());
        all.push(series(&format!("{name}, page cache"), [1, 16], cached));
    }
    plan.group("", all)
}

/// Returns a point of the one-for-all experiment: all threads that there are cores for, at the
/// depth of the other experiments.
pub(crate) fn one_for_all_config(lab_cores: u32, name: &str, drives: u32) -> Config {
    Config::new(name, lab_cores).threads(lab_cores).depth(DEPTH).drives(drives, Assignment::All)
}

fn one_for_all(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Linear), (Metric::CpuUsPerIo, Scale::Linear)];
    let mut plan = Plan::new("threads", Scale::Linear, &shown);
    let Some(name) = lab.main_interface() else { return plan };
    if lab.cores() < 2 {
        plan = plan.skip("more than one thread: one core only may be used");
    }
    let drives = lab.devices.len() as u32;
    let xs = counts(lab.cores());
    let of = |label: &str, channels| {
        series(label, xs.iter().copied(), |threads| {
            let all = one_for_all_config(lab.cores(), name, drives);
            Some(all.threads(threads).channels(channels))
        })
    };
    plan.group(
        name,
        vec![
            of("each thread its own channels", Channels::Own),
            of("one thread for all", Channels::OneThread),
            of("one lock for all", Channels::OneLock),
        ],
    )
}

fn all_to_all(lab: &Lab) -> Plan {
    let mut plan = Plan::new("drives", Scale::Linear, &[(Metric::IosPerS, Scale::Linear)]);
    if !several_devices(lab, &mut plan) {
        return plan;
    }
    let Some(name) = lab.main_interface() else { return plan };
    let most = lab.devices.len() as u32;
    let xs: Vec<u32> = counts(most).into_iter().filter(|drives| *drives > 1).collect();
    let of = |label: &str, assignment| {
        series(label, xs.iter().copied(), |drives| {
            Some(
                Config::new(name, lab.cores())
                    .threads(drives)
                    .depth(DEPTH)
                    .drives(drives, assignment),
            )
        })
    };
    plan.group(
        name,
        vec![
            of("each thread one drive", Assignment::Own),
            of("each thread all drives", Assignment::All),
        ],
    )
}
