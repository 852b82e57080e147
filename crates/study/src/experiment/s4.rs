//! S4: asynchronous I/O on arrays: outstanding requests, intervals, the cost of a byte, prolonged
//! writes.

use super::{Experiment, Plan, Scale, by_interface, cores_words, series};
use crate::config::{Config, Pace};
use crate::lab::{Effort, Lab, UNREGISTERED};
use crate::measure::Metric;

pub(super) const THREADS_AND_OUTSTANDING: Experiment = Experiment {
    name: "s4-outstanding",
    figure: "S4, threads and outstanding requests",
    shows: "random reads by outstanding requests of each thread, for several numbers of threads",
    found: "Throughput levels off at about 128 requests outstanding.",
    needs: "nothing",
    plan: threads_and_outstanding,
};

pub(super) const SYNC: Experiment = Experiment {
    name: "s4-sync",
    figure: "S4 section 5.1",
    shows: "random reads by threads: synchronous, and asynchronous with 64 requests for each",
    found: "libaio and io_uring are far ahead of synchronous I/O at every number of threads.",
    needs: "nothing",
    plan: sync,
};

pub(super) const INTERVAL: Experiment = Experiment {
    name: "s4-interval",
    figure: "S4, request interval (mode msg)",
    shows: "random reads where another thread hands requests over, by the interval between two",
    found: "Intervals over 10 us cost throughput; over 100 us the interfaces are alike.",
    needs: "nothing",
    plan: interval,
};

pub(super) const COST_PER_BYTE: Experiment = Experiment {
    name: "s4-cost",
    figure: "S4, cost of a byte and context switches by block size",
    shows: "processor time, instructions and context switches by block size",
    found: "Instructions per byte fall until blocks of 64 KiB; context switches favour io_uring with registered buffers and a \
            kernel thread.",
    needs: "hardware counters for instructions",
    plan: cost_per_byte,
};

pub(super) const PROLONGED_WRITES: Experiment = Experiment {
    name: "s4-writes",
    figure: "S4, prolonged writes (mode stress)",
    shows: "sequential writes, second by second",
    found: "After about 40 s the asynchronous interfaces' throughput fell off: the drives' SLC cache was full.",
    needs: "a device that may be written",
    plan: prolonged_writes,
};

pub(super) const VARIANTS: Experiment = Experiment {
    name: "s4-variants",
    figure: "S4 sections 3 and 4",
    shows: "sequential, vectored, buffered reads, several producers, and writes, beside random reads",
    found: "They were varied; the text gives no result.",
    needs: "a device that may be written, for the writes",
    plan: variants,
};

pub(super) const SPARE: Experiment = Experiment {
    name: "s4-spare",
    figure: "S4 section 4, on soft drives",
    shows: "random writes to drives that are full, by their spare flash",
    found: "Over-provisioning and garbage collection were varied; the text gives no result.",
    needs: "nothing",
    plan: spare,
};

/// Returns a full soft drive with this percentage of spare flash. The drive is small, so that a
/// short run triggers garbage collection. Its dies are small too, so that each has several blocks
/// to choose from.
pub(crate) fn full_drive(spare_percent: u32) -> Config {
    let name = format!(
        "softnvme:size=32MiB,profile=tlc,channels=2,dies=2,pages_per_block=32,dram_cache=256KiB,filled=1,over_provisioning=0.{spare_percent:02}"
    );
    Config::new(name, 1).depth(32).read_percent(0)
}

/// Seconds of prolonged writes. The papers' drives fell off after 40.
pub(crate) fn prolonged_s(effort: Effort) -> u32 {
    match effort {
        Effort::Quick => 3,
        Effort::Usual => 15,
        Effort::Full => 120,
    }
}

/// The number of requests in flight where they are issued one by one: as many as arrive.
const DEPTH_HANDED: u32 = 128;

fn threads_and_outstanding(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Linear), (Metric::P99Us, Scale::Log)];
    let mut plan = Plan::new("outstanding requests of each thread", Scale::Log, &shown);
    let depths: &[u32] = match lab.effort {
        Effort::Full => &[1, 4, 16, 32, 64, 128, 256, 512, 1024],
        _ => &[1, 32, 128, 512],
    };
    let mut threads = vec![1, lab.cores(), 2 * lab.cores()];
    threads.dedup();
    let Some(name) = lab.main_interface() else { return plan };
    let all = threads
        .iter()
        .map(|count| {
            let label =
                if *count == 1 { "1 thread".to_owned() } else { format!("{count} threads") };
            series(&label, depths.iter().copied(), |depth| {
                Some(Config::new(name, lab.cores()).threads(*count).depth(depth))
            })
        })
        .collect();
    plan = plan.group(&format!("{name} on {}", cores_words(lab.cores())), all);
    plan
}

fn interval(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Log), (Metric::P50Us, Scale::Log)];
    let plan = Plan::new("interval between two requests, us", Scale::Log, &shown);
    let intervals: &[u32] = match lab.effort {
        Effort::Full => &[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000],
        _ => &[1, 10, 100, 200],
    };
    let cores = lab.cores().min(2);
    let mut series = by_interface(lab, intervals, |name, us| {
        // A thread that spins for requests and one that submits them: the kernel's own would be a
        // third.
        (!name.contains("+k"))
            .then(|| Config::new(name, cores).depth(DEPTH_HANDED).pace(Pace::Interval { us }))
    });
    if lab.has("posix") {
        series.push(super::series("synchronous", intervals.iter().copied(), |us| {
            Some(Config::new(crate::lab::SYNC, cores).pace(Pace::Interval { us }))
        }));
    }
    plan.group(&cores_words(cores), series)
}

