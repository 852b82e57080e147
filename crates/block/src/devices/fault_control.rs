//! The handle that controls the faults of a device.

use qpair_memory::locks::Mutex;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::SeqCst};

use crate::seam::error::IoError;
use crate::seam::request::{Op, Request};

/// The fault that is injected into one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The request is not affected.
    None,
    /// The request fails without reaching the device.
    Fail(IoError),
    /// A write fails after its first sectors are written.
    Tear { sectors: u64, error: IoError },
    /// A read comes back with a bit flipped.
    Corrupt,
}

/// The faults of one operation. Discard and write-zeroes count as writes.
#[derive(Default)]
struct Verb {
    /// The probability, as the bits of an f64.
    error_rate: AtomicU64,
    failing: AtomicBool,
    /// The number of requests until the one that fails; 0 if none will.
    countdown: AtomicU64,
    /// The number of next requests that fail; 0 if none will.
    next: AtomicU64,
    seen: AtomicU64,
    ranges: Mutex<Vec<Range<u64>>>,
    has_ranges: AtomicBool,
}

#[derive(Default)]
struct State {
    reads: Verb,
    writes: Verb,
    flushes: Verb,
    errno: AtomicI32,
    /// The number of writes until the torn one; 0 if none will be torn.
    tear_countdown: AtomicU64,
    tear_sectors: AtomicU64,
    /// Whether every request after the torn write fails.
    tear_crashes: AtomicBool,
    corrupt_rate: AtomicU64,
    corrupt_countdown: AtomicU64,
    growing_fails: AtomicBool,
    errors: AtomicU64,
    torn_writes: AtomicU64,
    corrupt_reads: AtomicU64,
}

/// The numbers of faults injected so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Failed requests, including torn writes.
    pub errors: u64,
    /// Torn writes.
    pub torn_writes: u64,
    /// Reads with a flipped bit.
    pub corrupt_reads: u64,
}

/// Controls the faults of a [`crate::FaultDevice`]. Clones control the same device, from any
/// thread. A change applies to requests submitted afterwards, on every channel.
#[derive(Clone)]
pub struct FaultControl {
    state: Arc<State>,
}

impl FaultControl {
    pub(crate) fn new() -> Self {
        let control = Self { state: Arc::default() };
        control.set_error(IoError::IO);
        control
    }

    fn verb(&self, op: Op) -> &Verb {
        match op {
            Op::Read => &self.state.reads,
            Op::Write | Op::Discard | Op::WriteZeroes => &self.state.writes,
            Op::Flush => &self.state.flushes,
        }
    }

    /// Sets the error of failing requests; EIO at the start.
    pub fn set_error(&self, error: IoError) {
        self.state.errno.store(error.errno, SeqCst);
    }

    /// Makes a share of the requests of an operation fail: 0 none, 1 all.
    pub fn set_error_rate(&self, op: Op, rate: f64) {
        self.verb(op).error_rate.store(rate.to_bits(), SeqCst);
    }

    /// Makes every read fail, or stops that.
    pub fn fail_reads(&self, fail: bool) {
        self.state.reads.failing.store(fail, SeqCst);
    }

    /// Makes every write, discard and write-zeroes fail, or stops that.
    pub fn fail_writes(&self, fail: bool) {
        self.state.writes.failing.store(fail, SeqCst);
    }

    /// Makes every flush fail, or stops that.
    pub fn fail_flushes(&self, fail: bool) {
        self.state.flushes.failing.store(fail, SeqCst);
    }

    /// Makes every request fail from now on, as on a device that is gone, or stops that.
    pub fn fail_all(&self, fail: bool) {
        self.fail_reads(fail);
        self.fail_writes(fail);
        self.fail_flushes(fail);
    }

    /// Makes growing fail with a lack of space, or stops that.
    pub fn fail_grow(&self, fail: bool) {
        self.state.growing_fails.store(fail, SeqCst);
    }

    /// Makes the `nth` request of an operation from now fail, once: 1 is the next one, 0 cancels
    /// the fault.
    pub fn fail_nth(&self, op: Op, nth: u64) {
        self.verb(op).countdown.store(nth, SeqCst);
    }

    /// Makes the next `count` requests of an operation fail; 0 cancels the fault.
    pub fn fail_next(&self, op: Op, count: u64) {
        self.verb(op).next.store(count, SeqCst);
    }

    /// Makes every request of an operation fail that overlaps a range of bytes on the device: a bad
    /// spot.
    pub fn fail_range(&self, op: Op, range: Range<u64>) {
        let verb = self.verb(op);
        verb.ranges.lock().push(range);
        verb.has_ranges.store(true, SeqCst);
    }

    /// Tears the `nth` write from now, once: its first `sectors` sectors of 512 bytes (rounded down
    /// to the logical block) reach the device, and the write fails. 1 is the next write, 0 cancels
    /// the fault.
    pub fn tear_nth_write(&self, nth: u64, sectors: u64) {
        self.set_tear(nth, sectors, false);
    }

