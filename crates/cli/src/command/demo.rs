//! `qpair demo`.

use std::path::PathBuf;

use clap::Args;
use qpair_bench::{DemoOptions, DemoReport, DemoRow, demo};

use crate::failure::{Exit, Result};
use crate::interrupt::{Interrupt, interrupted};
use crate::parse::number::{TASKS_MAX, WORKERS_MAX, parse_count, parse_seconds, parse_size};
use crate::show::bar::Bar;
use crate::show::output::print_report;
use crate::show::text::count;

/// Show a store ten times larger than its memory, over every interface
///
/// The demo measures random lookups in a new store over every interface of this machine, beside the
/// speed of the device alone, and names the interface to use. A last run uses the user-space NVMe
/// driver on an emulated drive. The demo takes about two minutes, and removes all its files, also
/// those of a killed demo.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair demo
  qpair demo --dir /mnt/fast --size 20GiB --memory 2GiB --seconds 30
  qpair demo --json > demo.json")]
pub(crate) struct Demo {
    /// Folder for the store
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,

    /// Size of the store
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = parse_size)]
    size: u64,

    /// Memory for pages [default: a tenth of the size]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,

    /// Seconds of lookups over each interface
    #[arg(long, value_name = "S", default_value_t = 20.0, value_parser = parse_seconds)]
    seconds: f64,

    /// Worker threads, one per core [default: as many as cores]
    #[arg(long, value_name = "N", value_parser = parse_count::<usize, WORKERS_MAX>)]
    workers: Option<usize>,

    /// Tasks of each worker: lookups in flight at once
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = parse_count::<usize, TASKS_MAX>)]
    tasks: usize,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Demo {
    pub(crate) fn run(self) -> Result<Exit> {
        let interrupt = Interrupt::install()?;
        let options = DemoOptions {
            dir: self.dir,
            size_bytes: self.size,
            memory_bytes: self.memory.unwrap_or(self.size / 10),
            seconds: self.seconds,
            workers: self.workers.unwrap_or(0),
            tasks: self.tasks,
        };
        let outcome = demo(&options, &Bar::new(interrupt.clone()));
        if interrupt.is_requested() {
            return interrupted("the demo's store is removed");
        }
        let report = outcome?;
        print_report(self.json, &report, || lines(&report))?;
        Ok(Exit::Done)
    }
}

fn lines(report: &DemoReport) -> Vec<String> {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let mut lines = vec![
        format!(
            "{} records of 128 bytes, a store of {:.0} MiB over {:.0} MiB of memory ({:.1} times); Linux {}",
            count(report.records),
            mib(report.store_bytes),
            mib(report.memory_bytes),
            report.store_bytes as f64 / report.memory_bytes as f64,
            report.kernel,
        ),
        format!("Filled in key order at {:.2} million records/s.", report.fill_records_per_s / 1e6),
        format!("The device alone is read fastest through {}.", report.ceiling),
        String::new(),
        format!(
            "{:<10} {:>10} {:>14} {:>9} {:>11} {:>9} {:>9} {:>9}",
            "interface",
            "lookups/s",
            "device reads/s",
            "of device",
            "CPU us each",
            "p50 us",
            "p99 us",
            "p99.9 us"
        ),
    ];
    lines.extend(report.rows.iter().map(line));
    lines.push(String::new());
    lines.push(
        "A smaller store through the user-space NVMe driver, on a soft drive in memory: what driver and store cost, not what your drive gives."
            .to_owned(),
    );
    lines.push(line(&report.user_space));
    lines.push(String::new());
    lines.push(report.verdict.clone());
    lines
}

fn line(row: &DemoRow) -> String {
    match (&row.report, &row.unavailable) {
        (Some(found), _) => format!(
            "{:<10} {:>10} {:>14} {:>9} {:>11.2} {:>9.0} {:>9.0} {:>9.0}",
            found.io,
            count(found.ops_per_s as u64),
            count(found.device_reads_per_s as u64),
            row.share_of_ceiling().map_or("-".to_owned(), |share| format!("{:.0}%", 100.0 * share)),
            found.cpu_us_per_op,
            found.latency_us.p50,
            found.latency_us.p99,
            found.latency_us.p999,
        ),
        (None, reason) => {
            format!("{:<10} not here: {}", row.interface, reason.as_deref().unwrap_or("unknown"))
        }
    }
}
