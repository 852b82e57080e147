//! The limit device: another device with a limited rate.
//!
//! Each limit is a bucket that fills with time. The bucket is stored as the moment up to which its
//! time is spent. A request that passes moves that moment by its cost, and no request passes while
//! the moment lies in the future. A large request therefore passes at once and is charged
//! afterwards. The rate holds in the long run, and an idle caller has saved at most [`BURST_NS`].
//!
//! A channel takes time from the shared buckets in pieces of [`PIECE_NS`], and spends it without
//! reading the clock or accessing memory that other channels write. Reads and writes wait in
//! separate queues, so that a limit of one does not delay the other. Flushes, discards and
//! write-zeroes never wait.

use qpair_memory::locks::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::channel::holding::{Alarm, Holding, wait_holding};
use crate::seam::byte_locks::ByteLocks;
use crate::seam::device::{
    Arrival, BlockDevice, ChannelOptions, ChannelStatistics, DeviceInfo, Extent, IoChannel,
    WaitOptions,
};
use crate::seam::error::Result;
use crate::seam::request::{Completion, Op, Request};

/// The maximum time that a bucket saves.
const BURST_NS: u64 = 5_000_000;
/// The time that a channel takes from a bucket at once.
const PIECE_NS: u64 = 100_000;
/// The shift of costs in nanoseconds, so that the costs of fast limits are exact.
const COST_SHIFT: u32 = 20;

/// The limits of a [`LimitDevice`]; 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Reads and writes per second.
    pub ios_per_s: u64,
    /// Bytes read and written per second.
    pub bytes_per_s: u64,
    /// Bytes read per second.
    pub read_bytes_per_s: u64,
    /// Bytes written per second.
    pub written_bytes_per_s: u64,
}

/// A clock: nanoseconds since some fixed moment.
pub type LimitClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The limits that apply to reads, as indices of [`Shared::buckets`].
const OF_READS: [usize; 3] = [0, 1, 2];
const OF_WRITES: [usize; 3] = [0, 1, 3];

struct Shared {
    clock: LimitClock,
    limits: Mutex<Limits>,
    /// The number of times that the limits were set.
    settings: AtomicU64,
    /// The moment up to which the time of each limit is spent.
    buckets: [AtomicU64; 4],
}

impl Shared {
    /// Takes `piece_ns` of time from a bucket. An empty bucket returns the moment from which it has
    /// time again.
    fn take(&self, bucket: usize, piece_ns: u64, now_ns: u64) -> std::result::Result<(), u64> {
        let spent = &self.buckets[bucket];
        let take = |spent_ns: u64| {
            let saved_ns = spent_ns.max(now_ns.saturating_sub(BURST_NS));
            (spent_ns <= now_ns).then(|| saved_ns.saturating_add(piece_ns))
        };
        // No other data is published together with the bucket.
        spent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).map(drop)
    }
}

/// A device with limits that can be set at any time. Each limit applies to all of its channels
/// together.
pub struct LimitDevice {
    info: DeviceInfo,
    inner: Arc<dyn BlockDevice>,
    shared: Arc<Shared>,
}

impl LimitDevice {
    /// Wraps `inner`, without limits at first.
    #[must_use]
    pub fn new(inner: Arc<dyn BlockDevice>) -> Self {
        let start = Instant::now();
        let clock = move || start.elapsed().as_nanos().try_into().unwrap_or(u64::MAX);
        Self::with_clock(inner, Arc::new(clock))
    }

    /// Wraps `inner`, with another clock than the system's. Sleeps still use the system's clock.
    #[must_use]
    pub fn with_clock(inner: Arc<dyn BlockDevice>, clock: LimitClock) -> Self {
        let shared = Shared {
            clock,
            limits: Mutex::default(),
            settings: AtomicU64::new(0),
            buckets: Default::default(),
        };
        Self { info: inner.info().clone(), inner, shared: Arc::new(shared) }
    }

    /// Sets the limits. They apply from the next request on.
    pub fn set(&self, limits: Limits) {
        *self.shared.limits.lock() = limits;
        // Pairs with the load in `LimitChannel::learn`, which takes the lock then.
        self.shared.settings.fetch_add(1, Ordering::Release);
    }

    /// Returns the current limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        *self.shared.limits.lock()
    }
}

impl fmt::Debug for LimitDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} on {:?}", self.limits(), self.inner)
    }
}

