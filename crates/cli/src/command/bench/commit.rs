//! `qpair bench commit`.

use clap::Args;
use qpair_bench::StoreKvReport;
use qpair_bench::commit::{
    BaselineOptions, COMMIT_TABLES, CommitOptions, CommitReport, CommitWork, baseline, run_commit,
};
use qpair_bench::kv::Durability;

use super::store::{Lines, RunArgs};
use crate::failure::{Exit, Result};
use crate::interrupt::{Interrupt, interrupted};
use crate::parse::number::{RECORDS_MAX, TASKS_MAX, parse_count, parse_seconds};
use crate::parse::store::parse_durability;
use crate::show::bar::Bar;
use crate::show::text::{count, counted};

/// Run small transactions: durable updates of single rows, or inserts in random order
#[derive(Args, Debug)]
#[command(after_help = "\
Each client begins its next transaction after the commit of the last one, with the given --durability. Keys have 8 \
bytes, values 120. --baseline measures the device alone after the run, over the same file and interface: it reads 4 \
KiB at a random offset, and times writing the same bytes back with a flush.

Examples:
  qpair bench commit --store c.qpair --baseline 3
  qpair bench commit --store c.qpair --clients 256
  qpair bench commit --store i.qpair --insert --records 4000000 --rows 100 --clients 64 \\
      --durability async
  qpair bench commit --store u.qpair --records 24000000 --memory 320MiB --clients 256 \\
      --durability async --seconds 600 --json")]
pub(crate) struct Commit {
    #[command(flatten)]
    run: RunArgs,

    /// Clients, distributed over the workers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_count::<usize, TASKS_MAX>)]
    clients: usize,

    /// Records
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = parse_count::<u64, RECORDS_MAX>)]
    records: u64,

    /// Rows of a transaction
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_count::<u32, 1_000_000>)]
    rows: u32,

    /// Insert all records in random order into a new store, instead of updates; --seconds has no
    /// effect
    #[arg(long)]
    insert: bool,

    /// Durability that commits wait for: sync, group or async
    #[arg(long, value_name = "WHEN", default_value = "sync", value_parser = parse_durability)]
    durability: Durability,

    /// Seconds to measure the device alone after the run; 0: none
    #[arg(long, value_name = "S", default_value_t = 0.0, value_parser = parse_seconds)]
    baseline: f64,
}

impl Commit {
    pub(crate) fn run(self) -> Result<Exit> {
        let interrupt = Interrupt::install()?;
        let progress = Bar::new(interrupt.clone());
        let kv = self.run.open(&COMMIT_TABLES)?;
        let tasks = self.clients.div_ceil(kv.store().workers());
        let ran_on = self.run.begin(&kv, tasks, &progress)?;
        let options = CommitOptions {
            work: if self.insert { CommitWork::Insert } else { CommitWork::Update },
            records: self.records,
            rows_per_tx: self.rows,
            clients: self.clients,
            seconds: self.run.seconds,
            warm_up_seconds: self.run.warm.warm_up,
            durability: self.durability,
            seed: self.run.seed,
        };
        let outcome = run_commit(&kv, &options, &progress);
        kv.close()?;
        let outcome = outcome.and_then(|mut report| {
            if self.baseline > 0.0 {
                let options = BaselineOptions {
                    path: self.run.store.clone(),
                    io: self.run.on.io,
                    buffered: self.run.device.buffered,
                    seconds: self.baseline,
                };
                report.set_baseline(baseline(&options, &progress)?);
            }
            Ok(report)
        });
        if interrupt.is_requested() {
            return interrupted("the store was closed");
        }
        let report = outcome?;
        self.run.print(&report, &ran_on, text)?;
        Ok(Exit::Done)
    }
}

fn text(report: &CommitReport, ran_on: &StoreKvReport) -> Vec<String> {
    let mut lines = Lines::of(ran_on, &report.durability);
    lines.add_store(&format!("{} records", count(report.records)), report.store_bytes, ran_on);
    lines.add_loaded(report.load_records_per_s);
    let (commits, rows) = (count(report.commits_per_s as u64), count(report.rows_per_s as u64));
    let (clients, per_tx) =
        (counted(report.clients as u64, "client"), counted(report.rows_per_tx.into(), "row"));
    lines.add(
        "commits",
        format!("{commits} /s of {clients} over {:.1} s; {per_tx} each", report.seconds),
    );
    lines.add("rows", format!("{rows} {}s/s", report.work));
    lines.add_device("commit", report.device_reads_per_commit, report.device_writes_per_commit);
    lines.add_log(report.log_bytes_per_commit, report.commits_per_flush);
    lines.add("CPU", format!("{:.2} us per commit, user and system", report.cpu_us_per_commit));
    let latency = report.latency_us;
    lines.add(
        "latency",
        format!(
            "p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us, slowest {:.1} us",
            latency.p50, latency.p99, latency.p999, latency.max
        ),
    );
    if let Some(baseline) = &report.baseline {
        let bare = baseline.latency_us;
        lines.add(
            "device alone",
            format!("4 KiB and a flush: p50 {:.1} us, p99 {:.1} us", bare.p50, bare.p99),
        );
    }
    if let Some(ratio) = report.p50_over_baseline {
        lines.add("p50", format!("{ratio:.2} x the device alone"));
    }
    lines.add_seconds(&report.rows_by_second, "rows");
    if let Some(ratio) = report.slowest_second_over_median {
        lines.add("slowest second", format!("{ratio:.2} x the median second"));
    }
    lines.with_parts(&report.cycles, "commit")
}