    /// Simulates a power failure in the `nth` write from now: the write is torn after `sectors`
    /// sectors, and every later request fails.
    pub fn crash_at_write(&self, nth: u64, sectors: u64) {
        self.set_tear(nth, sectors, true);
    }

    fn set_tear(&self, nth: u64, sectors: u64, crash: bool) {
        // Disabled during the change, so that no write sees half of it.
        self.state.tear_countdown.store(0, SeqCst);
        self.state.tear_sectors.store(sectors, SeqCst);
        self.state.tear_crashes.store(crash, SeqCst);
        self.state.tear_countdown.store(nth, SeqCst);
    }

    /// Flips one bit in a share of the reads: 0 none, 1 all.
    pub fn set_corrupt_read_rate(&self, rate: f64) {
        self.state.corrupt_rate.store(rate.to_bits(), SeqCst);
    }

    /// Flips one bit in the `nth` read from now, once: 1 is the next one, 0 cancels the fault.
    pub fn corrupt_nth_read(&self, nth: u64) {
        self.state.corrupt_countdown.store(nth, SeqCst);
    }

    /// Cancels every fault: the device works from now on.
    pub fn heal(&self) {
        for op in [Op::Read, Op::Write, Op::Flush] {
            self.set_error_rate(op, 0.0);
            self.fail_nth(op, 0);
            self.fail_next(op, 0);
            let verb = self.verb(op);
            verb.has_ranges.store(false, SeqCst);
            verb.ranges.lock().clear();
        }
        self.tear_nth_write(0, 0);
        self.set_corrupt_read_rate(0.0);
        self.corrupt_nth_read(0);
        self.fail_all(false);
        self.fail_grow(false);
    }

    /// Returns the number of requests of an operation so far, including failed ones. Run a test
    /// once without faults to learn how many there are.
    #[must_use]
    pub fn seen(&self, op: Op) -> u64 {
        self.verb(op).seen.load(SeqCst)
    }

    /// Returns the number of injected faults so far.
    #[must_use]
    pub fn counts(&self) -> FaultCounts {
        FaultCounts {
            errors: self.state.errors.load(SeqCst),
            torn_writes: self.state.torn_writes.load(SeqCst),
            corrupt_reads: self.state.corrupt_reads.load(SeqCst),
        }
    }

    pub(crate) fn growing_fails(&self) -> bool {
        self.state.growing_fails.load(SeqCst)
    }

    /// Chooses the fault of `request`. Call it once for each request, because the call also counts
    /// the request.
    pub(crate) fn decide(&self, request: &Request, rng: &mut fastrand::Rng) -> Fault {
        let state = &*self.state;
        let verb = self.verb(request.op);
        verb.seen.fetch_add(1, SeqCst);
        let error = IoError::from_errno(state.errno.load(SeqCst));
        // Both count every request, whichever causes the fault.
        let is_nth = count_down(&verb.countdown);
        let torn = request.op == Op::Write && count_down(&state.tear_countdown);
        let fails = count_down_any(&verb.next)
            || verb.failing.load(SeqCst)
            || is_nth
            || happens(&verb.error_rate, rng)
            || (verb.has_ranges.load(SeqCst) && touches(&verb.ranges, request));
        if fails {
            state.errors.fetch_add(1, SeqCst);
            return Fault::Fail(error);
        }
        if torn {
            state.errors.fetch_add(1, SeqCst);
            state.torn_writes.fetch_add(1, SeqCst);
            if state.tear_crashes.load(SeqCst) {
                self.fail_all(true);
            }
            return Fault::Tear { sectors: state.tear_sectors.load(SeqCst), error };
        }
        let is_read = request.op == Op::Read;
        if is_read && (count_down(&state.corrupt_countdown) || happens(&state.corrupt_rate, rng)) {
            state.corrupt_reads.fetch_add(1, SeqCst);
            return Fault::Corrupt;
        }
        Fault::None
    }
}

impl fmt::Debug for FaultControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultControl with {:?}", self.counts())
    }
}

/// Counts one request. Returns whether the count reached the request that fails.
fn count_down(countdown: &AtomicU64) -> bool {
    let before = countdown.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
    before == Ok(1)
}

/// Counts one request. Returns whether the request is one of those that fail.
fn count_down_any(countdown: &AtomicU64) -> bool {
    countdown.load(SeqCst) > 0
        && countdown.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
}

/// Draws a random number only if `rate` is not 0, so that the rate of one operation does not change
/// the faults of another one.
fn happens(rate: &AtomicU64, rng: &mut fastrand::Rng) -> bool {
    let rate = f64::from_bits(rate.load(SeqCst));
    rate > 0.0 && rng.f64() < rate
}

fn touches(ranges: &Mutex<Vec<Range<u64>>>, request: &Request) -> bool {
    let start = request.offset_bytes;
    let end = start.saturating_add(u64::from(request.len_bytes));
    let ranges = ranges.lock();
    ranges.iter().any(|range| range.start < end && start < range.end)
}
