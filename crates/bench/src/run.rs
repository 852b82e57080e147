//! One workload over one store.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use qpair::{Error, ErrorKind, Mode, Options, Result, Store};
use qpair_drivers::Drivers;
use serde::Serialize;

use crate::ceiling::{CeilingOptions, ceiling};
use crate::dataset::{self, VALUE_BYTES};
use crate::kv::Durability;
use crate::measure::{Measured, measure};
use crate::progress::Progress;
use crate::report::{LatencyReport, PartReport, Report, kernel_release};
use crate::store_kv::check_tables;
use crate::warm::warm;
use crate::workload::Workload;

/// The table of the records.
const TABLE: &str = "bench";

/// Options of a run.
#[derive(Clone, Debug, Serialize)]
pub struct RunOptions {
    /// The path of the store; a store that does not exist is created and filled.
    pub store: PathBuf,
    /// The drivers of a store on devices that bypass the kernel.
    #[serde(skip)]
    pub drivers: Drivers,
    /// The number of records.
    pub records: u64,
    /// Memory for pages in bytes.
    pub memory_bytes: u64,
    /// Whether opening the store allocates all of this memory.
    pub prefault: bool,
    /// The interface and its mode.
    #[serde(serialize_with = "as_text")]
    pub io: Mode,
    /// The number of workers; 0: one for each core.
    pub workers: usize,
    /// The number of tasks of each worker.
    pub tasks: usize,
    /// Seconds to measure.
    pub seconds: f64,
    /// Whether as much of the store as fits is read into memory before the run, even if not all of
    /// it fits.
    pub warm: bool,
    /// Seconds to run before the measurement, so that memory is as full as it will get.
    pub warm_up_seconds: f64,
    /// The page size of a new store in bytes.
    pub page_size: usize,
    /// Whether I/O goes through the page cache.
    pub buffered: bool,
    /// The mean number of lookups or updates that arrive a second, at random times; `None`: each
    /// task runs one after the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// Seconds for each of 8 combinations to measure the device alone afterwards; 0: it is not
    /// measured.
    pub ceiling_seconds: f64,
    /// The most requests that a worker has in flight.
    pub depth: u32,
    /// The most page reads among these requests; 0: the number is adapted to the throughput.
    pub reads: u32,
    /// The number of completions that a busy worker tries to take at once.
    pub batch: u32,
    /// The longest wait for this batch in microseconds.
    pub linger_us: u32,
    /// Whether the workers' time is broken down.
    pub cycles: bool,
    /// Whether eviction finds the parent of a page by a hint in its frame, and not by a search from
    /// the root.
    pub parent_hints: bool,
    /// A separate device for the store's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_device: Option<PathBuf>,
    /// The durability that the commit of an update or insert waits for. Each is a transaction of
    /// its own.
    #[serde(serialize_with = "as_text")]
    pub durability: Durability,
}

fn as_text<S: serde::Serializer>(
    value: &impl std::fmt::Display,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            store: "bench.qpair".into(),
            drivers: Drivers::new(),
            records: 1_000_000,
            memory_bytes: 256 << 20,
            prefault: false,
            io: Mode::default(),
            workers: 0,
            tasks: 128,
            seconds: 10.0,
            warm: false,
            warm_up_seconds: 2.0,
            page_size: 4096,
            buffered: false,
            rate_per_s: None,
            ceiling_seconds: 0.0,
            depth: 512,
            reads: 0,
            batch: 32,
            linger_us: 1000,
            cycles: false,
            parent_hints: true,
            log_device: None,
            durability: Durability::default(),
        }
    }
}

impl RunOptions {
    pub(crate) fn open(&self) -> Result<Store> {
        let mut options = Options::new(&self.store)
            .memory_bytes(self.memory_bytes)
            .prefault(self.prefault)
            .workers(self.workers)
            .io(self.io)
            .drivers(&self.drivers)
            .page_size(self.page_size)
            .buffered(self.buffered)
            .depth(self.depth)
            .reads(self.reads)
            .batch(self.batch, self.linger_us)
            .durability(self.durability.into())
            .cycles(self.cycles)
            .parent_hints(self.parent_hints)
            .publish_beside(true);
        if let Some(log_device) = &self.log_device {
            options = options.log_device(log_device);
        }
        options.open()
    }

    fn hash(&self, workload: Workload) -> String {
        let text = format!("{workload} {}", serde_json::to_string(self).unwrap_or_default());
        format!("{:08x}", crc_fast::crc32_iscsi(text.as_bytes()))
    }
}

