//! Measures the device alone: a write of 4 KiB that bypasses the page cache, followed by a flush.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use qpair::{Error, ErrorKind, Mode, Result};
use qpair_block::{
    Arena, ArenaOptions, BlockDevice, Buffer, ChannelOptions, IoChannel, Request, WaitOptions,
};
use qpair_kernel::FileOptions;
use serde::Serialize;

use crate::progress::Progress;
use crate::report::LatencyReport;

/// Bytes of a write.
const BLOCK: u32 = 4096;

/// The device to measure.
#[derive(Clone, Debug)]
pub struct BaselineOptions {
    /// A file or block device that no process has open. Its content does not change: each block is
    /// read, and the same bytes are written back.
    pub path: PathBuf,
    /// The interface and its mode.
    pub io: Mode,
    /// Whether writes go through the page cache.
    pub buffered: bool,
    /// The duration in seconds.
    pub seconds: f64,
}

/// The results of the device alone, with one write and one flush after the other.
#[derive(Clone, Debug, Serialize)]
pub struct Baseline {
    /// The interface and mode that were used.
    pub io: String,
    /// The number of pairs of a write and a flush.
    pub writes: u64,
    /// Latencies of the pairs. The reads between them are not counted.
    pub latency_us: LatencyReport,
}

/// A channel with one request at a time.
struct Lane {
    channel: Box<dyn IoChannel>,
    completions: Vec<qpair_block::Completion>,
}

impl Lane {
    /// Runs a request and returns its buffer.
    fn run(&mut self, request: Request) -> Result<Option<Buffer>> {
        let refused = |_| Error::new(ErrorKind::Io, "the channel refused a single request");
        self.channel.submit(request).map_err(refused)?;
        let wait = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };
        while self.completions.is_empty() {
            self.channel.wait(&mut self.completions, wait);
        }
        let Some(completion) = self.completions.pop() else { return Ok(None) };
        completion.result.map_err(|error| Error::io(error, "measuring the device alone"))?;
        Ok(completion.buffer)
    }
}

/// Measures writes and flushes at random places of a file without changing its content.
///
/// # Errors
/// Errors of opening the file, reading from it or writing to it.
pub fn baseline(options: &BaselineOptions, progress: &dyn Progress) -> Result<Baseline> {
    let doing = "measuring the device alone";
    let file = FileOptions { direct: !options.buffered, ..FileOptions::new(&options.path) };
    let device =
        qpair_kernel::open(&file, options.io).map_err(|error| Error::block(error, doing))?;
    let blocks = device.size_bytes() / u64::from(BLOCK);
    let arena = Arena::new(BLOCK as usize, 1, ArenaOptions::default())
        .map_err(|error| Error::new(ErrorKind::NoMemory, format!("{doing}: {error}")))?;
    let channel_options = ChannelOptions { depth: 4, arenas: vec![arena.clone()], wake: None };
    let channel =
        device.open_channel(&channel_options).map_err(|error| Error::block(error, doing))?;
    let mut lane = Lane { channel, completions: Vec::with_capacity(4) };
    let lost = || Error::new(ErrorKind::NoMemory, format!("{doing}: the arena has no free buffer"));
    let mut buffer = arena.lease().ok_or_else(lost)?;
    if blocks == 0 {
        return Err(Error::new(ErrorKind::Invalid, format!("{doing}: the file is empty")));
    }
    let mut histogram =
        Histogram::<u64>::new_with_bounds(1, 100_000_000_000, 2).map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("creating a histogram: {error}"))
        })?;
    let mut random = fastrand::Rng::with_seed(1);
    let began = Instant::now();
    progress.begin(doing, (options.seconds * 10.0).ceil() as u64);
    while began.elapsed().as_secs_f64() < options.seconds && !progress.stop() {
        progress.at(began.elapsed().as_millis() as u64 / 100);
        let at = random.u64(0..blocks) * u64::from(BLOCK);
        buffer = lane.run(Request::read(at, BLOCK, buffer, 0))?.ok_or_else(lost)?;
        let write_began = Instant::now();
        buffer = lane.run(Request::write(at, BLOCK, buffer, 0))?.ok_or_else(lost)?;
        lane.run(Request::flush(0))?;
        histogram.saturating_record(write_began.elapsed().as_nanos() as u64);
    }
    progress.end();
    let info = device.info();
    Ok(Baseline {
        io: format!("{} ({})", info.interface, info.mode),
        writes: histogram.len(),
        latency_us: LatencyReport::of(&histogram),
    })
}