impl BlockDevice for LimitDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
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

    fn byte_locks(&self) -> Option<Arc<dyn ByteLocks>> {
        self.inner.byte_locks()
    }

    fn extent(&self, offset_bytes: u64, len_bytes: u64) -> Extent {
        self.inner.extent(offset_bytes, len_bytes)
    }

    fn removed(&self) -> Option<String> {
        self.inner.removed()
    }

    fn reset(&self) -> Result<()> {
        self.inner.reset()
    }

    fn resets(&self) -> u64 {
        self.inner.resets()
    }

    fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
        let lane = || VecDeque::with_capacity(options.depth as usize);
        Ok(Box::new(LimitChannel {
            inner: self.inner.open_channel(options)?,
            shared: self.shared.clone(),
            depth: options.depth,
            settings: 0,
            is_limited: false,
            costs: [0; 4],
            left: [0; 4],
            lanes: [lane(), lane()],
            turn: 0,
            due_ns: u64::MAX,
            due_at: Instant::now(),
            has_wake: options.wake.is_some(),
            alarm: Alarm::default(),
        }))
    }
}

struct LimitChannel {
    inner: Box<dyn IoChannel>,
    shared: Arc<Shared>,
    depth: u32,
    /// The number of the setting from which `costs` were computed.
    settings: u64,
    /// Whether any of `costs` is not 0.
    is_limited: bool,
    /// The cost of an I/O under the first limit, and of a byte under the others, in shifted
    /// nanoseconds; 0 means no limit.
    costs: [u64; 4],
    /// The time taken from each bucket and not spent, in shifted nanoseconds. A negative value is a
    /// debt.
    left: [i64; 4],
    /// The waiting reads, and the waiting writes, each with its position among all.
    lanes: [VecDeque<(u64, Request)>; 2],
    turn: u64,
    /// The earliest moment at which the first waiting request may pass, by the limit clock and by
    /// the system's clock.
    due_ns: u64,
    due_at: Instant,
    has_wake: bool,
    alarm: Alarm,
}

impl LimitChannel {
    /// Adopts limits that were set since the last call.
    #[inline]
    fn learn(&mut self) {
        let settings = self.shared.settings.load(Ordering::Acquire);
        if settings != self.settings {
            self.relearn(settings);
        }
    }

    #[cold]
    fn relearn(&mut self, settings: u64) {
        let Limits { ios_per_s, bytes_per_s, read_bytes_per_s, written_bytes_per_s } =
            *self.shared.limits.lock();
        let cost = |per_s: u64| match per_s {
            0 => 0,
            _ => (1_000_000_000u64 << COST_SHIFT).div_ceil(per_s).max(1),
        };
        self.costs = [ios_per_s, bytes_per_s, read_bytes_per_s, written_bytes_per_s].map(cost);
        self.left = [0; 4];
        self.is_limited = self.costs != [0; 4];
        self.settings = settings;
        // Check the waiting requests again.
        (self.due_ns, self.due_at) = (0, Instant::now());
    }

    /// Charges a request to all limits that apply to it. Returns `false` if the request must wait.
    #[inline]
    fn pay(&mut self, op: Op, len_bytes: u32) -> bool {
        for limit in limits_of(op) {
            if self.costs[limit] != 0 && self.left[limit] <= 0 && !self.refill(limit) {
                return false;
            }
        }
        for limit in limits_of(op) {
            self.left[limit] =
                self.left[limit].saturating_sub_unsigned(self.cost(limit, len_bytes));
        }
        true
    }

    /// Refunds the cost of a request for which the channel below has no room.
    #[cold]
    fn refund(&mut self, op: Op, len_bytes: u32) {
        for limit in limits_of(op) {
            self.left[limit] =
                self.left[limit].saturating_add_unsigned(self.cost(limit, len_bytes));
        }
    }

    #[inline]
    fn cost(&self, limit: usize, len_bytes: u32) -> u64 {
        let count = if limit == 0 { 1 } else { u64::from(len_bytes) };
        self.costs[limit].saturating_mul(count)
    }

    /// Passes a request to the channel below.
    #[inline]
    fn pass_on(&mut self, request: Request) -> std::result::Result<(), Request> {
        let (op, len_bytes) = (request.op, request.len_bytes);
        self.inner.submit(request).inspect_err(|_| self.refund(op, len_bytes))
    }

