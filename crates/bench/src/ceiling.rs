//! Measures the limit of a device: random reads at full speed directly over its channels.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use qpair::{Error, ErrorKind, Mode, Result};
use qpair_block::{Arena, BlockDevice, ChannelOptions, DeviceSpec, IoError, Request, WaitOptions};
use qpair_drivers::Drivers;
use qpair_kernel::FileOptions;

use crate::clock::Stretch;
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
    /// The number of threads.
    pub threads: usize,
    /// The number of requests in flight of each thread.
    pub depth: u32,
}

/// Tries every combination of threads and depths, and returns the best.
///
/// # Errors
/// Errors of opening the file or reading from it.
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
    .map_err(|error| Error::block(error, "measuring the device"))?;
    let device = device.as_ref();
    let mut best: Option<Ceiling> = None;
    let mut done = 0;
    for threads in &options.threads {
        for depth in &options.depths {
            if progress.stop() {
                break;
            }
            progress.at(done);
            let one = measure(device, options, *threads, *depth)?;
            done += 1;
            if best.is_none_or(|best| best.reads_per_s < one.reads_per_s) {
                best = Some(one);
            }
        }
    }
    best.ok_or_else(|| Error::new(ErrorKind::Invalid, "nothing was measured"))
}

fn measure(
    device: &dyn BlockDevice,
    options: &CeilingOptions,
    threads: usize,
    depth: u32,
) -> Result<Ceiling> {
    let stop = AtomicBool::new(false);
    let stretch = Stretch::begin();
    let reads = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|_| {
                std::thread::Builder::new()
                    .spawn_scoped(scope, || read_randomly(device, options, depth, &stop))
            })
            .collect();
        let end = Instant::now() + Duration::from_secs_f64(options.seconds);
        while Instant::now() < end
            && running.iter().all(|one| one.as_ref().is_ok_and(|one| !one.is_finished()))
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        running
            .into_iter()
            .map(|thread| {
                let thread = thread.map_err(|cause| Error::thread(&cause, "reading the device"))?;
                thread.join().map_err(|_| Error::new(ErrorKind::Io, "a reading thread panicked"))?
            })
            .sum::<Result<u64>>()
    })?;
    let (wall, cpu) = stretch.end();
    Ok(Ceiling {
        reads_per_s: reads as f64 / wall.as_secs_f64(),
        cpu_us_per_read: cpu.as_secs_f64() * 1e6 / reads.max(1) as f64,
        threads,
        depth,
    })
}

fn read_randomly(
    device: &dyn BlockDevice,
    options: &CeilingOptions,
    depth: u32,
    stop: &AtomicBool,
) -> Result<u64> {
    let block = u64::from(options.block_bytes);
    let blocks = device.size_bytes() / block;
    let no_memory = |error: std::io::Error| {
        Error::new(ErrorKind::NoMemory, format!("mapping memory to read into: {error}"))
    };
    let arena = Arena::new(options.block_bytes as usize, depth, device.info().arena_options())
        .map_err(no_memory)?;
    let channel_options = ChannelOptions { depth, arenas: vec![arena.clone()], wake: None };
    let mut channel = device
        .open_channel(&channel_options)
        .map_err(|error| Error::block(error, "measuring the device"))?;
    let failed = |error: IoError| Error::io(error, "measuring the device");
    let mut random = fastrand::Rng::new();
    let mut free: Vec<_> = std::iter::from_fn(|| arena.lease()).collect();
    let mut completions = Vec::with_capacity(depth as usize);
    let mut reads = 0;
    let wait = WaitOptions {
        want: (depth / 4).clamp(1, 32),
        linger: Duration::from_micros(100),
        timeout: None,
    };
    while !stop.load(Ordering::Relaxed) {
        while let Some(buffer) = free.pop() {
            let request =
                Request::read(random.u64(0..blocks) * block, options.block_bytes, buffer, 0);
            if let Err(request) = channel.submit(request) {
                free.extend(request.buffer);
                break;
            }
        }
        channel.wait(&mut completions, wait);
        for completion in completions.drain(..) {
            completion.result.map_err(failed)?;
            reads += 1;
            free.extend(completion.buffer);
        }
    }
    Ok(reads)
}
