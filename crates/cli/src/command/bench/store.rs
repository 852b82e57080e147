//! Common parts of the benchmarks of stores: the store, how to open it, and the form of reports.

use std::path::{Path, PathBuf};

use clap::Args;
use qpair::{EncryptionKey, Isolation, Mode};
use qpair_bench::{PartReport, StoreKv, StoreKvOptions, StoreKvReport, Warmed, warm};
use qpair_machine::{Bounds, STORE_MEMORY_BYTES};
use serde::Serialize;

use crate::failure::Result;
use crate::parse::number::{
    WORKERS_MAX, parse_count, parse_run_seconds, parse_seconds, parse_size,
};
use crate::parse::store::{EncryptionArgs, LogDeviceArgs};
use crate::show::bar::Bar;
use crate::show::output::{aligned, print_report};
use crate::show::text::{count, counted, size};

/// The minimum memory for each task where memory is scarce, in bytes: the pages on the way down a
/// tree, and the data that the task gathers.
const TASK_BYTES_MIN: u64 = 128 << 10;

#[derive(Args, Clone, Debug)]
pub(super) struct WorkerArgs {
    /// Memory for pages [default: 256MiB; less where limits of the process leave less]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,

    /// Allocate all memory at the start, not on first use
    #[arg(long)]
    pub(super) prefault: bool,

    /// Interface to the kernel: auto, io_uring, io_uring+k, libaio, posix:threads=4, ...
    #[arg(long = "interface", alias = "io", value_name = "MODE", default_value = "auto")]
    pub(super) io: Mode,

    /// Worker threads, one per core [default: as many as cores]
    #[arg(long, value_name = "N", value_parser = parse_count::<usize, WORKERS_MAX>)]
    pub(super) workers: Option<usize>,
}

impl WorkerArgs {
    /// Returns the memory for pages in bytes: the given size, or the usual size within the limits
    /// of the process.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory.unwrap_or_else(|| Bounds::read().pages_bytes(STORE_MEMORY_BYTES))
    }

    /// Returns the number of tasks of each worker: the given number, or as many of the usual number
    /// as the memory allows.
    pub(super) fn tasks(&self, given: Option<usize>, usual: usize) -> usize {
        let worth = self.memory_bytes() / TASK_BYTES_MIN;
        given.unwrap_or_else(|| usual.min(usize::try_from(worth).unwrap_or(usize::MAX).max(1)))
    }
}

#[derive(Args, Clone, Copy, Debug)]
pub(super) struct WarmArgs {
    /// Fill memory with pages before the run, in device order
    #[arg(long)]
    pub(super) warm: bool,

    /// Seconds to run before the measurement
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = parse_seconds)]
    pub(super) warm_up: f64,
}

#[derive(Args, Clone, Debug)]
pub(super) struct DeviceArgs {
    /// Go through the page cache, for file systems without direct I/O
    #[arg(long)]
    pub(super) buffered: bool,

    /// Show the workers' time in each part of their loop
    #[arg(long)]
    pub(super) cycles: bool,

    /// Find the parent of each evicted page from the root, to measure what stored parents save
    #[arg(long)]
    pub(super) no_parent_hints: bool,

    #[command(flatten)]
    log: LogDeviceArgs,

    #[command(flatten)]
    key: EncryptionArgs,
}

impl DeviceArgs {
    pub(super) fn log(&self) -> Option<PathBuf> {
        self.log.device().map(Path::to_owned)
    }

    pub(super) fn key(&self) -> Option<EncryptionKey> {
        self.key.key().cloned()
    }
}

/// Notes the number of tasks that `ran` clients make, if the warm-up chose it.
pub(super) fn note_chosen(ran_on: &mut StoreKvReport, ran: usize, chose: bool) {
    if chose && ran > 0 {
        let max = std::mem::replace(&mut ran_on.tasks, ran.div_ceil(ran_on.workers.max(1)));
        ran_on.tasks_chosen_of = Some(max);
    }
}

/// Says that a number of tasks was chosen, and of how many.
pub(super) fn chosen_of(max: Option<usize>) -> String {
    max.map_or(String::new(), |max| format!(", chosen of up to {max} in the warm-up"))
}

pub(crate) fn arrivals(rate_per_s: f64, done_per_s: f64) -> String {
    let late = match done_per_s < 0.95 * rate_per_s {
        true => "; the store does NOT keep up, and latency grows with the run",
        false => "",
    };
    format!("{} /s at random times, latency from when each was due{late}", count(rate_per_s as u64))
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// The store; created and loaded if it is missing
    #[arg(long, value_name = "PATH")]
    pub(super) store: PathBuf,

    #[command(flatten)]
    pub(super) on: WorkerArgs,

    /// Seconds to measure
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = parse_run_seconds)]
    pub(super) seconds: f64,

    #[command(flatten)]
    pub(super) warm: WarmArgs,

    /// Write no log: a crash loses all changes after the last checkpoint
    #[arg(long)]
    pub(super) no_log: bool,

    /// Use serializable transactions instead of snapshot isolation
    #[arg(long)]
    serializable: bool,

    /// Page size of a new store: 4KiB for records read one by one, 16KiB for long scans
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = parse_size)]
    page_size: u64,

    #[command(flatten)]
    pub(super) device: DeviceArgs,

    /// Seed of the data and the inputs
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,

    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl RunArgs {
    pub(super) fn open(&self, tables: &[&str]) -> Result<StoreKv> {
        let options = StoreKvOptions {
            store: self.store.clone(),
            drivers: crate::interrupt::drivers(),
            memory_bytes: self.on.memory_bytes(),
            prefault: self.on.prefault,
            io: self.on.io,
            workers: self.on.workers.unwrap_or(0),
            page_size: usize::try_from(self.page_size).unwrap_or(usize::MAX),
            buffered: self.device.buffered,
            log: !self.no_log,
            cycles: self.device.cycles,
            parent_hints: !self.device.no_parent_hints,
            log_device: self.device.log(),
            encryption_key: self.device.key(),
            isolation: if self.serializable {
                Isolation::Serializable
            } else {
                Isolation::Snapshot
            },
        };
        Ok(StoreKv::open(&options, tables)?)
    }

    /// Reports the interface, workers and memory of an open store with `tasks` tasks for each
    /// worker. Reads the store into memory first, if requested.
    pub(super) fn begin(&self, kv: &StoreKv, tasks: usize, bar: &Bar) -> Result<StoreKvReport> {
        let warmed = if self.warm.warm { Some(warm(kv.store(), bar)?) } else { None };
        Ok(StoreKvReport { warmed, ..kv.report(tasks) })
    }

    pub(super) fn print<R: Serialize>(
        &self,
        report: &R,
        ran_on: &StoreKvReport,
        text: fn(&R, &StoreKvReport) -> Vec<String>,
    ) -> Result<()> {
        print_report(self.json, &Full { ran_on, report }, || text(report, ran_on))
    }
}

