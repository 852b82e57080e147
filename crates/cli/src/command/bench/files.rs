//! `qpair bench files`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use qpair_workload::{FilesOptions, FilesReport, OpReport, Profile, run_files};
use serde_json::{Map, Value, json};

use crate::failure::{Exit, Result};
use crate::interrupt::Interrupt;
use crate::parse::number::{parse_seconds, parse_size};
use crate::show::output::print_report;
use crate::show::text::{count, size};

/// Run filebench's personalities over files in a directory
#[derive(Args, Debug)]
#[command(after_help = "\
Profiles: read-files and write-files (open, read or write a whole 16 KiB file, close), webserver, fileserver, varmail \
and oltp, with filebench's numbers of files and threads, sizes and flows. Files are created in DIR/qpair-PROFILE \
before the measurement; this folder is removed at the end.

Examples:
  qpair bench files --profile webserver /mnt
  qpair bench files --profile read-files /mnt --files 5000 --seconds 30 --drop-caches --json
  qpair bench files --profile varmail /mnt --threads 4 --loops 100")]
pub(crate) struct Files {
    /// A directory of the file system to measure
    dir: PathBuf,

    /// Profile of the file operations
    #[arg(long, value_name = "NAME", value_parser = parse_profile)]
    profile: Profile,

    /// Files at the start [default: the profile's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    files: Option<u32>,

    /// Mean size of a file [default: the profile's]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    size: Option<u64>,

    /// Threads of the profile's first role [default: the profile's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    threads: Option<u32>,

    /// Seconds to measure
    #[arg(long, value_name = "S", default_value_t = 60.0, value_parser = parse_seconds)]
    seconds: f64,

    /// End when each thread has run its flow this many times
    #[arg(long, value_name = "N")]
    loops: Option<u64>,

    /// Drop the page cache after the files are created; needs root
    #[arg(long)]
    drop_caches: bool,

    /// Seed of the random sizes and choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn parse_profile(name: &str) -> std::result::Result<Profile, String> {
    Profile::named(name).ok_or_else(|| format!("choose one of {}", Profile::NAMES.join(", ")))
}

impl Files {
    pub(crate) fn run(self) -> Result<Exit> {
        let interrupt = Interrupt::install()?;
        let mut profile = self.profile;
        profile.files = self.files.unwrap_or(profile.files);
        profile.file_bytes = self.size.unwrap_or(profile.file_bytes);
        if let (Some(threads), Some(role)) = (self.threads, profile.roles.first_mut()) {
            role.threads = threads;
        }
        let name = profile.name;
        let options = FilesOptions {
            profile,
            folder: self.dir,
            runtime: Duration::from_secs_f64(self.seconds),
            loops: self.loops,
            drop_caches: self.drop_caches,
            seed: self.seed,
        };
        let report = run_files(&options, &interrupt)?;
        print_report(self.json, &told(name, &report), || lines(name, &report))?;
        Ok(Exit::Done)
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn told(name: &str, report: &FilesReport) -> Value {
    let about = |did: &OpReport| {
        json!({
            "count": did.count,
            "bytes": did.bytes,
            "mean_us": did.latency.mean() / 1e3,
            "p50_us": us(did.latency.value_at_quantile(0.5)),
            "p99_us": us(did.latency.value_at_quantile(0.99)),
        })
    };
    let operations: Map<String, Value> =
        report.operations.iter().map(|(name, did)| ((*name).to_owned(), about(did))).collect();
    let all: u64 = report.operations.values().map(|did| did.count).sum();
    json!({
        "profile": name,
        "files": report.files,
        "file_bytes": report.bytes,
        "threads": report.threads,
        "elapsed_s": report.elapsed.as_secs_f64(),
        "operations": all,
        "operations_per_s": all as f64 / report.elapsed.as_secs_f64().max(1e-9),
        "by_kind": operations,
    })
}

fn lines(name: &str, report: &FilesReport) -> Vec<String> {
    let seconds = report.elapsed.as_secs_f64().max(1e-9);
    let all: u64 = report.operations.values().map(|did| did.count).sum();
    let mut lines = vec![
        format!(
            "{name}: {} files, {}, {} threads, {seconds:.1} s: {} operations a second",
            count(report.files.into()),
            size(report.bytes),
            report.threads,
            count((all as f64 / seconds) as u64)
        ),
        format!(
            "{:<14} {:>10} {:>10} {:>12} {:>12} {:>12}",
            "", "count", "bytes", "mean us", "p50 us", "p99 us"
        ),
    ];
    lines.extend(report.operations.iter().map(|(name, did)| {
        format!(
            "{name:<14} {:>10} {:>10} {:>12.1} {:>12.1} {:>12.1}",
            count(did.count),
            size(did.bytes),
            did.latency.mean() / 1e3,
            us(did.latency.value_at_quantile(0.5)),
            us(did.latency.value_at_quantile(0.99)),
        )
    }));
    lines
}
