//! Measures the limit of a device: random reads at full speed directly over its channels.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use qpair::{Error, ErrorKind, Mode, Result};
use qpair_block::{BlockDevice, DeviceSpec, WaitOptions};
use qpair_drivers::Drivers;
use qpair_kernel::FileOptions;

use super::lane::{DOING, Lane, Lanes};
use crate::harness::{Client, Done, Plan, measure};
use crate::progress::Progress;

/// The device and the combinations to measure.
#[derive(Clone, Debug)]
pub struct CeilingOptions {
    /// The file, block device or specifier.
    pub path: PathBuf,
    /// The drivers of a device that bypasses the kernel.
    pub drivers: Drivers,
    /// The interface and its mode.
    pub io: Mode,
    /// The size of a read in bytes.
    pub block_bytes: u32,
    /// Whether reads go through the page cache.
    pub buffered: bool,
    /// Seconds for each combination of threads and depth.
    pub seconds: f64,
    /// The numbers of threads to try.
    pub threads: Vec<usize>,
    /// The depths of each thread to try.
    pub depths: Vec<u32>,
}

/// The best combination.
#[derive(Clone, Copy, Debug)]
pub struct Ceiling {
    /// Reads per second.
    pub reads_per_s: f64,
    /// Processor time per read in microseconds.
    pub cpu_us_per_read: f64,
    pub threads: usize,
    /// The number of requests in flight of each thread.
    pub depth: u32,
}

/// A client that keeps its lane full of reads.
struct Reads {
    lane: Lane,
    wait: WaitOptions,
}

impl Client for Reads {
    type Request = ();

    fn draw(&mut self) -> Option<()> {
        Some(())
    }

    async fn attempt(&mut self, (): &()) -> Result<Done> {
        self.lane.read_all();
        Ok(Done::new(0, self.lane.wait(self.wait)?))
    }
}

/// Tries every combination of threads and depths, and returns the best.
///
/// # Errors
/// Errors of opening the file or reading from it; `Closed` if the measurement was interrupted.
pub fn ceiling(options: &CeilingOptions, progress: &dyn Progress) -> Result<Ceiling> {
    let files = |path: &Path| -> qpair_block::Result<Arc<dyn BlockDevice>> {
        let file =
            FileOptions { read_only: true, direct: !options.buffered, ..FileOptions::new(path) };
        Ok(Arc::new(qpair_kernel::open(&file, options.io)?))
    };
    let open = |name: &str| DeviceSpec::parse(name)?.open(&options.drivers.opening(files));
    let device = match options.path.to_str() {
        Some(name) => open(name),
        None => files(&options.path),
    }
    .map_err(|error| Error::block(error, DOING))?;
    let mut best: Option<Ceiling> = None;
    for threads in &options.threads {
        for depth in &options.depths {
            let one = reads(device.clone(), options, *threads, *depth, progress)?;
            if best.is_none_or(|best| best.reads_per_s < one.reads_per_s) {
                best = Some(one);
            }
        }
    }
    best.ok_or_else(|| Error::new(ErrorKind::Invalid, "nothing was measured"))
}

fn reads(
    device: Arc<dyn BlockDevice>,
    options: &CeilingOptions,
    threads: usize,
    depth: u32,
    progress: &dyn Progress,
) -> Result<Ceiling> {
    let lanes = Lanes::new(device, options.block_bytes, depth)?;
    let plan = Plan {
        clients: threads,
        kinds: 1,
        seconds: Some(options.seconds),
        phase: format!("the device alone, {}", options.io),
        ..Plan::default()
    };
    let (want, linger) = ((depth / 4).clamp(1, 32), Duration::from_micros(100));
    let wait = WaitOptions { want, linger, timeout: None };
    let measured = measure(&lanes, &plan, move |_, lane| Reads { lane, wait }, progress)?;
    let reads = measured.weight();
    let (reads_per_s, cpu_us_per_read) = (measured.per_s(reads), measured.cpu_us_per(reads));
    Ok(Ceiling { reads_per_s, cpu_us_per_read, threads, depth })
}