pub(super) fn of_warmed(warmed: &Warmed) -> String {
    let mut words = format!(
        "{}, {} in {:.2} s: {}/s",
        counted(warmed.pages, "page"),
        size(warmed.bytes),
        warmed.seconds,
        size((warmed.bytes as f64 / warmed.seconds.max(1e-9)) as u64)
    );
    if warmed.full {
        words += "; memory is full";
    }
    if warmed.unread > 0 {
        words += &format!("; {} could not be read", count(warmed.unread));
    }
    words
}

/// A workload's report, with the configuration of the store.
#[derive(Serialize)]
struct Full<'a, R> {
    #[serde(flatten)]
    ran_on: &'a StoreKvReport,
    #[serde(flatten)]
    report: &'a R,
}

/// Lines with a name and a value, in the order in which they were added.
#[derive(Default)]
pub(super) struct Lines(Vec<(&'static str, String)>);

impl Lines {
    pub(super) fn of(ran_on: &StoreKvReport, durability: &str) -> Self {
        let log = match (&ran_on.log_device, ran_on.log) {
            (_, false) => ", no log".to_owned(),
            (Some(device), true) => format!(", log on {device}"),
            (None, true) => String::new(),
        };
        let serializable = if ran_on.serializable { ", serializable" } else { "" };
        let mut lines = Self(vec![
            ("interface", format!("{} ({})", ran_on.io, ran_on.io_mode)),
            (
                "workers",
                format!(
                    "{} of {}{}; commits: {durability}{serializable}{log}",
                    ran_on.workers,
                    counted(ran_on.tasks as u64, "task"),
                    chosen_of(ran_on.tasks_chosen_of)
                ),
            ),
        ]);
        if let Some(warmed) = &ran_on.warmed {
            lines.add("read first", of_warmed(warmed));
        }
        lines
    }

    pub(super) fn add(&mut self, name: &'static str, value: impl Into<String>) {
        self.0.push((name, value.into()));
    }

    pub(super) fn add_store(&mut self, what: &str, bytes: Option<u64>, ran_on: &StoreKvReport) {
        let bytes = bytes.map_or(String::new(), |bytes| format!(", {}", size(bytes)));
        self.add("store", format!("{what}{bytes} over {} of memory", size(ran_on.memory_bytes)));
    }

    pub(super) fn add_loaded(&mut self, records_per_s: Option<f64>) {
        if let Some(speed) = records_per_s {
            self.add("loaded at", format!("{} records/s", count(speed as u64)));
        }
    }

    pub(super) fn add_log(&mut self, bytes_per_commit: Option<f64>, per_flush: Option<f64>) {
        let bytes = bytes_per_commit.map(|bytes| format!("{bytes:.0} bytes per transaction"));
        let per_flush = per_flush.map(|commits| format!("{commits:.1} commits per flush"));
        let known: Vec<String> = bytes.into_iter().chain(per_flush).collect();
        if !known.is_empty() {
            self.add("log", known.join(", "));
        }
    }

    pub(super) fn add_device(&mut self, of: &str, reads: Option<f64>, writes: Option<f64>) {
        if let (Some(reads), Some(writes)) = (reads, writes) {
            self.add("device", format!("{reads:.3} reads and {writes:.3} writes per {of}"));
        }
    }

    pub(super) fn add_seconds(&mut self, by_second: &[u64], of: &str) {
        if let (Some(slowest), Some(fastest)) = (by_second.iter().min(), by_second.iter().max()) {
            self.add("by second", format!("{} to {} {of}", count(*slowest), count(*fastest)));
        }
    }

    pub(super) fn into_text(self) -> Vec<String> {
        aligned(14, self.0)
    }

    /// Returns the lines, and the parts of the workers' loop as a table.
    pub(super) fn with_parts(self, parts: &[PartReport], of: &str) -> Vec<String> {
        let mut lines = self.into_text();
        lines.extend((!parts.is_empty()).then(|| "time of the workers".to_owned()));
        lines.extend(parts.iter().map(|part| {
            let share = 100.0 * part.share;
            format!("  {:<12} {share:>5.1} %  {:>8.3} us per {of}", part.part, part.us_per_op)
        }));
        lines
    }
}

pub(super) fn table(header: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column).map(String::len));
        cells.chain([header[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells = cells.zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let head = line(&mut header.iter().copied());
    let rows = rows.iter().map(|row| line(&mut row.iter().map(String::as_str)));
    std::iter::once(head).chain(rows).collect()
}