/// Runs a workload, and reports the results.
///
/// # Errors
/// Errors of the store; `Corrupt` if a record has a value that was not written.
pub fn run(workload: Workload, options: &RunOptions, progress: &dyn Progress) -> Result<Report> {
    if options.tasks == 0 || options.records == 0 || options.seconds <= 0.0 {
        return Err(Error::new(
            ErrorKind::Invalid,
            "the number of tasks, records and seconds must be at least 1",
        ));
    }
    if options.rate_per_s.is_some() && !matches!(workload, Workload::Lookup | Workload::Update) {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("{workload}: only lookups and updates arrive at a rate"),
        ));
    }
    let store = options.open()?;
    check_tables(&store, &options.store, &[TABLE])?;
    let fill_records_per_s = match workload {
        Workload::Insert => {
            if store.existing_table(TABLE)?.is_some() {
                return Err(Error::with_hint(
                    ErrorKind::Exists,
                    format!("{} has been filled already", options.store.display()),
                    "inserts go into a new store: remove it, or name another",
                ));
            }
            None
        }
        _ => fill(&store, options, progress)?,
    };
    let pages = store.report();
    let fits = pages.pages * pages.page_size as u64 <= options.memory_bytes;
    let warmed = match workload != Workload::Insert && (fits || options.warm) {
        true => Some(warm(&store, progress)?),
        false => None,
    };
    let table = store.table(TABLE)?.task();
    let measured = measure(workload, &store, &table, options, progress)?;
    let info = store.device_info();
    let report = store.report();
    let workers = store.workers();
    let reads_in_flight_max = store.metrics()?.reads_in_flight_max;
    drop(table);
    store.close()?;
    let ceiling_reads_per_s = match options.ceiling_seconds > 0.0 {
        true => Some(ceiling_of(options, progress)?),
        false => None,
    };
    let Measured { wall_s, cpu_s, ops, histogram, by_second, device, cycles, device_read_us } =
        measured;
    Ok(Report {
        workload: workload.to_string(),
        io: info.interface,
        io_mode: info.mode,
        workers,
        tasks: options.tasks,
        durability: workload.writes().then(|| options.durability.to_string()),
        records: options.records,
        memory_bytes: options.memory_bytes,
        store_bytes: report.pages * report.page_size as u64,
        seconds: wall_s,
        rate_per_s: options.rate_per_s,
        ops,
        ops_per_s: ops as f64 / wall_s,
        device_reads_per_s: device.reads as f64 / wall_s,
        reads_in_flight_max,
        device_writes_per_s: device.writes as f64 / wall_s,
        reads_per_op: device.reads as f64 / ops.max(1) as f64,
        device_bytes_per_op: (device.read_bytes + device.written_bytes) as f64 / ops.max(1) as f64,
        device_read_us,
        system_calls_per_op: device.system_calls as f64 / ops.max(1) as f64,
        cpu_us_per_op: cpu_s * 1e6 / ops.max(1) as f64,
        cycles: PartReport::of(&cycles, wall_s, ops),
        latency_us: LatencyReport::of(&histogram),
        ops_by_second: by_second,
        ceiling_reads_per_s,
        fill_records_per_s,
        warmed,
        config_hash: options.hash(workload),
        kernel: kernel_release(),
    })
}

fn ceiling_of(options: &RunOptions, progress: &dyn Progress) -> Result<f64> {
    let options = CeilingOptions {
        path: options.store.clone(),
        drivers: options.drivers.clone(),
        io: options.io,
        block_bytes: options.page_size as u32,
        buffered: options.buffered,
        seconds: options.ceiling_seconds,
        threads: vec![1, 2],
        depths: vec![32, 64, 128, 256],
    };
    Ok(ceiling(&options, progress)?.reads_per_s)
}

/// Fills the table by sorted load if it is empty, and returns the records per second.
pub(crate) fn fill(
    store: &Store,
    options: &RunOptions,
    progress: &dyn Progress,
) -> Result<Option<f64>> {
    let table = store.table(TABLE)?;
    if let Some(last) = table.range(..)?.reverse().next() {
        let (key, _) = last?;
        let there = key.try_into().map(u64::from_be_bytes).map_or(0, |last| last + 1);
        if there != options.records {
            return Err(Error::with_hint(
                ErrorKind::Exists,
                format!(
                    "{} holds {there} records, not {}",
                    options.store.display(),
                    options.records
                ),
                "name another store, or the number of records it has",
            ));
        }
        return Ok(None);
    }
    progress.begin("filling (sorted load)", options.records);
    let began = Instant::now();
    let done = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let handle = {
        let (table, records, done, stop) =
            (table.task(), options.records, done.clone(), stop.clone());
        store.spawn(move || async move {
            let mut loader = table.bulk_loader().await?;
            let mut value = [0; VALUE_BYTES];
            for record in 0..records {
                dataset::value(record, 0, &mut value);
                if let Err(error) = loader.push(&dataset::key(record), &value).await {
                    loader.abandon().await;
                    return Err(error);
                }
                if record % 65536 == 0 {
                    done.store(record, Ordering::Relaxed);
                    qpair::task::yield_now().await;
                    if stop.load(Ordering::Relaxed) {
                        loader.abandon().await;
                        return Err(interrupted());
                    }
                }
            }
            done.store(records, Ordering::Relaxed);
            loader.finish().await
        })
    };
    watch(progress, &done, &stop, &|| done.load(Ordering::Relaxed) >= options.records);
    handle.join()??;
    progress.end();
    Ok(Some(options.records as f64 / began.elapsed().as_secs_f64()))
}

/// Returns the error of work that was stopped on request.
pub(crate) fn interrupted() -> Error {
    Error::new(ErrorKind::Closed, "the run was interrupted")
}

/// Shows progress until the work is over or is to stop.
pub(crate) fn watch(
    progress: &dyn Progress,
    done: &AtomicU64,
    stop: &AtomicBool,
    over: &dyn Fn() -> bool,
) {
    while !over() {
        progress.at(done.load(Ordering::Relaxed));
        if progress.stop() {
            stop.store(true, Ordering::Relaxed);
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
