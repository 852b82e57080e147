//! The floor in the kernel: runs the module `hwperf` by its files in debugfs.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind as IoKind, Write};
use std::path::{Path, PathBuf};

use qpair_block::{Error, ErrorKind, Result};
use qpair_pci::sysfs::PciAddress;
use serde::Deserialize;

use crate::load::Load;
use crate::paths::Ask;
use crate::report::Turn;
use crate::turn::Length;

/// The module's description of its drive.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct About {
    pub(crate) block_bytes: u32,
    pub(crate) blocks: u64,
    pub(crate) command_bytes_max: u32,
    pub(crate) queues: u32,
    pub(crate) depth_max: u32,
    pub(crate) slots_max: u32,
}

/// The module's results of a run.
#[derive(Deserialize)]
struct Found {
    ios: u64,
    doorbells: u64,
    counted: u64,
    counted_ns: u64,
    backwards: u64,
    ios_per_s: f64,
    bytes_per_s: f64,
    latency_ns: Latency,
}

#[derive(Deserialize)]
struct Latency {
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
}

/// A drive that is bound to the module.
pub(crate) struct Hwperf(PathBuf);

impl Hwperf {
    pub(crate) fn of(address: PciAddress) -> Result<Self> {
        let files = Path::new("/sys/kernel/debug/hwperf").join(address.to_string());
        if files.exists() {
            return Ok(Self(files));
        }
        let context = format!("{} does not exist", files.display());
        Err(Error::new(ErrorKind::Unsupported, context)
            .hint("is debugfs mounted? sudo mount -t debugfs none /sys/kernel/debug"))
    }

    pub(crate) fn about(&self) -> Result<About> {
        self.read("about")
    }

    /// Runs one turn. A signal ends it with the error [`ErrorKind::Interrupted`].
    pub(crate) fn turn(&self, ask: Ask<'_>) -> Result<Turn> {
        let words = words(ask.load, ask.length, ask.seed);
        let path = self.0.join("run");
        let failed = |cause: std::io::Error| {
            let kind = match cause.kind() {
                IoKind::Interrupted => ErrorKind::Interrupted,
                _ => cause.raw_os_error().map_or(ErrorKind::Io, ErrorKind::from_errno),
            };
            Error::new(kind, format!("{words} in {}: {cause}", path.display()))
                .hint("the kernel says why: dmesg | tail")
        };
        let mut file = OpenOptions::new().write(true).open(&path).map_err(failed)?;
        // write_all would begin again after a signal, so this uses write.
        file.write(words.as_bytes()).map_err(failed)?;
        let found: Found = self.read("report")?;
        let us = |ns: f64| ns / 1e3;
        let latency = found.latency_ns;
        Ok(Turn {
            ios: found.counted,
            seconds: found.counted_ns as f64 / 1e9,
            ios_per_s: found.ios_per_s,
            bytes_per_s: found.bytes_per_s,
            mean_us: us(latency.mean),
            percentiles_us: [latency.p50, latency.p90, latency.p99, latency.p999].map(us),
            commands_and_doorbells: Some((found.ios, found.doorbells)),
            backwards: found.backwards,
            ..Turn::default()
        })
    }

    fn read<T: for<'a> Deserialize<'a>>(&self, leaf: &str) -> Result<T> {
        let path = self.0.join(leaf);
        let text = fs::read_to_string(&path)
            .map_err(|cause| Error::os(cause, path.display().to_string()))?;
        serde_json::from_str(&text).map_err(|cause| {
            let context = format!("{} cannot be read: {cause}", path.display());
            Error::new(ErrorKind::Unsupported, context)
                .hint("is a module of another version loaded? sudo rmmod hwperf")
        })
    }
}

/// Formats a run's parameters for the module, which runs at most an hour.
fn words(load: &Load, length: Length, seed: u64) -> String {
    let workload = load.workload;
    let order = if workload.random { "rand" } else { "" };
    let (verb, writes) = if workload.write { ("write", " allow_writes=1") } else { ("read", "") };
    format!(
        "rw={order}{verb} bs={} depth={} jobs={} ms={} ramp_ms={} seed={seed}{writes}",
        workload.block_bytes,
        load.depth,
        load.jobs,
        length.run.as_millis().clamp(1, 3_600_000),
        length.ramp.as_millis()
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::load::Workload;

    #[test]
    fn the_module_is_asked_in_its_words() {
        let length = Length { ramp: Duration::from_millis(10), run: Duration::from_millis(100) };
        let load =
            |name: &str| Load { workload: Workload::named(name).unwrap(), depth: 4, jobs: 2 };
        assert_eq!(
            words(&load("randread"), length, 7),
            "rw=randread bs=4096 depth=4 jobs=2 ms=100 ramp_ms=10 seed=7"
        );
        assert_eq!(
            words(&load("write128k"), length, 1),
            "rw=write bs=131072 depth=4 jobs=2 ms=100 ramp_ms=10 seed=1 allow_writes=1"
        );
    }

    #[test]
    fn its_report_is_read() {
        let folder = std::env::temp_dir().join(format!("hwperf-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        // The text is the module's output in guest/tests/floor.
        let said = r#"{"format":"hwperf","version":1,"address":"0000:00:03.0","model":"QEMU NVMe Ctrl","serial":"a","rw":"randread","block_bytes":512,"depth":16,"jobs":1,"submit_cpu":0,"poll_cpu":1,"tsc_khz":2100000,"ios":900,"doorbells":900,"completions":900,"completion_doorbells":310,"strangers":0,"verified_blocks":0,"wrong_blocks":0,"counted":800,"counted_ns":300000000,"backwards":2,"ios_per_s":2666,"bytes_per_s":1364992,"latency_ns":{"mean":5990,"min":2000,"p50":6000,"p90":7000,"p99":8000,"p999":9000,"max":9100}}"#;
        fs::write(folder.join("report"), said).unwrap();
        fs::write(folder.join("run"), "").unwrap();
        let length = Length { ramp: Duration::ZERO, run: Duration::from_millis(1) };
        let load = Load { workload: Workload::named("randread").unwrap(), depth: 1, jobs: 1 };
        let turn = Hwperf(folder.clone())
            .turn(Ask { load: &load, length, seed: 1, stop: &|| false })
            .unwrap();
        assert_eq!((turn.commands_and_doorbells, turn.backwards), (Some((900, 900)), 2));
        assert_eq!((turn.ios, turn.mean_us, turn.percentiles_us[3]), (800, 5.99, 9.0));
        fs::remove_dir_all(folder).unwrap();
    }
}
