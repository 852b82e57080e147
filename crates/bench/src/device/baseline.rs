//! Measures the device alone: a write of 4 KiB that bypasses the page cache, followed by a flush.

use std::path::PathBuf;
use std::sync::Arc;

use qpair::{Error, Mode, Result};
use qpair_block::{BlockDevice, Request};
use qpair_kernel::FileOptions;
use serde::Serialize;

use super::lane::{DOING, Lane, Lanes};
use crate::harness::{Client, Done, Plan, measure};
use crate::progress::Progress;
use crate::report::LatencyReport;

/// The size of a write, in bytes.
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

/// A client that reads a random block, and writes the same bytes back with a flush.
struct Rewrites {
    lane: Lane,
    at: u64,
    writes: bool,
}

impl Client for Rewrites {
    /// Whether the block is written, after it was read.
    type Request = bool;

    fn draw(&mut self) -> Option<bool> {
        self.writes = !self.writes;
        Some(!self.writes)
    }

    async fn attempt(&mut self, writes: &bool) -> Result<Done> {
        let Self { lane, at, .. } = self;
        let buffer = lane.buffer()?;
        if *writes {
            lane.run(Request::write(*at, BLOCK, buffer, 0))?;
            lane.run(Request::flush(0))?;
        } else {
            *at = lane.offset();
            lane.run(Request::read(*at, BLOCK, buffer, 0))?;
        }
        Ok(Done::new(usize::from(*writes), 1))
    }
}

/// Measures writes and flushes at random places of a file without changing its content.
///
/// # Errors
/// Errors of opening the file, reading from it or writing to it; `Closed` if the measurement was
/// interrupted.
pub fn baseline(options: &BaselineOptions, progress: &dyn Progress) -> Result<Baseline> {
    let file = FileOptions { direct: !options.buffered, ..FileOptions::new(&options.path) };
    let device = qpair_kernel::open(&file, options.io);
    let device = Arc::new(device.map_err(|error| Error::block(error, DOING))?);
    let lanes = Lanes::new(device.clone(), BLOCK, 4)?;
    let plan = Plan {
        clients: 1,
        kinds: 2,
        seconds: Some(options.seconds),
        phase: DOING.to_owned(),
        ..Plan::default()
    };
    let client = |_, lane| Rewrites { lane, at: 0, writes: false };
    let measured = measure(&lanes, &plan, client, progress)?;
    let writes = &measured.kinds[1];
    let info = device.info();
    Ok(Baseline {
        io: format!("{} ({})", info.interface, info.mode),
        writes: writes.count(),
        latency_us: LatencyReport::of(&writes.histogram),
    })
}
