//! The fault device: another device that fails on command, or at random.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::channel::poller::{EarlyQueue, PollSet};
use crate::channel::slots::Slots;
use crate::devices::fault_control::{Fault, FaultControl};
use crate::seam::byte_locks::ByteLocks;
use crate::seam::device::{
    Arrival, BlockDevice, ChannelOptions, ChannelStatistics, DeviceInfo, Extent, IoChannel,
    WaitOptions,
};
use crate::seam::error::{Error, ErrorKind, IoError, Result};
use crate::seam::request::{Completion, Op, Request};
use crate::seam::sleep::WaitClock;

/// The size of a sector for torn writes, in bytes: every drive writes a sector atomically.
const SECTOR_BYTES: u64 = 512;

/// The initial faults of a [`FaultDevice`]. Rates are probabilities per request, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultOptions {
    /// The seed of all random faults. Channels draw from separate seeds, in the order in which they
    /// are opened.
    pub seed: u64,
    /// The share of reads that fail.
    pub read_error_rate: f64,
    /// The share of writes (and discards and write-zeroes) that fail without writing anything.
    pub write_error_rate: f64,
    /// The share of flushes that fail.
    pub flush_error_rate: f64,
    /// The share of reads that succeed with one bit flipped.
    pub corrupt_read_rate: f64,
}

/// A device that fails as its [`FaultControl`] says.
///
/// A request that fails never reaches the device below. A torn write reaches it truncated. A
/// corrupt read comes back from it with one bit flipped in the buffer.
#[derive(Debug)]
pub struct FaultDevice {
    info: DeviceInfo,
    inner: Arc<dyn BlockDevice>,
    control: FaultControl,
    seed: u64,
    channels: AtomicU64,
}

impl FaultDevice {
    /// Adds faults to `inner`.
    ///
    /// # Errors
    /// `Invalid` if a rate is not from 0 to 1.
    pub fn new(inner: Arc<dyn BlockDevice>, options: FaultOptions) -> Result<Self> {
        let FaultOptions {
            seed,
            read_error_rate,
            write_error_rate,
            flush_error_rate,
            corrupt_read_rate,
        } = options;
        let rates = [read_error_rate, write_error_rate, flush_error_rate, corrupt_read_rate];
        if let Some(rate) = rates.iter().find(|rate| !(0.0..=1.0).contains(*rate)) {
            let context = format!("a fault rate of {rate} is out of range");
            return Err(Error::new(ErrorKind::Invalid, context).hint("rates are from 0 to 1"));
        }
        let control = FaultControl::new();
        control.set_error_rate(Op::Read, read_error_rate);
        control.set_error_rate(Op::Write, write_error_rate);
        control.set_error_rate(Op::Flush, flush_error_rate);
        control.set_corrupt_read_rate(corrupt_read_rate);
        let does = format!("faults from seed {seed}");
        let info = inner.info().behind("fault", &format!("seed={seed}:"), &does);
        Ok(Self { info, inner, control, seed, channels: AtomicU64::new(0) })
    }

    /// Returns the handle that controls the faults. It can be cloned and used from any thread at
    /// any time.
    #[must_use]
    pub fn control(&self) -> FaultControl {
        self.control.clone()
    }
}

impl BlockDevice for FaultDevice {
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
        if self.control.growing_fails() && size_bytes > self.inner.size_bytes() {
            let context = format!("{} cannot grow to {size_bytes} bytes", self.info.name);
            return Err(Error::new(ErrorKind::NoSpace, context).hint("this fault was injected"));
        }
        self.inner.grow(size_bytes)
    }

    fn shrinks(&self) -> bool {
        self.inner.shrinks()
    }

    fn shrink(&self, size_bytes: u64) -> Result<()> {
        self.inner.shrink(size_bytes)
    }

    fn reset(&self) -> Result<()> {
        self.inner.reset()
    }

    fn resets(&self) -> u64 {
        self.inner.resets()
    }

    fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
        let number = self.channels.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(FaultChannel {
            inner: self.inner.open_channel(options)?,
            control: self.control.clone(),
            // Multiplied by an odd number, so that the channels of adjacent seeds do not repeat
            // each other.
            rng: fastrand::Rng::with_seed(
                self.seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            ),
            sector_grid: u64::from(self.info.logical_block_bytes).max(SECTOR_BYTES),
            depth: options.depth,
            passed: Slots::new(options.depth),
            failed: EarlyQueue::new(options.depth),
            results: Vec::with_capacity(options.depth as usize),
            set: None,
            statistics: ChannelStatistics::default(),
        }))
    }
}

/// The state of a request at the device below.
struct Passed {
    tag: u64,
    len_bytes: u32,
    buffer_offset_bytes: u32,
    fault: Fault,
}

