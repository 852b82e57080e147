//! The requests in flight on a channel, and the times of these.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use qpair_block::{
    ChannelStatistics, Completion, DeviceInfo, IoError, Op, Request, UnflushedWrites,
};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// A request in flight.
#[derive(Debug)]
pub struct Job<S> {
    pub request: Request,
    pub state: S,
    /// The first error that the peer has reported of a part of the request.
    pub error: Option<IoError>,
    /// The time to begin the job again, after a pause.
    pub(super) again_at: Option<Instant>,
    pub(super) since: Instant,
    /// The writes of the device that had ended when a flush was submitted, which it covers.
    covers: u64,
}

impl<S> Job<S> {
    /// Whether the job is sent again after a pause, and has no message under way.
    pub fn is_paused(&self) -> bool {
        self.again_at.is_some()
    }

    /// Appends data of a write, from an offset in the request.
    #[inline]
    pub fn put_data(&self, offset: u32, len: u32, output: &mut Vec<u8>) {
        let Some(buffer) = &self.request.buffer else { return };
        let at = output.len();
        output.resize(at + len as usize, 0);
        buffer.copy_to(
            self.request.buffer_offset_bytes as usize + offset as usize,
            &mut output[at..],
        );
    }

    /// Moves data of a read into its buffer. The caller has checked that it is inside the request.
    #[inline]
    pub fn fill(&mut self, offset: u32, data: &[u8]) {
        if let Some(buffer) = &mut self.request.buffer {
            buffer.copy_from(self.request.buffer_offset_bytes as usize + offset as usize, data);
        }
    }
}

/// The facts of a channel that do not change.
#[derive(Debug)]
pub struct Setting {
    pub info: DeviceInfo,
    /// The time limit of a request, and of connecting again.
    pub limit: Duration,
    /// The number of connections of the device that were made again.
    pub resets: Arc<AtomicU64>,
    pub writes: Arc<UnflushedWrites>,
}

/// The requests in flight, and the bytes to send for them.
///
/// Invariants:
/// - a request is in `slots` from its submission until its completion is in `ended`;
/// - while there is a job, the timer is set.
pub struct Jobs<S> {
    pub setting: Setting,
    pub slots: Box<[Option<Job<S>>]>,
    pub output: Vec<u8>,
    free: Vec<usize>,
    pub(super) ended: Vec<Completion>,
    pub(super) statistics: ChannelStatistics,
    pub(super) timer: OwnedFd,
    /// The time for which the timer is set.
    looks_at: Option<Instant>,
}

impl<S: Default> Jobs<S> {
    pub(super) fn new(depth: usize, setting: Setting) -> rustix::io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self {
            setting,
            slots: (0..depth).map(|_| None).collect(),
            output: Vec::new(),
            free: (0..depth).rev().collect(),
            ended: Vec::with_capacity(depth),
            statistics: ChannelStatistics::default(),
            timer: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            looks_at: None,
        })
    }

    pub(super) fn are_none(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Gives a request a slot, or returns it if none is free.
    #[inline]
    pub(super) fn insert(&mut self, request: Request) -> Result<usize, Request> {
        let Some(slot) = self.free.pop() else { return Err(request) };
        let since = Instant::now();
        let covers = self.setting.writes.ended();
        let state = S::default();
        self.slots[slot] = Some(Job { request, state, error: None, again_at: None, since, covers });
        if self.looks_at.is_none() {
            self.set_timer(since);
        }
        Ok(slot)
    }

    /// Ends a job whose reply has come.
    #[inline]
    pub fn conclude(&mut self, slot: usize, mut result: Result<(), IoError>) {
        let Some(job) = self.slots[slot].take() else { return };
        let Request { op, force_unit_access, .. } = job.request;
        // Another channel of the device may have lost writes meanwhile.
        if op == Op::Flush && self.setting.writes.are_lost() {
            result = result.and(Err(IoError::IO));
        }
        match op {
            _ if result.is_err() || !self.setting.info.volatile_write_cache => {}
            Op::Write if force_unit_access => {}
            Op::Write | Op::WriteZeroes => self.setting.writes.end(),
            Op::Flush => self.setting.writes.cover(job.covers),
            _ => {}
        }
        self.free.push(slot);
        self.end(job.request, result);
    }

    /// Pauses a job that the peer cannot do now, and begins it again later.
    pub fn pause(&mut self, slot: usize, pause: Duration) {
        let Some(job) = &mut self.slots[slot] else { return };
        let now = Instant::now();
        (job.error, job.again_at) = (None, Some(now + pause));
        if self.looks_at.is_none_or(|at| at > now + pause) {
            self.set_timer(now);
        }
    }

    pub(super) fn end(&mut self, request: Request, result: Result<(), IoError>) {
        self.statistics.count(request.op, request.len_bytes, result);
        self.ended.push(request.complete(result));
    }

    pub(super) fn fail(&mut self, slot: usize, error: IoError) {
        if let Some(job) = self.slots[slot].take() {
            self.free.push(slot);
            self.end(job.request, Err(error));
        }
    }

    /// Sets the timer, for the next look at the jobs' times.
    pub(super) fn set_timer(&mut self, now: Instant) {
        let pause =
            (self.setting.limit / 8).clamp(Duration::from_millis(5), Duration::from_secs(1));
        let soonest = self.slots.iter().flatten().filter_map(|job| job.again_at).min();
        let left = soonest.map(|at| at.saturating_duration_since(now));
        let pause = left.map_or(pause, |left| left.clamp(Duration::from_millis(1), pause));
        let value = Timespec::try_from(pause).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval: zero, it_value: value };
        // The descriptor is a timer and the time is valid, so this cannot fail.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec);
        self.looks_at = Some(now + pause);
    }

    /// Returns the time if it is that of a look at the jobs' times.
    #[inline]
    pub(super) fn look(&mut self) -> Option<Instant> {
        let at = self.looks_at?;
        let now = Instant::now();
        if now < at {
            return None;
        }
        self.looks_at = None;
        // Without this it stays readable; what it has counted is of no interest.
        let _ = rustix::io::read(&self.timer, &mut [0; 8]);
        Some(now)
    }
}
