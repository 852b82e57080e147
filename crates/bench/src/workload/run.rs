//! Runs one workload over one store.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use qpair::{Error, ErrorKind, Result};

use super::client::{Common, Task};
use super::kind::Workload;
use super::options::RunOptions;
use super::report::Report;
use crate::device::{CeilingOptions, ceiling};
use crate::harness::{Measured, Plan, measure, per};
use crate::kv::durability_name;
use crate::progress::Progress;
use crate::records::{Shuffle, prepare};
use crate::report::{LatencyReport, kernel_release};
use crate::store_kv::{StoreKv, warm};

/// Opens the store and fills it, unless it is filled or the workload inserts. Returns also the
/// records per second.
pub(crate) fn open_filled(
    workload: Workload,
    options: &RunOptions,
    progress: &dyn Progress,
) -> Result<(StoreKv, Option<f64>)> {
    let kv = options.open()?;
    let inserts = workload == Workload::Insert;
    let name = options.store.display().to_string();
    let fill_records_per_s = prepare(&kv, &name, options.records, inserts, progress)?;
    Ok((kv, fill_records_per_s))
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
    let (kv, fill_records_per_s) = open_filled(workload, options, progress)?;
    let store = kv.store();
    let pages = store.report();
    // A store that was just filled has free pages at its end until it is closed.
    let used_pages = pages.pages - pages.free_pages;
    let fits = used_pages * pages.page_size as u64 <= options.memory_bytes;
    let warms = workload != Workload::Insert && (fits || options.warm);
    let warmed = warms.then(|| warm(store, progress)).transpose()?;
    let measured = measured(workload, &kv, options, progress)?;
    let info = store.device_info();
    let report = store.report();
    let workers = store.workers();
    let reads_in_flight_max = store.metrics()?.reads_in_flight_max;
    kv.close()?;
    let measures_ceiling = options.ceiling_seconds > 0.0;
    let ceiling_reads_per_s =
        measures_ceiling.then(|| ceiling_of(options, progress)).transpose()?;
    let ops = measured.weight();
    let writes_records = matches!(workload, Workload::Update | Workload::Insert);
    let device = measured.system;
    let (reads, writes) = (device.device_reads.unwrap_or(0), device.device_writes.unwrap_or(0));
    Ok(Report {
        workload: workload.to_string(),
        io: info.interface,
        io_mode: info.mode,
        workers,
        tasks: measured.clients.div_ceil(workers),
        tasks_chosen_of: (options.choose_tasks
            && options.rate_per_s.is_none()
            && options.warm_up_seconds > 0.0)
            .then_some(options.tasks),
        durability: writes_records.then(|| durability_name(options.durability).to_owned()),
        records: options.records,
        memory_bytes: options.memory_bytes,
        store_bytes: report.pages * report.page_size as u64,
        seconds: measured.wall_s,
        rate_per_s: options.rate_per_s,
        ops,
        ops_per_s: measured.per_s(ops),
        device_reads_per_s: measured.per_s(reads),
        reads_in_flight_max,
        device_writes_per_s: measured.per_s(writes),
        reads_per_op: per(ops, reads),
        device_bytes_per_op: per(ops, device.device_bytes.unwrap_or(0)),
        device_read_us: measured.device_read_us().unwrap_or(0.0),
        system_calls_per_op: per(ops, device.system_calls.unwrap_or(0)),
        cpu_us_per_op: measured.cpu_us_per(ops),
        kernel_share: measured.kernel_s / measured.cpu_s.max(1e-9),
        cycles: measured.parts(ops),
        latency_us: LatencyReport::of(&measured.kinds[0].histogram),
        ops_by_second: measured.by_second,
        ceiling_reads_per_s,
        fill_records_per_s,
        warmed,
        config_hash: options.hash(workload),
        kernel: kernel_release(),
    })
}

/// Runs the tasks of all workers.
fn measured(
    workload: Workload,
    kv: &StoreKv,
    options: &RunOptions,
    progress: &dyn Progress,
) -> Result<Measured> {
    let workers = kv.store().workers();
    let inserts = workload == Workload::Insert;
    let (records, shuffle) = (options.records, Shuffle::new(options.records));
    let common = Arc::new(Common { workload, records, shuffle, next: AtomicU64::new(0) });
    let plan = Plan {
        clients: workers * options.tasks,
        choose_for: options.choose_tasks.then_some(workers),
        kinds: 1,
        warm_up_s: if inserts { 0.0 } else { options.warm_up_seconds },
        seconds: (!inserts).then_some(options.seconds),
        rate_per_s: options.rate_per_s,
        total: options.records,
        phase: match workload {
            Workload::Insert => "inserting in random order".to_owned(),
            _ => format!("{workload} over {}", kv.store().device_info().interface),
        },
    };
    let task = move |number, session| {
        let (worker, task) = (number % workers, number / workers);
        Task::new(&session, common.clone(), (worker * 1_000_003 + task) as u64)
    };
    measure(kv, &plan, task, progress)
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
