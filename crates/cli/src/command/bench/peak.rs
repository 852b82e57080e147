//! `qpair bench peak`.

use std::time::Duration;

use clap::Args;
use qpair_block::DeviceSpec;
use qpair_kernel::Mode;
use qpair_workload::{PeakOptions, PeakReport, peak};
use serde_json::json;

use crate::failure::{Exit, Failure, Result};
use crate::interrupt::{Interrupt, interrupted};
use crate::parse::number::{parse_seconds, parse_size};
use crate::show::bar::Bar;
use crate::show::output::{aligned, print_report};
use crate::show::text::count;
use crate::study::lab::fill_unwritten;
use qpair_bench::Progress;

/// Measure the most reads that one core can make, with a minimal loop
#[derive(Args, Debug)]
#[command(after_help = "\
Reads are random, with registered buffers, submitted and completed in batches, like those of fio's t/io_uring. DEVICE \
is only read. A null: device shows the cost of qpair's own layers per I/O.

Examples:
  qpair bench peak
  qpair bench peak /dev/nvme0n1 --interface io_uring+p --threads 2
  qpair bench peak FILE --interface libaio --depth 64 --batch 16 --json")]
pub(crate) struct Peak {
    /// A file, a block device or a device specifier
    #[arg(default_value = "null:size=1TiB", long_help = qpair_drivers::help())]
    device: DeviceSpec,

    /// Interface and mode: io_uring, io_uring+p, io_uring+k, libaio, posix, io_uring_cmd, with
    /// switches after a colon
    #[arg(long, value_name = "MODE", default_value = "auto")]
    interface: Mode,

    /// Bytes of a read
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = parse_size)]
    bs: u64,

    /// Reads in flight of each thread
    #[arg(long, value_name = "N", default_value_t = 128)]
    depth: u32,

    /// Reads per batch, for submission and for completion
    #[arg(long, value_name = "N", default_value_t = 32)]
    batch: u32,

    /// Threads, one to a core
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: u32,

    /// Seconds
    #[arg(long, value_name = "S", default_value_t = 3.0, value_parser = parse_seconds)]
    seconds: f64,

    /// Go through the page cache
    #[arg(long)]
    buffered: bool,

    /// First fill a file's unwritten parts, which read as zeros, with random bytes
    #[arg(long)]
    prefill: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Peak {
    pub(crate) fn run(self) -> Result<Exit> {
        let interrupt = Interrupt::install()?;
        let bar = Bar::new(interrupt.clone());
        if let DeviceSpec::File(path) = &self.device {
            if self.prefill {
                bar.begin("filling", 100);
                let filled = fill_unwritten(&self.device, &bar);
                bar.end();
                if interrupt.is_requested() {
                    return interrupted(format_args!("{} is filled in part", path.display()));
                }
                filled?;
            } else if let Some(note) = qpair_machine::unwritten_note(path) {
                eprintln!("qpair: note: {note}; --prefill fills it first");
            }
        }
        bar.begin("reading", 100);
        let options = PeakOptions {
            spec: self.device,
            drivers: crate::interrupt::drivers(),
            mode: self.interface,
            direct: !self.buffered,
            block_bytes: u32::try_from(self.bs)
                .map_err(|_| Failure::usage("--bs is at most 4 GiB"))?,
            depth: self.depth,
            batch: self.batch,
            threads: self.threads,
            duration: Duration::from_secs_f64(self.seconds),
            seed: 1,
        };
        let outcome = peak(&options, &bar);
        bar.end();
        let report = outcome?;
        let json = in_json(&options, &report);
        print_report(self.json, &json, || aligned(14, lines(&options, &report)))?;
        Ok(if interrupt.is_requested() { Exit::Interrupted } else { Exit::Done })
    }
}

fn in_json(options: &PeakOptions, report: &PeakReport) -> serde_json::Value {
    let ios = report.ios.max(1) as f64;
    json!({
        "device": options.spec.to_string(),
        "interface": report.device.interface,
        "mode": report.device.mode,
        "block_bytes": options.block_bytes,
        "depth": options.depth,
        "batch": options.batch,
        "threads": options.threads,
        "seconds": report.elapsed.as_secs_f64(),
        "ios": report.ios,
        "ios_per_s": report.ios_per_s(),
        "cpu_ns_per_io": report.cpu_ns_per_io(),
        "user_ns_per_io": report.user.as_nanos() as f64 / ios,
        "system_ns_per_io": report.system.as_nanos() as f64 / ios,
        "system_calls_per_io": report.system_calls as f64 / ios,
        "instructions_per_io": report.instructions.map(|count| count as f64 / ios),
        "ios_by_second": report.ios_by_second,
    })
}

fn lines(options: &PeakOptions, report: &PeakReport) -> [(&'static str, String); 4] {
    let ios = report.ios.max(1) as f64;
    let instructions =
        report.instructions.map_or("instructions not available".to_owned(), |count| {
            format!("{:.0} instructions", count as f64 / ios)
        });
    [
        (
            "device",
            format!("{} by {} ({})", options.spec, report.device.interface, report.device.mode),
        ),
        (
            "load",
            format!(
                "{} threads, {} in flight each, in batches of {}, {} bytes a read",
                options.threads, options.depth, options.batch, options.block_bytes
            ),
        ),
        (
            "reads",
            format!(
                "{} /s over {:.1} s",
                count(report.ios_per_s() as u64),
                report.elapsed.as_secs_f64()
            ),
        ),
        (
            "cost of a read",
            format!(
                "{:.1} ns CPU ({:.1} user, {:.1} system), {:.3} system calls, {instructions}",
                report.cpu_ns_per_io(),
                report.user.as_nanos() as f64 / ios,
                report.system.as_nanos() as f64 / ios,
                report.system_calls as f64 / ios,
            ),
        ),
    ]
}
