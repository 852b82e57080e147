//! `qpair bench lookup|update|scan|insert|tpcc|ycsb|commit|io|files|peak`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use qpair::Mode;
use qpair_bench::kv::Durability;
use qpair_bench::{Report, RunOptions, Workload, run};

use crate::bar::Bar;
use crate::command::bench_commit::Commit;
use crate::command::bench_files::Files;
use crate::command::bench_io::Io;
use crate::command::bench_peak::Peak;
use crate::command::bench_store::{MeasuringArgs, of_warmed, parse_durability, parts};
use crate::command::bench_tpcc::Tpcc;
use crate::command::bench_ycsb::Ycsb;
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::store_args::{
    LogDeviceArgs, memory_or_default, parse_mode, parse_size, tasks_or_default,
};
use crate::text::{count, counted};

/// Measure a store (lookups, updates, scans, inserts, TPC-C, YCSB, commits) or a device
#[derive(Args, Debug)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Look up records uniformly at random; a missing store is created and filled first
    Lookup(RunArgs),
    /// Replace records uniformly at random
    Update(RunArgs),
    /// Scan 100 records from random keys; one operation is one record
    Scan(RunArgs),
    /// Insert all records in random order into a new store; --seconds has no effect
    Insert(RunArgs),
    Tpcc(Tpcc),
    Ycsb(Ycsb),
    Commit(Commit),
    /// Run workloads over files, devices and specifiers: fio's options and job files
    Io(Io),
    Files(Files),
    Peak(Peak),
}

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
struct RunArgs {
    /// The store; created and filled if it is missing
    #[arg(long, value_name = "PATH")]
    store: PathBuf,

    /// Records
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = parse_count::<u64, RECORDS_MAX>)]
    records: u64,

    /// Memory for pages [default: 256MiB; less where limits of the process leave less]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,

    /// Allocate all memory at the start, not on first use
    #[arg(long)]
    prefault: bool,

    /// Interface to the kernel: auto, io_uring, io_uring+k, libaio, posix:threads=4, ...
    #[arg(long = "interface", alias = "io", value_name = "MODE", default_value = "auto", value_parser = parse_mode)]
    io: Mode,

    /// Worker threads, one per core [default: as many as cores]
    #[arg(long, value_name = "N", value_parser = parse_count::<usize, WORKERS_MAX>)]
    workers: Option<usize>,

    /// Tasks of each worker [default: 128; fewer where memory is little]
    #[arg(long, value_name = "N", value_parser = parse_count::<usize, TASKS_MAX>)]
    tasks: Option<usize>,

    /// Lookups or updates that arrive per second, at random times; latency counts from the arrival
    /// [default: each task does one after the other]
    #[arg(long, value_name = "N", value_parser = parse_rate)]
    rate: Option<f64>,

    /// Seconds to measure
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = parse_seconds)]
    seconds: f64,

    /// Fill memory with pages before the run, in device order
    #[arg(long)]
    warm: bool,

    /// Seconds to run before the measurement
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = parse_seconds)]
    warm_up: f64,

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

    /// Go through the page cache, for file systems without direct I/O
    #[arg(long)]
    buffered: bool,

    #[command(flatten)]
    measuring: MeasuringArgs,

    #[command(flatten)]
    log: LogDeviceArgs,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn parse_seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=1e7).contains(&seconds) => Ok(seconds),
        _ => Err(format!("'{text}' is no number of seconds")),
    }
}

/// Parses `--seconds` of a run, which must be positive.
pub(crate) fn parse_run_seconds(text: &str) -> std::result::Result<f64, String> {
    match parse_seconds(text)? {
        0.0 => Err("a run takes more than 0 seconds".to_owned()),
        seconds => Ok(seconds),
    }
}

/// Parses `--rate`, in operations per second.
pub(crate) fn parse_rate(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate <= 1e9 => Ok(rate),
        _ => Err(format!("'{text}' is no rate: more than 0, at most 1e9")),
    }
}

/// Describes the rate of a run whose operations arrive at random times.
pub(crate) fn arrivals(rate_per_s: f64, done_per_s: f64) -> String {
    let late = match done_per_s < 0.95 * rate_per_s {
        true => "; the store does NOT keep up, and latency grows with the run",
        false => "",
    };
    format!("{} /s at random times, latency from when each was due{late}", count(rate_per_s as u64))
}

/// The maximum number of records of a store.
pub(crate) const RECORDS_MAX: u64 = u32::MAX as u64;
/// The maximum number of workers: each needs a core.
pub(crate) const WORKERS_MAX: u64 = 1024;
/// The maximum number of requests of a worker in flight: more than any device accepts.
const DEPTH_MAX: u64 = 32_768;
/// The maximum number of clients of a worker.
pub(crate) const TASKS_MAX: u64 = 65_536;

/// Parses a count of at least one.
pub(crate) fn parse_count<T: TryFrom<u64>, const MAX: u64>(
    text: &str,
) -> std::result::Result<T, String> {
    let counted = text.parse::<u64>().ok().filter(|count| (1..=MAX).contains(count));
    counted
        .and_then(|count| T::try_from(count).ok())
        .ok_or_else(|| format!("'{text}' is no count from 1 to {MAX}"))
}