/// Requests in flight of each thread where interfaces are compared with synchronous I/O.
pub(crate) const DEPTH_ASYNC: u32 = 64;

fn sync(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Linear), (Metric::P50Us, Scale::Log)];
    let plan = Plan::new("threads", Scale::Linear, &shown);
    let mut xs = vec![1, lab.cores(), 4];
    xs.sort_unstable();
    xs.dedup();
    let of = |name: &str, threads| Config::new(name, lab.cores()).threads(threads);
    let mut all = Vec::new();
    if lab.has("posix") {
        all.push(series("synchronous", xs.iter().copied(), |n| Some(of(crate::lab::SYNC, n))));
    }
    for name in ["libaio", "io_uring"].into_iter().filter(|name| lab.has(name)) {
        let deep = |threads| Some(of(name, threads).depth(DEPTH_ASYNC));
        all.push(series(name, xs.iter().copied(), deep));
    }
    plan.group(&cores_words(lab.cores()), all)
}

fn cost_per_byte(lab: &Lab) -> Plan {
    let shown = [
        (Metric::CpuNsPerByte, Scale::Log),
        (Metric::InstructionsPerByte, Scale::Log),
        (Metric::SwitchesPerIo, Scale::Linear),
    ];
    let mut plan = Plan::new("block size, bytes", Scale::Log, &shown);
    let sizes: &[u32] = match lab.effort {
        Effort::Full => {
            &[4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10]
        }
        _ => &[4 << 10, 16 << 10, 64 << 10, 256 << 10],
    };
    let cores = lab.cores().min(2);
    let of = |label: &str, name: &str| {
        series(label, sizes.iter().copied(), |bytes| {
            Some(Config::new(name, cores).depth(128).block_bytes(bytes))
        })
    };
    let mut all: Vec<_> = lab.usable().map(|name| of(name, name)).collect();
    if lab.has("io_uring") {
        all.push(of("io_uring, nothing registered", UNREGISTERED));
    }
    plan = plan.group(&cores_words(cores), all);
    plan
}

fn prolonged_writes(lab: &Lab) -> Plan {
    let mut plan = Plan::new("seconds", Scale::Linear, &[(Metric::BytesPerS, Scale::Linear)]);
    plan.over_time = true;
    let Some(device) = lab.devices.first() else { return plan };
    if !device.may_write {
        return plan.skip("the device may not be written: --allow-writes destroys what is on it");
    }
    let seconds = prolonged_s(lab.effort);
    let config = |name: &str| {
        Config::new(name, lab.cores().min(2))
            .depth(if name == crate::lab::SYNC { 1 } else { 32 })
            .block_bytes(256 << 10)
            .read_percent(0)
            .pace(Pace::Prolonged { seconds })
    };
    let mut names: Vec<&str> = lab.main_interface().into_iter().collect();
    if lab.has("posix") && lab.effort == Effort::Full {
        names.push(crate::lab::SYNC);
    }
    plan.remarks.push(format!(
        "One run of {seconds} s for each interface. A file is written over again and again; to the drive these are new writes."
    ));
    let all = names.into_iter().map(|name| series(name, [seconds], |_| Some(config(name))));
    let all = all.collect();
    plan.group("", all)
}

fn variants(lab: &Lab) -> Plan {
    let shown = [(Metric::BytesPerS, Scale::Log), (Metric::CpuUsPerIo, Scale::Linear)];
    let mut plan = Plan::new("block size, bytes", Scale::Log, &shown);
    let Some(name) = lab.main_interface() else { return plan };
    let base = |bytes| Config::new(name, lab.cores().min(2)).depth(32).block_bytes(bytes);
    let sizes = [16 << 10, 64 << 10];
    let reads = vec![
        series("random", sizes, |bytes| Some(base(bytes))),
        series("sequential", sizes, |bytes| Some(base(bytes).sequential())),
        series("in vectors of 4", sizes, |bytes| Some(base(bytes).pieces(4))),
        series("page cache, sequential", sizes, |bytes| Some(base(bytes).sequential().cached())),
        series("two producers, every 50 us", sizes, |bytes| {
            Some(base(bytes).threads(2).pace(Pace::Interval { us: 50 }))
        }),
    ];
    plan = plan.group(&format!("{name}, reads"), reads);
    if lab.devices.first().is_none_or(|device| !device.may_write) {
        return plan.skip("writes: the device may not be written");
    }
    let writes = vec![
        series("random", sizes, |bytes| Some(base(bytes).read_percent(0))),
        series("sequential", sizes, |bytes| Some(base(bytes).read_percent(0).sequential())),
    ];
    plan.group(&format!("{name}, writes"), writes)
}

fn spare(_: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Linear), (Metric::P99Us, Scale::Log)];
    let plan = Plan::new("spare flash, percent", Scale::Linear, &shown);
    let all = series("soft flash drive, full", [7, 15, 28], |percent| Some(full_drive(percent)));
    let mut plan = plan.group("random writes of 4 KiB", vec![all]);
    plan.remarks.push(
        "A drive made of software, with the times and the garbage collection of flash: its form, not its speed, is that of real ones.".to_owned(),
    );
    plan
}
