//! Peak throughput: requests as fast as each thread can make them, without clocks and histograms.
//!
//! On a device, the result is the most that the interface can do with this many cores. On `null:`,
//! the result is the cost of qpair's own layers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use qpair_block::{
    Arena, BlockDevice, ChannelOptions, DeviceInfo, DeviceSpec, Error, ErrorKind, Request, Result,
    WaitOptions,
};
use qpair_drivers::Drivers;
use qpair_kernel::{FileOptions, Interface, Mode};
use rand::Rng;

use crate::observer::{Live, Observer};
use crate::run::cpu::{Counters, Usage};
use crate::run::offsets::generator;

#[derive(Clone, Debug)]
pub struct PeakOptions {
    /// The device, which is only read.
    pub spec: DeviceSpec,
    pub drivers: Drivers,
    pub mode: Mode,
    pub direct: bool,
    pub block_bytes: u32,
    /// The number of requests in flight of each thread.
    pub depth: u32,
    /// The number of requests that are submitted, and awaited, at once.
    pub batch: u32,
    /// Number of threads. Each stays on its own processor, from 0 on, if there are enough.
    pub threads: u32,
    pub duration: Duration,
    pub seed: u64,
}

#[derive(Clone, Debug)]
pub struct PeakReport {
    pub device: DeviceInfo,
    pub ios: u64,
    pub elapsed: Duration,
    /// The processor time in user mode of all threads, including the kernel's threads that work for
    /// this process.
    pub user: Duration,
    /// Processor time in the kernel.
    pub system: Duration,
    /// The number of system calls of the channels.
    pub system_calls: u64,
    /// The number of instructions of the threads; `None` if the machine does not count them.
    pub instructions: Option<u64>,
    pub ios_by_second: Vec<u64>,
}

impl PeakReport {
    #[must_use]
    pub fn ios_per_s(&self) -> f64 {
        self.ios as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    #[must_use]
    pub fn cpu_ns_per_io(&self) -> f64 {
        (self.user + self.system).as_nanos() as f64 / self.ios.max(1) as f64
    }
}

/// Measures random reads as fast as the device and the processors allow.
///
/// # Errors
/// Returns the error of opening or reading the device, or `Invalid` for options that contradict
/// each other or do not fit the device.
pub fn peak(options: &PeakOptions, observer: &dyn Observer) -> Result<PeakReport> {
    let device = open(options)?;
    check(options, device.as_ref())?;
    let stop = AtomicBool::new(false);
    let shown: Vec<crate::run::record::Shown> =
        (0..options.threads).map(|_| Default::default()).collect();
    let before = Usage::of_process();
    let begin = Instant::now();
    let mut by_second = Vec::new();
    let outcomes: Vec<Result<Outcome>> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..options.threads)
            .map(|number| {
                let (device, stop, shown) = (&device, &stop, &shown[number as usize]);
                std::thread::Builder::new().spawn_scoped(scope, move || {
                    read(device.as_ref(), options, number, stop, shown)
                })
            })
            .collect();
        let (mut told, mut told_at) = (0, Instant::now());
        while begin.elapsed() < options.duration && !observer.stop() {
            if running.iter().any(|one| !one.as_ref().is_ok_and(|one| !one.is_finished())) {
                break;
            }
            let left = options.duration.saturating_sub(begin.elapsed());
            std::thread::sleep(left.min(Duration::from_millis(100)));
            if told_at.elapsed() >= Duration::from_secs(1) {
                let ios = shown.iter().map(|one| one.ios[0].load(Ordering::Relaxed)).sum::<u64>();
                let seconds = told_at.elapsed().as_secs_f64();
                by_second.push(ios - told);
                observer.tick(&Live {
                    phase: "running".to_owned(),
                    stage: (0, 1),
                    jobs: options.threads,
                    elapsed: begin.elapsed(),
                    total: Some(options.duration),
                    fraction: Some(begin.elapsed().as_secs_f64() / options.duration.as_secs_f64()),
                    ios_per_s: [(ios - told) as f64 / seconds, 0.0, 0.0],
                    bytes_per_s: [
                        (ios - told) as f64 * f64::from(options.block_bytes) / seconds,
                        0.0,
                        0.0,
                    ],
                });
                (told, told_at) = (ios, Instant::now());
            }
        }
        stop.store(true, Ordering::Relaxed);
        running
            .into_iter()
            .map(|thread| {
                let thread = thread.map_err(|cause| Error::thread(cause, "reading"))?;
                thread.join().unwrap_or_else(|_| {
                    Err(Error::new(
                        ErrorKind::Io,
                        "a reading thread panicked, which is a bug in qpair",
                    ))
                })
            })
            .collect()
    });
    let elapsed = begin.elapsed();
    let usage = Usage::of_process().since(before);
    let mut report = PeakReport {
        device: device.info().clone(),
        ios: 0,
        elapsed,
        user: usage.user,
        system: usage.system,
        system_calls: 0,
        instructions: Some(0),
        ios_by_second: by_second,
    };
    for outcome in outcomes {
        let outcome = outcome?;
        report.ios += outcome.ios;
        report.system_calls += outcome.system_calls;
        report.instructions =
            report.instructions.zip(outcome.instructions).map(|(sum, more)| sum + more);
    }
    Ok(report)
}

