//! The delay device: another device with added latency.
//!
//! A request is held for its latency before it is passed on, so its total time is the latency plus
//! that of the device below. Any number of requests are held at once, as in a drive without a limit
//! on parallelism. Latencies are per operation, so the requests of an operation become due in the
//! order in which they came, and three queues without sorting are enough.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::channel::holding::{Alarm, Holding, wait_holding};
use crate::seam::byte_locks::ByteLocks;
use crate::seam::device::{
    Arrival, BlockDevice, ChannelOptions, ChannelStatistics, DeviceInfo, Extent, IoChannel,
    WaitOptions,
};
use crate::seam::error::{Error, ErrorKind, Result};
use crate::seam::request::{Completion, Op, Request};

/// The largest latency, one minute, so that a mistyped unit is noticed.
const LATENCY_US_MAX: u64 = 60_000_000;

/// The latencies that a [`DelayDevice`] adds, in microseconds; 0 adds none.
///
/// A sleep is as exact as the kernel's timer slack: 50 us, unless the thread has requested less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelayOptions {
    /// The latency added to reads.
    pub read_us: u64,
    /// The latency added to writes, discards and write-zeroes.
    pub write_us: u64,
    /// The latency added to flushes.
    pub flush_us: u64,
}

/// A device with added latency.
#[derive(Debug)]
pub struct DelayDevice {
    info: DeviceInfo,
    options: DelayOptions,
    inner: Arc<dyn BlockDevice>,
}

impl DelayDevice {
    /// Adds latencies to `inner`.
    ///
    /// # Errors
    /// `Invalid` if a latency is over a minute.
    pub fn new(inner: Arc<dyn BlockDevice>, options: DelayOptions) -> Result<Self> {
        let DelayOptions { read_us, write_us, flush_us } = options;
        let longest_us = read_us.max(write_us).max(flush_us);
        if longest_us > LATENCY_US_MAX {
            let context = format!("a delay of {longest_us} us is out of range");
            return Err(Error::new(ErrorKind::Invalid, context)
                .hint("latencies are in microseconds, at most a minute"));
        }
        let latencies = format!("read_us={read_us},write_us={write_us},flush_us={flush_us}:");
        let does = format!("reads +{read_us} us, writes +{write_us} us, flushes +{flush_us} us");
        let info = inner.info().behind("delay", &latencies, &does);
        Ok(Self { info, options, inner })
    }
}

impl BlockDevice for DelayDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn byte_locks(&self) -> Option<Arc<dyn ByteLocks>> {
        self.inner.byte_locks()
    }

    fn extent(&self, offset_bytes: u64, len_bytes: u64) -> Extent {
        self.inner.extent(offset_bytes, len_bytes)
    }

    fn removed(&self) -> Option<String> {
        self.inner.removed()
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        self.inner.grow(size_bytes)
    }

    fn shrinks(&self) -> bool {
        self.inner.shrinks()
    }

    fn shrink(&self, size_bytes: u64) -> Result<()> {
        self.inner.shrink(size_bytes)
    }

    fn resets(&self) -> u64 {
        self.inner.resets()
    }

    fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
        self.info.check_channel(options)?;
        let lane = |latency_us| Lane {
            latency: Duration::from_micros(latency_us),
            held: VecDeque::with_capacity(options.depth as usize),
        };
        let DelayOptions { read_us, write_us, flush_us } = self.options;
        Ok(Box::new(DelayChannel {
            inner: self.inner.open_channel(options)?,
            depth: options.depth,
            lanes: [lane(read_us), lane(write_us), lane(flush_us)],
            has_wake: options.wake.is_some(),
            alarm: Alarm::default(),
        }))
    }
}

/// Requests with the same latency, in the order in which they become due.
struct Lane {
    latency: Duration,
    held: VecDeque<(Instant, Request)>,
}

struct DelayChannel {
    inner: Box<dyn IoChannel>,
    depth: u32,
    lanes: [Lane; 3],
    has_wake: bool,
    alarm: Alarm,
}

impl DelayChannel {
    /// Passes on the requests that are due.
    fn release(&mut self) {
        let now = Instant::now();
        let mut released = false;
        for lane in &mut self.lanes {
            while lane.held.front().is_some_and(|(due, _)| *due <= now) {
                let Some((due, request)) = lane.held.pop_front() else { break };
                if let Err(request) = self.inner.submit(request) {
                    lane.held.push_front((due, request));
                    break;
                }
                released = true;
            }
        }
        if released {
            self.inner.kick();
        }
    }

    fn arm(&mut self) {
        let due = self.next_due();
        self.alarm.arm(due, self.inner.in_flight());
    }
}

impl Holding for DelayChannel {
    fn below(&mut self) -> &mut dyn IoChannel {
        self.inner.as_mut()
    }

    fn next_due(&self) -> Option<Instant> {
        self.lanes.iter().filter_map(|lane| lane.held.front()).map(|(due, _)| *due).min()
    }

    fn has_wake(&self) -> bool {
        self.has_wake
    }
}

impl IoChannel for DelayChannel {
    fn submit(&mut self, request: Request) -> std::result::Result<(), Request> {
        if self.in_flight() >= self.depth {
            return Err(request);
        }
        let [reads, writes, flushes] = &mut self.lanes;
        let lane = match request.op {
            Op::Read => reads,
            Op::Write | Op::Discard | Op::WriteZeroes => writes,
            Op::Flush => flushes,
        };
        lane.held.push_back((Instant::now() + lane.latency, request));
        Ok(())
    }

    fn kick(&mut self) {
        self.release();
        self.arm();
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        self.release();
        let count = self.inner.poll(completions);
        self.arm();
        count
    }

    fn look(&mut self, completions: &mut Vec<Completion>) -> usize {
        self.release();
        let count = self.inner.look(completions);
        self.arm();
        count
    }

    fn arrival(&self) -> Arrival {
        self.inner.arrival().with_held(self.next_due().is_some(), self.inner.in_flight())
    }

    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        wait_holding(self, completions, options)
    }

    fn in_flight(&self) -> u32 {
        let held: usize = self.lanes.iter().map(|lane| lane.held.len()).sum();
        self.inner.in_flight() + held as u32
    }

    fn statistics(&self) -> ChannelStatistics {
        let mut statistics = self.inner.statistics();
        statistics.system_calls += self.alarm.system_calls;
        statistics
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        if !self.alarm.is_made() {
            let below = self.inner.completion_fd()?;
            self.alarm.make(below)?;
            self.arm();
        }
        Ok(self.alarm.descriptor())
    }
}