struct FaultChannel {
    inner: Box<dyn IoChannel>,
    control: FaultControl,
    rng: fastrand::Rng,
    /// Torn writes end at a multiple of this number of bytes.
    sector_grid: u64,
    depth: u32,
    passed: Slots<Passed>,
    failed: EarlyQueue,
    /// Completions of the device below; kept so that polling does not allocate.
    results: Vec<Completion>,
    set: Option<PollSet>,
    statistics: ChannelStatistics,
}

impl FaultChannel {
    fn fail(&mut self, request: Request, error: IoError) {
        self.statistics.count(request.op, request.len_bytes, Err(error));
        self.failed.push(request.complete(Err(error)));
    }

    fn finish(&mut self, mut completion: Completion) -> Option<Completion> {
        let passed = self.passed.take(completion.tag)?;
        completion.tag = passed.tag;
        match passed.fault {
            Fault::Tear { error, .. } => completion.result = Err(error),
            Fault::Corrupt if completion.result.is_ok() => {
                if let Some(buffer) = &mut completion.buffer {
                    let at =
                        (passed.buffer_offset_bytes + self.rng.u32(0..passed.len_bytes)) as usize;
                    let mut byte = [0];
                    buffer.copy_to(at, &mut byte);
                    byte[0] ^= 1 << self.rng.u32(0..8);
                    buffer.copy_from(at, &byte);
                }
            }
            Fault::None | Fault::Corrupt | Fault::Fail(_) => {}
        }
        self.statistics.count(completion.op, passed.len_bytes, completion.result);
        Some(completion)
    }

    fn finish_all(&mut self, completions: &mut Vec<Completion>) {
        let mut results = std::mem::take(&mut self.results);
        for result in results.drain(..) {
            completions.extend(self.finish(result));
        }
        self.results = results;
    }
}

impl IoChannel for FaultChannel {
    fn submit(&mut self, mut request: Request) -> std::result::Result<(), Request> {
        if self.in_flight() >= self.depth {
            return Err(request);
        }
        let fault = self.control.decide(&request, &mut self.rng);
        let (tag, len_bytes) = (request.tag, request.len_bytes);
        match fault {
            Fault::Fail(error) => {
                self.fail(request, error);
                return Ok(());
            }
            Fault::Tear { sectors, error } => {
                let kept = sectors.saturating_mul(SECTOR_BYTES).min(u64::from(len_bytes));
                request.len_bytes = (kept / self.sector_grid * self.sector_grid) as u32;
                if request.len_bytes == 0 {
                    self.fail(request, error);
                    return Ok(());
                }
            }
            Fault::None | Fault::Corrupt => {}
        }
        let buffer_offset_bytes = request.buffer_offset_bytes;
        let passed = Passed { tag, len_bytes, buffer_offset_bytes, fault };
        let Some(slot) = self.passed.insert(passed) else { return Err(request) };
        request.tag = slot;
        self.inner.submit(request).map_err(|mut request| {
            self.passed.take(slot);
            (request.tag, request.len_bytes) = (tag, len_bytes);
            request
        })
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        self.failed.poll(completions);
        self.inner.poll(&mut self.results);
        self.finish_all(completions);
        completions.len() - before
    }

    fn look(&mut self, completions: &mut Vec<Completion>) -> usize {
        if self.failed.len() > 0 {
            return self.poll(completions);
        }
        let before = completions.len();
        self.inner.look(&mut self.results);
        self.finish_all(completions);
        completions.len() - before
    }

    fn arrival(&self) -> Arrival {
        self.inner.arrival().with_held(self.failed.len() > 0, self.inner.in_flight())
    }

    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        let clock = WaitClock::start(options, self.in_flight());
        self.kick();
        let mut taken = self.poll(completions);
        let now = std::time::Instant::now();
        if !clock.is_over(taken, now) {
            let before = completions.len();
            self.inner.wait(&mut self.results, clock.rest(taken, clock.end(taken), now));
            self.finish_all(completions);
            taken += completions.len() - before;
        }
        taken
    }

    fn in_flight(&self) -> u32 {
        self.passed.used() + self.failed.len()
    }

    fn statistics(&self) -> ChannelStatistics {
        let mut all = self.statistics.over(self.inner.statistics());
        all.system_calls += self.failed.system_calls;
        all
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        if self.set.is_none() {
            // If the device below needs no waiting, neither do its faults.
            let Some(below) = self.inner.completion_fd()? else { return Ok(None) };
            let set = PollSet::new()?;
            set.add(below)?;
            set.add(self.failed.event()?)?;
            self.set = Some(set);
        }
        Ok(self.set.as_ref().map(AsFd::as_fd))
    }
}
