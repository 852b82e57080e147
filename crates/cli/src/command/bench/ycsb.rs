//! `qpair bench ycsb`.

use clap::Args;
use qpair_bench::StoreKvReport;
use qpair_bench::kv::Durability;
use qpair_bench::ycsb::{YCSB_TABLES, YcsbOptions, YcsbReport, YcsbWorkload, run_ycsb};

use super::store::{Lines, RunArgs, note_chosen, table};
use crate::failure::{Exit, Result};
use crate::interrupt::{Interrupt, interrupted};
use crate::parse::number::{RECORDS_MAX, TASKS_MAX, parse_count};
use crate::parse::store::parse_durability;
use crate::show::bar::Bar;
use crate::show::text::count;

/// Run YCSB's core workloads A to F
#[derive(Args, Debug)]
#[command(after_help = "\
Workloads, each operation a transaction of its own:
  A  half reads, half updates
  B  95 % reads, 5 % updates
  C  reads
  D  95 % reads of the latest records, 5 % inserts
  E  95 % scans of up to 100 records, 5 % inserts
  F  half reads, half read-modify-writes
Keys have a scrambled Zipfian distribution with a skew of 0.99; D prefers the latest keys. An update replaces all \
fields, a read-modify-write one. Each worker runs --tasks clients; each client does one operation after the other.

Examples:
  qpair bench ycsb --workload A --store y.qpair --records 3000000 --memory 300MiB
  qpair bench ycsb --workload E --store y.qpair --records 3000000 --operations 1000000 --json")]
pub(crate) struct Ycsb {
    #[command(flatten)]
    run: RunArgs,

    /// A, B, C, D, E or F
    #[arg(long, value_name = "LETTER")]
    workload: YcsbWorkload,

    /// Records of a new store
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = parse_count::<u64, RECORDS_MAX>)]
    records: u64,

    /// Operations to do; replaces --seconds
    #[arg(long, value_name = "N", value_parser = parse_count::<u64, { u64::MAX }>)]
    operations: Option<u64>,

    /// Fields of a record
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = parse_count::<usize, 1000>)]
    fields: usize,

    /// Bytes of a field
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = parse_count::<usize, { 1 << 20 }>)]
    field_bytes: usize,

    /// Clients of each worker [default: the fewest, up to 64, that are as fast as more: tried in
    /// the warm-up; all with --operations; fewer where memory is little]
    #[arg(long, value_name = "N", value_parser = parse_count::<usize, TASKS_MAX>)]
    tasks: Option<usize>,

    /// Durability that commits wait for: sync, group or async
    #[arg(long, value_name = "WHEN", default_value = "group", value_parser = parse_durability)]
    durability: Durability,

    /// Load the store, and run nothing
    #[arg(long, conflicts_with = "operations")]
    load_only: bool,
}

impl Ycsb {
    pub(crate) fn run(self) -> Result<Exit> {
        let interrupt = Interrupt::install()?;
        let kv = self.run.open(&YCSB_TABLES)?;
        let bar = Bar::new(interrupt.clone());
        let tasks = self.run.on.tasks(self.tasks, 64);
        let mut ran_on = self.run.begin(&kv, tasks, &bar)?;
        let options = YcsbOptions {
            workload: self.workload,
            records: self.records,
            fields: self.fields,
            field_bytes: self.field_bytes,
            clients: ran_on.workers.saturating_mul(tasks),
            choose_for: self.tasks.is_none().then_some(ran_on.workers),
            seconds: if self.load_only { 0.0 } else { self.run.seconds },
            operations: self.operations,
            warm_up_seconds: self.run.warm.warm_up,
            durability: self.durability,
            seed: self.run.seed,
        };
        let outcome = run_ycsb(&kv, &options, &bar);
        kv.close()?;
        if interrupt.is_requested() {
            return interrupted("the store was closed");
        }
        let report = outcome?;
        let chose = options.choose_for.is_some()
            && self.operations.is_none()
            && options.warm_up_seconds > 0.0;
        note_chosen(&mut ran_on, report.clients, chose);
        self.run.print(&report, &ran_on, text)?;
        Ok(Exit::Done)
    }
}

fn text(report: &YcsbReport, ran_on: &StoreKvReport) -> Vec<String> {
    let mut lines = Lines::of(ran_on, &report.durability);
    let records =
        format!("{} records of {} bytes", count(report.records), count(report.record_bytes as u64));
    lines.add_store(&records, report.store_bytes, ran_on);
    lines.add_loaded(report.load_records_per_s);
    if report.seconds == 0.0 {
        return lines.into_text();
    }
    let ops = count(report.ops_per_s as u64);
    lines.add(
        "operations",
        format!("{ops} /s of workload {} over {:.1} s", report.workload, report.seconds),
    );
    if report.missed > 0 {
        lines.add("missed", format!("{} reads of records not there", count(report.missed)));
    }
    lines.add_device("operation", report.device_reads_per_op, report.device_writes_per_op);
    let log_bytes = report.log_bytes.map(|bytes| bytes as f64 / report.ops.max(1) as f64);
    lines.add_log(log_bytes, report.commits_per_flush);
    lines.add("CPU", format!("{:.2} us per operation, user and system", report.cpu_us_per_op));
    lines.add_seconds(&report.ops_by_second, "operations");
    let mut text = lines.with_parts(&report.cycles, "operation");
    text.push(String::new());
    let header = ["kind", "count", "p50 us", "p99 us", "p99.9 us", "max us", "conflicts"];
    let rows: Vec<Vec<String>> = report
        .kinds
        .iter()
        .map(|(name, kind)| {
            let latency = kind.latency_us;
            let mut row = vec![(*name).to_owned(), count(kind.count)];
            let us = [latency.p50, latency.p99, latency.p999, latency.max];
            row.extend(us.map(|us| format!("{us:.0}")));
            row.push(count(kind.conflicts));
            row
        })
        .collect();
    text.extend(table(&header, &rows));
    text
}
