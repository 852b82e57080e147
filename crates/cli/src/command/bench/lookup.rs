//! `qpair bench lookup|update|scan|insert`.

use std::path::PathBuf;

use clap::Args;
use qpair_bench::kv::Durability;
use qpair_bench::{Report, RunOptions, Workload, run};

use super::store::{DeviceArgs, Lines, WarmArgs, WorkerArgs, arrivals, chosen_of, of_warmed};
use crate::failure::{Exit, Result};
use crate::interrupt::{Interrupt, interrupted};
use crate::parse::number::{
    RECORDS_MAX, TASKS_MAX, parse_count, parse_rate, parse_seconds, parse_size,
};
use crate::parse::store::parse_durability;
use crate::show::bar::Bar;
use crate::show::output::print_report;
use crate::show::text::{count, counted};

/// The maximum number of requests of a worker in flight: more than any device accepts.
const DEPTH_MAX: u64 = 32_768;

#[derive(Args, Debug)]
#[command(after_help = "\
Keys have 8 bytes, values 120. Each worker runs --tasks tasks; each task does one operation after the other. A store \
that fits into memory is read into it before the run. Latency counts from the start of an operation to its end. Each \
update or insert is a transaction, and waits for its --durability.

Examples:
  qpair bench lookup --store b.qpair --records 24000000 --memory 320MiB
  qpair bench lookup --store b.qpair --records 24000000 --memory 8GiB --workers 1 --tasks 64
  qpair bench lookup --store b.qpair --records 24000000 --memory 320MiB --rate 50000
  qpair bench update --store b.qpair --records 24000000 --memory 320MiB --interface libaio --json")]
pub(crate) struct Lookups {
    /// The store; created and filled if it is missing
    #[arg(long, value_name = "PATH")]
    store: PathBuf,

    /// Records
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = parse_count::<u64, RECORDS_MAX>)]
    records: u64,

    #[command(flatten)]
    on: WorkerArgs,

    /// Tasks of each worker [default: the fewest, up to 128, that are as fast as more: tried in the
    /// warm-up; all for inserts and at a --rate; fewer where memory is little]
    #[arg(long, value_name = "N", value_parser = parse_count::<usize, TASKS_MAX>)]
    tasks: Option<usize>,

    /// Lookups or updates that arrive per second, at random times; latency counts from the arrival
    /// [default: each task does one after the other]
    #[arg(long, value_name = "N", value_parser = parse_rate)]
    rate: Option<f64>,

    /// Seconds to measure
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = parse_seconds)]
    seconds: f64,

    #[command(flatten)]
    warm: WarmArgs,

    /// Seconds to measure the device alone after the run, for each of 8 combinations of threads and
    /// depth; 0: none
    #[arg(long, value_name = "S", default_value_t = 0.0, value_parser = parse_seconds)]
    ceiling: f64,

    /// Durability that updates and inserts wait for: sync, group or async
    #[arg(long, value_name = "WHEN", default_value = "sync", value_parser = parse_durability)]
    durability: Durability,

    /// Page size of a new store
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = parse_size)]
    page_size: u64,

    /// Maximum requests in flight per worker
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = parse_count::<u32, DEPTH_MAX>)]
    depth: u32,

    /// Maximum page reads among them [default: tuned during the run]
    #[arg(long, value_name = "N", value_parser = parse_count::<u32, DEPTH_MAX>)]
    reads: Option<u32>,

    /// Target completion batch size of a busy worker
    #[arg(long, value_name = "N", default_value_t = 32)]
    batch: u32,

    /// Longest wait for that batch, in microseconds
    #[arg(long, value_name = "US", default_value_t = 1000)]
    linger_us: u32,

    #[command(flatten)]
    device: DeviceArgs,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Lookups {
    pub(super) fn run(self, workload: Workload) -> Result<Exit> {
        let interrupt = Interrupt::install()?;
        let json = self.json;
        let options = RunOptions {
            store: self.store,
            drivers: crate::interrupt::drivers(),
            records: self.records,
            memory_bytes: self.on.memory_bytes(),
            prefault: self.on.prefault,
            io: self.on.io,
            workers: self.on.workers.unwrap_or(0),
            tasks: self.on.tasks(self.tasks, 128),
            choose_tasks: self.tasks.is_none(),
            seconds: self.seconds,
            rate_per_s: self.rate,
            warm: self.warm.warm,
            warm_up_seconds: self.warm.warm_up,
            page_size: usize::try_from(self.page_size).unwrap_or(usize::MAX),
            buffered: self.device.buffered,
            ceiling_seconds: self.ceiling,
            depth: self.depth,
            reads: self.reads.unwrap_or(0),
            batch: self.batch,
            linger_us: self.linger_us,
            cycles: self.device.cycles,
            parent_hints: !self.device.no_parent_hints,
            log_device: self.device.log(),
            encryption_key: self.device.key(),
            durability: self.durability,
        };
        let outcome = run(workload, &options, &Bar::new(interrupt.clone()));
        if interrupt.is_requested() {
            return interrupted("the store was closed");
        }
        let report = outcome?;
        print_report(json, &report, || lines(&report))?;
        Ok(Exit::Done)
    }
}

fn lines(report: &Report) -> Vec<String> {
    let mib = |bytes: u64| format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20));
    let mut lines = Lines::default();
    let durability = report.durability.as_ref();
    lines.add(
        "workload",
        format!(
            "{}, {} of {}{}{}",
            report.workload,
            counted(report.workers as u64, "worker"),
            counted(report.tasks as u64, "task"),
            chosen_of(report.tasks_chosen_of),
            durability.map_or(String::new(), |of| format!("; commits: {of}"))
        ),
    );
    lines.add("interface", format!("{} ({})", report.io, report.io_mode));
    let (stored, memory) = (mib(report.store_bytes), mib(report.memory_bytes));
    let records = count(report.records);
    lines.add("store", format!("{records} records, {stored} over {memory} of memory"));
    if let Some(speed) = report.fill_records_per_s {
        lines.add("filled at", format!("{} records/s", count(speed as u64)));
    }
    if let Some(warmed) = &report.warmed {
        lines.add("read first", of_warmed(warmed));
    }
    if let Some(rate) = report.rate_per_s {
        lines.add("arrivals", arrivals(rate, report.ops_per_s));
    }
    lines.add(
        "operations",
        format!("{} /s over {:.1} s", count(report.ops_per_s as u64), report.seconds),
    );
    lines.add(
        "device",
        format!(
            "{} reads/s, at most {} in flight, {} writes/s, {:.3} reads and {:.3} system calls per operation",
            count(report.device_reads_per_s as u64),
            count(report.reads_in_flight_max),
            count(report.device_writes_per_s as u64),
            report.reads_per_op,
            report.system_calls_per_op
        ));
    if let Some(ceiling) = report.ceiling_reads_per_s {
        lines.add(
            "device alone",
            format!(
                "{} reads/s; the store had {:.0} % of it",
                count(ceiling as u64),
                100.0 * report.device_reads_per_s / ceiling
            ),
        );
    }
    lines.add("CPU", format!("{:.2} us per operation, user and system", report.cpu_us_per_op));
    let latency = report.latency_us;
    lines.add(
        "latency",
        format!(
            "mean {:.1} us, p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us, slowest {:.1} us",
            latency.mean, latency.p50, latency.p99, latency.p999, latency.max
        ),
    );
    lines.add_seconds(&report.ops_by_second, "operations");
    lines.with_parts(&report.cycles, "operation")
}