fn open(options: &PeakOptions) -> Result<Arc<dyn BlockDevice>> {
    let files = |path: &Path| {
        let file = FileOptions {
            read_only: true,
            exclusive_lock: false,
            direct: options.direct,
            ..FileOptions::new(path)
        };
        let device = qpair_kernel::open(&file, options.mode)?;
        Ok(Arc::new(device) as Arc<dyn BlockDevice>)
    };
    let lent = match options.mode.interface {
        Interface::Auto => Some(options.drivers.find_lent(&options.spec)?.0),
        _ => None,
    };
    lent.as_ref().unwrap_or(&options.spec).open(&options.drivers.opening(files))
}

fn check(options: &PeakOptions, device: &dyn BlockDevice) -> Result<()> {
    let invalid = |what: String| Err(Error::new(ErrorKind::Invalid, what));
    let info = device.info();
    if options.batch == 0 || options.depth < options.batch {
        return invalid(format!(
            "batches of {} do not fit a depth of {}",
            options.batch, options.depth
        ));
    }
    if options.threads == 0 {
        return invalid("at least one thread is needed".to_owned());
    }
    if options.block_bytes == 0 || !options.block_bytes.is_multiple_of(info.logical_block_bytes) {
        return invalid(format!(
            "reads of {} bytes do not fit {}, whose logical block is {} bytes",
            options.block_bytes, info.name, info.logical_block_bytes
        ));
    }
    if u64::from(options.block_bytes) > device.size_bytes()
        || options.block_bytes > info.transfer_bytes_max
    {
        return invalid(format!(
            "reads of {} bytes are too large for {}",
            options.block_bytes, info.name
        ));
    }
    Ok(())
}

struct Outcome {
    ios: u64,
    system_calls: u64,
    instructions: Option<u64>,
}

fn read(
    device: &dyn BlockDevice,
    options: &PeakOptions,
    number: u32,
    stop: &AtomicBool,
    shown: &crate::run::record::Shown,
) -> Result<Outcome> {
    if options.threads > 1 {
        let mut set = rustix::thread::CpuSet::new();
        set.set(number as usize);
        // If there are fewer processors than threads, the scheduler decides.
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
    let block = u64::from(options.block_bytes);
    let blocks = device.size_bytes() / block;
    let arena_block = (options.block_bytes as usize).next_power_of_two().max(4096);
    let arena = Arena::new(arena_block, options.depth, device.info().arena_options())
        .map_err(|cause| Error::os(cause, "mapping memory to read into"))?;
    let channel_options =
        ChannelOptions { depth: options.depth, arenas: vec![arena.clone()], wake: None };
    let mut channel = device.open_channel(&channel_options)?;
    let mut free: Vec<_> = std::iter::from_fn(|| arena.lease()).collect();
    let mut completions = Vec::with_capacity(options.depth as usize);
    let mut random = generator(options.seed, number);
    let wait = WaitOptions {
        want: options.batch,
        linger: if options.batch > 1 { Duration::MAX } else { Duration::ZERO },
        timeout: None,
    };
    let mut counters = Counters::begin();
    let mut ios = 0;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..options.batch {
            let Some(buffer) = free.pop() else { break };
            let offset = random.random_range(0..blocks) * block;
            if let Err(request) =
                channel.submit(Request::read(offset, options.block_bytes, buffer, 0))
            {
                free.extend(request.buffer);
                break;
            }
        }
        if free.is_empty() {
            channel.wait(&mut completions, wait);
        } else {
            // The queue is being filled.
            channel.kick();
            channel.poll(&mut completions);
        }
        ios += completions.len() as u64;
        for completion in completions.drain(..) {
            completion.result.map_err(|cause| {
                Error::new(cause.kind, format!("reading {}", device.info().name)).caused_by(cause)
            })?;
            free.extend(completion.buffer);
        }
        shown.ios[0].store(ios, Ordering::Relaxed);
    }
    let used = counters.end(channel.statistics().system_calls);
    Ok(Outcome { ios, system_calls: used.system_calls, instructions: used.instructions })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::Unwatched;

    #[test]
    fn counts_what_the_device_counts() {
        let mut options = PeakOptions {
            drivers: Drivers::new(),
            spec: DeviceSpec::parse("ram:size=1MiB").unwrap(),
            mode: Mode::default(),
            direct: true,
            block_bytes: 4096,
            depth: 32,
            batch: 8,
            threads: 2,
            duration: Duration::from_millis(50),
            seed: 1,
        };
        let report = peak(&options, &Unwatched).unwrap();
        assert!(report.ios > 0 && report.ios_per_s() > 0.0);
        options.batch = 64;
        assert_eq!(peak(&options, &Unwatched).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