pub(crate) fn to_json(report: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string_pretty(report)
        .map_err(|error| Failure::new(Exit::Failed, format!("writing JSON: {error}")))
}

impl Bench {
    pub(crate) fn run(self) -> Result<Exit> {
        let (workload, args) = match self.what {
            What::Lookup(args) => (Workload::Lookup, args),
            What::Update(args) => (Workload::Update, args),
            What::Scan(args) => (Workload::Scan, args),
            What::Insert(args) => (Workload::Insert, args),
            What::Tpcc(tpcc) => return tpcc.run(),
            What::Ycsb(ycsb) => return ycsb.run(),
            What::Commit(commit) => return commit.run(),
            What::Io(io) => return io.run(),
            What::Files(files) => return files.run(),
            What::Peak(peak) => return peak.run(),
        };
        let interrupt = Interrupt::install()?;
        let json = args.json;
        let options = RunOptions {
            store: args.store,
            drivers: crate::interrupt::drivers(),
            records: args.records,
            memory_bytes: memory_or_default(args.memory),
            prefault: args.prefault,
            io: args.io,
            workers: args.workers.unwrap_or(0),
            tasks: tasks_or_default(args.tasks, 128, args.memory),
            seconds: args.seconds,
            rate_per_s: args.rate,
            warm: args.warm,
            warm_up_seconds: args.warm_up,
            page_size: usize::try_from(args.page_size).unwrap_or(usize::MAX),
            buffered: args.buffered,
            ceiling_seconds: args.ceiling,
            depth: args.depth,
            reads: args.reads.unwrap_or(0),
            batch: args.batch,
            linger_us: args.linger_us,
            cycles: args.measuring.cycles,
            parent_hints: !args.measuring.no_parent_hints,
            log_device: args.log.device().map(Path::to_owned),
            durability: args.durability,
        };
        let outcome = run(workload, &options, &Bar::new(interrupt.clone()));
        if interrupt.is_requested() {
            eprintln!("qpair: interrupted; the store was closed");
            return Ok(Exit::Interrupted);
        }
        let report = outcome?;
        let mut out = Output::new();
        if json {
            out.line(to_json(&report)?)?;
        } else {
            for (name, value) in lines(&report) {
                out.line(format!("{name:<14} {value}"))?;
            }
            for line in parts(&report.cycles, "operation") {
                out.line(line)?;
            }
        }
        out.finish()?;
        Ok(Exit::Done)
    }
}

fn lines(report: &Report) -> Vec<(&'static str, String)> {
    let mib = |bytes: u64| format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20));
    let mut lines = vec![
        (
            "workload",
            format!(
                "{}, {} of {}{}",
                report.workload,
                counted(report.workers as u64, "worker"),
                counted(report.tasks as u64, "task"),
                report.durability.as_ref().map_or(String::new(), |of| format!("; commits: {of}"))
            ),
        ),
        ("interface", format!("{} ({})", report.io, report.io_mode)),
        (
            "store",
            format!(
                "{} records, {} over {} of memory",
                count(report.records),
                mib(report.store_bytes),
                mib(report.memory_bytes)
            ),
        ),
    ];
    if let Some(speed) = report.fill_records_per_s {
        lines.push(("filled at", format!("{} records/s", count(speed as u64))));
    }
    if let Some(warmed) = &report.warmed {
        lines.push(("read first", of_warmed(warmed)));
    }
    if let Some(rate) = report.rate_per_s {
        lines.push(("arrivals", arrivals(rate, report.ops_per_s)));
    }
    lines.push((
        "operations",
        format!("{} /s over {:.1} s", count(report.ops_per_s as u64), report.seconds),
    ));
    lines.push((
        "device",
        format!(
            "{} reads/s, at most {} in flight, {} writes/s, {:.3} reads and {:.3} system calls per operation",
            count(report.device_reads_per_s as u64),
            count(report.reads_in_flight_max),
            count(report.device_writes_per_s as u64),
            report.reads_per_op,
            report.system_calls_per_op
        ),
    ));
    if let Some(ceiling) = report.ceiling_reads_per_s {
        lines.push((
            "device alone",
            format!(
                "{} reads/s; the store had {:.0} % of it",
                count(ceiling as u64),
                100.0 * report.device_reads_per_s / ceiling
            ),
        ));
    }
    lines.push(("CPU", format!("{:.2} us per operation, user and system", report.cpu_us_per_op)));
    let latency = report.latency_us;
    lines.push((
        "latency",
        format!(
            "mean {:.1} us, p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us, slowest {:.1} us",
            latency.mean, latency.p50, latency.p99, latency.p999, latency.max
        ),
    ));
    if let (Some(slowest), Some(fastest)) =
        (report.ops_by_second.iter().min(), report.ops_by_second.iter().max())
    {
        lines.push(("by second", format!("{} to {} operations", count(*slowest), count(*fastest))));
    }
    lines
}