    /// Takes a piece of time from a bucket, and settles the channel's debt.
    fn refill(&mut self, limit: usize) -> bool {
        let debt_ns = self.left[limit].unsigned_abs() >> COST_SHIFT;
        let now_ns = (self.shared.clock)();
        match self.shared.take(limit, debt_ns.saturating_add(PIECE_NS), now_ns) {
            Ok(()) => {
                let taken = debt_ns.saturating_add(PIECE_NS) << COST_SHIFT;
                self.left[limit] = self.left[limit].saturating_add_unsigned(taken);
                true
            }
            Err(due_ns) => {
                if due_ns < self.due_ns {
                    let after = Duration::from_nanos(due_ns.saturating_sub(now_ns));
                    self.due_ns = due_ns;
                    self.due_at = Instant::now().checked_add(after).unwrap_or(self.due_at);
                }
                false
            }
        }
    }

    /// Whether no limit is set, and no request waits.
    #[inline]
    fn is_free(&self) -> bool {
        !self.is_limited && self.lanes.iter().all(VecDeque::is_empty)
    }

    fn held(&self) -> u32 {
        self.lanes.iter().map(|lane| lane.len() as u32).sum()
    }

    /// Passes on the waiting requests that may pass, in the order in which they came.
    fn release(&mut self) {
        if self.held() == 0 {
            return;
        }
        let before = (self.due_ns, self.due_at);
        self.due_ns = u64::MAX;
        let (mut released, mut may) = (false, [true; 2]);
        loop {
            let front = |lane: usize| self.lanes[lane].front().filter(|_| may[lane]);
            let lane = match (front(0), front(1)) {
                (Some((read, _)), Some((write, _))) => usize::from(write < read),
                (Some(_), None) => 0,
                (None, Some(_)) => 1,
                (None, None) => break,
            };
            let Some((turn, request)) = self.lanes[lane].pop_front() else { break };
            if !self.pay(request.op, request.len_bytes) {
                self.lanes[lane].push_front((turn, request));
                may[lane] = false;
                continue;
            }
            if let Err(request) = self.pass_on(request) {
                self.lanes[lane].push_front((turn, request));
                break;
            }
            released = true;
        }
        if self.due_ns == before.0 {
            // Keep the previous instant, so that the timer is not set again.
            self.due_at = before.1;
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

fn limits_of(op: Op) -> [usize; 3] {
    if op == Op::Read { OF_READS } else { OF_WRITES }
}

impl Holding for LimitChannel {
    fn below(&mut self) -> &mut dyn IoChannel {
        self.inner.as_mut()
    }

    fn next_due(&self) -> Option<Instant> {
        (self.held() > 0).then_some(self.due_at)
    }

    fn has_wake(&self) -> bool {
        self.has_wake
    }
}

impl IoChannel for LimitChannel {
    #[inline]
    fn submit(&mut self, request: Request) -> std::result::Result<(), Request> {
        self.learn();
        if self.is_free() {
            return self.inner.submit(request);
        }
        if self.in_flight() >= self.depth {
            return Err(request);
        }
        let lane = match request.op {
            Op::Read => 0,
            Op::Write => 1,
            Op::Flush | Op::Discard | Op::WriteZeroes => return self.inner.submit(request),
        };
        if self.lanes[lane].is_empty() && self.pay(request.op, request.len_bytes) {
            return self.pass_on(request);
        }
        self.turn += 1;
        self.lanes[lane].push_back((self.turn, request));
        Ok(())
    }

    #[inline]
    fn kick(&mut self) {
        self.release();
        self.inner.kick();
        self.arm();
    }

    #[inline]
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        self.learn();
        self.release();
        let count = self.inner.poll(completions);
        self.arm();
        count
    }

    #[inline]
    fn look(&mut self, completions: &mut Vec<Completion>) -> usize {
        self.learn();
        self.release();
        let count = self.inner.look(completions);
        self.arm();
        count
    }

    fn arrival(&self) -> Arrival {
        self.inner.arrival().with_held(self.held() > 0, self.inner.in_flight())
    }

    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        self.learn();
        if self.is_free() {
            return self.inner.wait(completions, options);
        }
        wait_holding(self, completions, options)
    }

    fn in_flight(&self) -> u32 {
        self.inner.in_flight() + self.held()
    }

    fn statistics(&self) -> ChannelStatistics {
        let mut statistics = self.inner.statistics();
        statistics.system_calls += self.alarm.system_calls;
        statistics
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        self.learn();
        if !self.alarm.is_made() {
            let below = self.inner.completion_fd()?;
            // Until a limit is set, this channel needs waiting only if the one below does.
            if below.is_none() && !self.is_limited {
                return Ok(None);
            }
            self.alarm.make(below)?;
            self.arm();
        }
        Ok(self.alarm.descriptor())
    }
}
