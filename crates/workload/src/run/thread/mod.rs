//! The thread of one job, which submits requests, takes completions and measures them.
//!
//! Invariants:
//! - a tag is either free or names one request in flight (or held back), whose stamps and buffer
//!   are in its slot;
//! - `in_flight` counts the requests that channels have taken and not returned;
//! - nothing is measured before the ramp is over; from then on, every request that completes is
//!   measured.
//!
//! Long, because one loop submits, waits and measures, and its steps share the state of tags.

mod choosing;
mod messages;
mod replaying;
mod stating;
mod submitting;
mod verifying;
mod waiting;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qpair_block::{
    Arena, ArenaOptions, Buffer, ChannelGroup, ChannelOptions, ChannelStatistics, Completion,
    Error, ErrorKind, Result, TickClock, WakeEvent,
};
use qpair_kernel::Interface;
use rand::Rng;
use rand::rngs::SmallRng;

use crate::iolog::Writer;
use crate::job::{Direction, Form, Job, Measured, Verbs};
use crate::report::{CpuReport, Incidents, JobError, Passed, VerifyReport};

use super::arrivals::Arrivals;
use super::cpu::Counters;
use super::fill::Fill;
use super::floor::Floor;
use super::flow::Share;
use super::offsets::{Offsets, generator, used_sizes};
use super::open::Opened;
use super::record::{Record, Shown, Stamps};
use super::sizes::Draw;
use super::status::Desk;
use super::target::{LatencyTarget, Verdict};
use super::verify::Chunks;

use replaying::Replaying;

pub(super) use messages::{Messages, produce};

/// The time by which a sleep may end late, in nanoseconds. The rest of a wait is spent polling the
/// clock.
const SLEEP_SLACK_NS: u64 = 80_000;
/// The interval at which a waiting thread checks whether it should stop.
const LOOK: Duration = Duration::from_millis(100);
/// Error numbers of Linux, from errno.h.
const EIO: i32 = 5;
const EBUSY: i32 = 16;
const ENOSPC: i32 = 28;
const ETIMEDOUT: i32 = 110;
const EDQUOT: i32 = 122;
const EILSEQ: i32 = 84;
/// The number of wrong blocks that are reported one by one. Further ones are only counted.
const ERRORS_TOLD: usize = 20;

#[derive(Default)]
struct Slot {
    stamps: Stamps,
    offset_bytes: u64,
    len_bytes: u32,
    target: u32,
    kind: Kind,
    /// Whether the content that is read will be checked.
    is_checked: bool,
    buffer: Option<Buffer>,
    /// The number of bytes of the buffer with content for writes, since it was last used for a
    /// read.
    filled_bytes: u32,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Kind {
    #[default]
    Read,
    Write,
    Trim,
    Flush,
}

impl Kind {
    fn fio_word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Trim => "trim",
            Self::Flush => "sync",
        }
    }
}

/// A request that was chosen.
#[derive(Clone, Copy)]
struct Candidate {
    direction: Direction,
    target: u32,
    offset_bytes: u64,
    len_bytes: u32,
    /// The planned start; 0: now.
    due_ns: u64,
    /// Whether the request reads a written block back for verification.
    reads_back: bool,
}

enum Next {
    Go(Candidate),
    /// A flush of this target.
    Flush(u32),
    /// No request may start before this time, in nanoseconds of the run's clock.
    Later(u64),
    /// No request may start before another one completes.
    Blocked,
    End,
}

pub(super) struct Outcome {
    pub(super) record: Record,
    pub(super) cpu: CpuReport,
    pub(super) error: Option<JobError>,
    pub(super) verify: VerifyReport,
    pub(super) passed: Passed,
    pub(super) incidents: Incidents,
    pub(super) depth_found: Option<u32>,
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
    pub(super) in_ramp: bool,
}

impl Outcome {
    /// Returns a copy without the histograms over time.
    pub(super) fn copy(&self) -> Self {
        Self {
            record: self.record.copy(),
            error: self.error.clone(),
            verify: self.verify.clone(),
            passed: self.passed.clone(),
            ..*self
        }
    }
}

impl Clone for Outcome {
    fn clone(&self) -> Self {
        self.copy()
    }
}

/// State that a thread shares with the watcher and other threads.
pub(super) struct Common<'a> {
    /// Whether all jobs must end.
    pub(super) stop: &'a AtomicBool,
    /// Whether this thread's job must end.
    pub(super) end: &'a AtomicBool,
    pub(super) clock: TickClock,
}

impl Common<'_> {
    /// Whether the job must end before its time.
    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.end.load(Ordering::Relaxed)
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        self.clock.elapsed_ns()
    }

    /// Waits for a moment: sleeps while it is far, and polls the clock when it is near. May return
    /// early.
    fn sleep_towards(&self, due_ns: u64) {
        let left_ns = due_ns.saturating_sub(self.now_ns());
        if left_ns > SLEEP_SLACK_NS {
            std::thread::sleep(Duration::from_nanos(left_ns - SLEEP_SLACK_NS).min(LOOK));
        } else {
            std::hint::spin_loop();
        }
    }
}

pub(super) struct Thread<'a> {
    job: &'a Job,
    targets: &'a [Opened],
    common: &'a Common<'a>,
    shown: &'a Shown,
    // Dropped before the buffers, which they may hold.
    /// One channel for each target.
    channels: ChannelGroup,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The tags of requests that channels have taken and not yet submitted.
    pending: Vec<u32>,
    completions: Vec<Completion>,
    /// Whether `completions` has the rest of a longer list in reverse order: the next one is at its
    /// end.
    reversed: bool,
    in_flight: u32,
    offsets: Vec<Offsets>,
    chunks: Vec<Chunks>,
    fill: Fill,
    draw: Draw,
    random: SmallRng,
    arrivals: Arrivals,
    held: Option<Candidate>,
    replaying: Option<Replaying>,
    iolog: Option<Writer>,
    /// Trimmed ranges that are to be written: target, offset, length.
    trimmed: VecDeque<(u32, u64, u32)>,
    target_next: u32,
    /// The number of bytes left on the current target of `TargetOrder::Sequential`.
    target_left: u64,
    bytes_left: u64,
    ios_left: u64,
    pub(super) share: Option<Share>,
    /// The desk at which the watcher asks for the job's state.
    pub(super) desk: Option<&'a Desk>,
    /// The number of the question that was answered last.
    answered: u64,
    /// The results up to the start of the final verification.
    before_verify: Option<Outcome>,
    floor: Option<Floor>,
    target: Option<LatencyTarget>,
    /// Completed writes that were not read back yet (`verify_backlog`), and the number of them that
    /// are read back now.
    backlog: VecDeque<(u32, u64, u32)>,
    read_back_now: usize,
    writes_since_flush: u32,
    flush_due: Option<u32>,
    since_pause: u32,
    pause_until_ns: u64,
    /// The latencies to measure: those that the job requests, but no `slat` if the call that
    /// submits a request also executes it.
    measured: Measured,
    record: Record,
    verify: VerifyReport,
    passed: Passed,
    error: Option<JobError>,
    statistics_before: ChannelStatistics,
}

impl<'a> Thread<'a> {
    /// Opens the channels and maps the memory. Must be called on the thread that will use them.
    pub(super) fn new(
        job: &'a Job,
        targets: &'a [Opened],
        common: &'a Common<'a>,
        shown: &'a Shown,
        wake: Option<Arc<WakeEvent>>,
    ) -> Result<Self> {
        // The call that submits a request also executes it, so there is no time between the two.
        let inline = job.mode.interface == Interface::Posix && job.mode.threads == 0;
        let measured = Measured { slat: job.measured.slat && !inline, ..job.measured };
        let (unit, max) = used_sizes(job);
        let block = (max as usize).next_power_of_two().max(4096);
        let no_memory = |cause: std::io::Error| {
            if !job.huge_pages {
                return Error::os(cause, format!("mapping {} buffers of {block} bytes", job.depth))
                    .hint("choose a smaller bs or iodepth");
            }
            let what = format!(
                "mapping {} buffers of {block} bytes in huge pages (mem=mmaphuge): {cause}",
                job.depth
            );
            Error::new(ErrorKind::Limit, what)
                .hint("/proc/meminfo has HugePages_Free; choose a smaller bs or iodepth")
        };
        let arena = Arena::new(block, job.depth, memory(job, targets)).map_err(no_memory)?;
        let options = ChannelOptions { depth: job.depth, arenas: vec![arena.clone()], wake };
        let devices = targets.iter().map(|target| (target.device.as_ref(), &options));
        let channels = ChannelGroup::open(devices)?;
        let mut random = generator(job.seed, job.clone);
        let mut slots: Vec<Slot> = (0..job.depth).map(|_| Slot::default()).collect();
        for slot in &mut slots {
            slot.buffer = Some(arena.lease().ok_or_else(|| {
                Error::new(ErrorKind::Limit, "there are fewer buffers than requests in flight")
            })?);
        }
        let fill = Fill::new(&job.content, random.random());
        let offsets =
            targets.iter().map(|target| Offsets::new(job, target.region, random.random()));
        let offsets = offsets.collect::<Result<Vec<_>>>()?;
        let chunks = match &job.verify {
            None => Vec::new(),
            // The clone's seed cannot be used: another run of the same job must find what this one
            // wrote.
            Some(verify) => targets
                .iter()
                .map(|target| Chunks::new(verify, target.region, unit, job.seed, !target.is_shared))
                .collect::<Result<_>>()?,
        };
        Ok(Self {
            job,
            targets,
            common,
            shown,
            channels,
            slots,
            free: (0..job.depth).rev().collect(),
            pending: Vec::with_capacity(job.depth as usize),
            completions: Vec::with_capacity(job.depth as usize),
            reversed: false,
            in_flight: 0,
            offsets,
            chunks,
            fill,
            draw: Draw::new(job),
            random,
            arrivals: Arrivals::new(job, 0),
            held: None,
            replaying: Replaying::new(job),
            iolog: writer(job, targets, common)?,
            trimmed: VecDeque::new(),
            target_next: 0,
            target_left: targets.first().map_or(0, |target| target.region.len_bytes),
            bytes_left: budget(job, targets),
            ios_left: match job.number_ios {
                Some(count) if !job.time_based => count.saturating_mul(u64::from(job.loops.max(1))),
                _ => u64::MAX,
            },
            share: None,
            desk: None,
            answered: 0,
            before_verify: None,
            floor: None,
            target: None,
            backlog: VecDeque::new(),
            read_back_now: 0,
            writes_since_flush: 0,
            flush_due: None,
            since_pause: 0,
            pause_until_ns: 0,
            measured,
            record: Record::new(measured, job.sample.unwrap_or(Duration::from_secs(1)))
                .with_histograms(job.histogram_log.as_ref().map(|log| log.every)),
            verify: VerifyReport::default(),
            passed: Passed::default(),
            error: None,
            statistics_before: ChannelStatistics::default(),
        })
    }

    /// Whether the job itself determines what an earlier run of it wrote last to each chunk. That
    /// is so if the job only checks blocks and neither run is ended by time.
    pub(super) fn is_foreseeable(&self) -> bool {
        let job = self.job;
        job.verify.as_ref().is_some_and(|verify| verify.only)
            && job.runtime.is_none()
            && job.latency_target.is_none()
    }

    /// Returns the state of all chunks as an earlier run of the same job left them, for a job that
    /// only checks them. The requests of a fresh thread are enumerated, but not made.
    pub(super) fn foresee(mut self) -> Vec<Chunks> {
        while let Some(Candidate { direction, target, offset_bytes, len_bytes, .. }) =
            self.candidate()
        {
            if direction == Direction::Write {
                self.chunks[target as usize].number(offset_bytes, len_bytes);
            }
        }
        self.chunks
    }

    pub(super) fn knowing(mut self, chunks: Vec<Chunks>) -> Self {
        self.chunks = chunks;
        self
    }

    /// Runs the job to its end. `messages` are the moments at which [`Form::Messages`] passes
    /// requests to the thread.
    pub(super) fn run(mut self, messages: Option<&Messages<'_>>) -> Outcome {
        let start_ns = self.common.now_ns();
        let ramp_end_ns = start_ns + nanos(self.job.ramp);
        let end_ns = self.job.runtime.map_or(u64::MAX, |runtime| ramp_end_ns + nanos(runtime));
        self.arrivals = Arrivals::new(self.job, start_ns);
        if let Some(replaying) = &mut self.replaying {
            replaying.begin_ns = start_ns;
        }
        self.floor = Floor::new(self.job, start_ns);
        self.target = LatencyTarget::new(self.job, start_ns);
        let mut counters = self.begin_measuring(start_ns);
        let mut ramping = !self.job.ramp.is_zero();
        self.shown.phase.store(if ramping { 1 } else { 2 }, Ordering::Relaxed);
        let mut now = start_ns;
        loop {
            if ramping && now >= ramp_end_ns {
                ramping = false;
                counters = self.begin_measuring(now);
                self.shown.phase.store(2, Ordering::Relaxed);
            }
            let stop = self.common.is_stopped() || self.error.is_some();
            let over = stop || now >= end_ns;
            now = match messages {
                None => self.turn(now, over, if ramping { ramp_end_ns } else { end_ns }),
                Some(messages) => self.turn_of_messages(now, over, messages),
            };
            self.record.turn(now, self.shown);
            if self.is_asked() {
                self.answer(&mut counters, ramping);
            }
            if let Some(floor) = &mut self.floor
                && let Some(what) = floor.check(now, &self.record.directions)
            {
                self.fail(EIO, what);
            }
            if let Some(target) = &mut self.target {
                match target.check(now) {
                    Verdict::Go => {}
                    Verdict::CountAnew => counters = self.begin_measuring(now),
                    Verdict::End => (self.bytes_left, self.held) = (0, None),
                    Verdict::Missed => self.latency_missed(),
                }
            }
            if self.in_flight == 0 && self.completions.is_empty() && self.is_over(over) {
                break;
            }
        }
        self.share = None;
        if ramping {
            // The job ended before the measurement began.
            counters = self.begin_measuring(self.common.now_ns());
        }
        if self.job.flush_at_end && self.error.is_none() {
            self.flush_all();
        }
        let names: Vec<&str> = self.targets.iter().map(|target| target.name.as_str()).collect();
        if let Some(Err(error)) = self.iolog.take().map(|log| log.end(&names, self.common.now_ns()))
        {
            self.fail(EIO, error.to_string());
        }
        let (begin_ns, end_ns) = (self.record.begin_ns(), self.common.now_ns());
        self.record.end(end_ns);
        let calls = self.channels.statistics().system_calls - self.statistics_before.system_calls;
        let cpu = counters.end(calls);
        if self.error.is_none() && !self.common.is_stopped() {
            if self.desk.is_some() {
                let record = self.record.copy();
                self.before_verify = Some(self.outcome(record, cpu, (begin_ns, end_ns), ramping));
            }
            self.verify_written();
        }
        self.shown.phase.store(4, Ordering::Relaxed);
        let record = std::mem::replace(&mut self.record, Record::new(self.measured, LONG));
        self.outcome(record, cpu, (begin_ns, end_ns), ramping)
    }

    fn outcome(
        &self,
        record: Record,
        cpu: CpuReport,
        (begin_ns, end_ns): (u64, u64),
        in_ramp: bool,
    ) -> Outcome {
        // Include the ramp and the verification, because incidents there may have affected the
        // results.
        let ChannelStatistics { resets, timeouts_polled, .. } = self.channels.statistics();
        Outcome {
            record,
            cpu,
            error: self.error.clone(),
            verify: self.verify.clone(),
            passed: self.passed.clone(),
            incidents: Incidents { resets, timeouts_polled },
            depth_found: self.target.as_ref().map(LatencyTarget::depth),
            begin_ns,
            end_ns,
            in_ramp,
        }
    }

    fn begin_measuring(&mut self, now_ns: u64) -> Counters {
        self.record.begin(now_ns);
        self.statistics_before = self.channels.statistics();
        Counters::begin()
    }

    fn is_over(&self, over: bool) -> bool {
        let is_done = (self.bytes_left == 0 || self.ios_left == 0) && self.read_back_now == 0;
        over || (is_done
            && self.held.is_none()
            && self.trimmed.is_empty()
            && self.flush_due.is_none())
    }

    /// Fills the queue (until `until_ns` at most), waits for completions and settles them. Returns
    /// the time at the end.
    #[inline]
    fn turn(&mut self, mut now: u64, over: bool, until_ns: u64) -> u64 {
        let barrier = matches!(self.job.form, Form::Barrier | Form::Stress);
        let mut later = None;
        let may_add = !barrier || self.in_flight == 0;
        if !over && may_add {
            while !self.free.is_empty() {
                if let Some(target) = &mut self.target
                    && !target.has_room(self.in_flight)
                {
                    break;
                }
                if let Some(target) = self.flush_due.take() {
                    self.submit_flush(target, now);
                    continue;
                }
                match self.next(now) {
                    Next::Go(candidate) => {
                        self.submit(candidate, now);
                        if !barrier && self.pending.len() as u32 >= self.job.batch_submit {
                            // If it alone completes a full queue, it is submitted together with the
                            // wait, unless submission is measured.
                            if self.measured.slat || !self.free.is_empty() {
                                now = self.kick();
                                // Submitting can take longer than the job's remaining time: seconds
                                // for a deep queue of large blocks.
                                if now >= until_ns || self.common.is_stopped() {
                                    break;
                                }
                            }
                        }
                    }
                    Next::Flush(target) => self.submit_flush(target, now),
                    Next::Later(due_ns) => {
                        later = Some(due_ns);
                        break;
                    }
                    Next::Blocked | Next::End => break,
                }
            }
            if !self.pending.is_empty() && (self.measured.slat || !self.completions.is_empty()) {
                self.kick();
            }
        }
        if self.in_flight == 0 {
            return match later {
                Some(due_ns) => self.sleep_until(due_ns.min(until_ns)),
                None => self.common.now_ns(),
            };
        }
        if self.completions.is_empty() {
            let want = if barrier { u32::MAX } else { self.job.batch_complete_min.max(1) };
            match later {
                None => self.wait(want.min(self.in_flight), self.wait_limit()),
                Some(due_ns) => {
                    let left_ns = due_ns.saturating_sub(self.common.now_ns());
                    if left_ns > SLEEP_SLACK_NS {
                        let timeout = Duration::from_nanos(left_ns - SLEEP_SLACK_NS);
                        self.wait(1, Some(timeout.min(LOOK)));
                    } else {
                        self.look();
                    }
                }
            }
            self.settle_pending_without_stamps();
        }
        now = self.common.now_ns();
        self.take(now);
        now
    }

    /// Settles completions, at most as many as the job takes at once. The others are left for the
    /// next turn.
    #[inline]
    fn take(&mut self, now: u64) {
        let max = match self.job.batch_complete_max {
            0 => usize::MAX,
            max => max as usize,
        };
        let count = self.completions.len();
        if count == 0 {
            return;
        }
        self.record.completed(count.min(max) as u32);
        let mut completions = std::mem::take(&mut self.completions);
        if count <= max {
            completions.drain(..).for_each(|completion| self.settle(completion, now));
        } else {
            // The first completions are at the end of the list, so that they can be removed without
            // moving the others.
            if !std::mem::replace(&mut self.reversed, true) {
                completions.reverse();
            }
            completions
                .drain(count - max..)
                .rev()
                .for_each(|completion| self.settle(completion, now));
        }
        self.reversed &= !completions.is_empty();
        self.completions = completions;
    }

    #[inline]
    fn settle(&mut self, completion: Completion, now: u64) {
        let tag = completion.tag as u32;
        let slot = &mut self.slots[tag as usize];
        if completion.buffer.is_some() {
            slot.buffer = completion.buffer;
        }
        self.in_flight -= 1;
        self.free.push(tag);
        let direction = match slot.kind {
            Kind::Read => Direction::Read,
            Kind::Write => Direction::Write,
            Kind::Trim => Direction::Trim,
            Kind::Flush => {
                let stamps = slot.stamps;
                match completion.result {
                    Ok(()) => self.record.flushed(stamps, now),
                    Err(error) => self.io_failed(tag, error),
                }
                return;
            }
        };
        match completion.result {
            Ok(()) => {
                self.record.done(direction, slot.len_bytes, slot.stamps, now);
                let lat_ns = now.saturating_sub(slot.stamps.intended_ns);
                if let Some(target) = &mut self.target
                    && !target.done(lat_ns, now)
                {
                    self.latency_missed();
                }
                let slot = &self.slots[tag as usize];
                if slot.kind == Kind::Trim && self.job.verbs == Verbs::TrimWrite {
                    self.trimmed.push_back((slot.target, slot.offset_bytes, slot.len_bytes));
                }
                if slot.kind == Kind::Write && !self.chunks.is_empty() {
                    let write = (slot.target, slot.offset_bytes, slot.len_bytes);
                    self.add_to_backlog(write);
                }
            }
            Err(error) => self.io_failed(tag, error),
        }
        if !self.chunks.is_empty() {
            self.check(tag, completion.result.is_ok());
        }
    }

    fn io_failed(&mut self, tag: u32, error: qpair_block::IoError) {
        let slot = &self.slots[tag as usize];
        let device = &self.targets[slot.target as usize].name;
        let what = match slot.kind {
            Kind::Flush => format!("flushing {device}: {error}"),
            Kind::Read => format!(
                "reading {} bytes at {} of {device}: {error}",
                slot.len_bytes, slot.offset_bytes
            ),
            Kind::Write => format!(
                "writing {} bytes at {} of {device}: {error}",
                slot.len_bytes, slot.offset_bytes
            ),
            Kind::Trim => format!(
                "trimming {} bytes at {} of {device}: {error}",
                slot.len_bytes, slot.offset_bytes
            ),
        };
        let tolerance = &self.job.tolerance;
        let (reads, is_full) = (slot.kind == Kind::Read, matches!(error.errno, ENOSPC | EDQUOT));
        if is_full && slot.kind == Kind::Write && self.job.until_full {
            // This is the end, not an error.
            (self.bytes_left, self.held) = (0, None);
            return;
        }
        if (if reads { &tolerance.read } else { &tolerance.write }).contains(&error.errno) {
            self.pass(error.errno, what);
        } else {
            self.fail(error.errno, what);
        }
    }

    /// Counts an error that does not end the job.
    fn pass(&mut self, errno: i32, what: String) {
        self.passed.count += 1;
        self.passed.first.get_or_insert(JobError { errno, what });
    }

    fn latency_missed(&mut self) {
        let what = "requests one at a time are slower than latency_target already";
        self.fail(ETIMEDOUT, what.to_owned());
    }

    /// Ends the job with an error. Only the first error is kept.
    fn fail(&mut self, errno: i32, what: String) {
        self.error.get_or_insert(JobError { errno, what });
    }

    fn flush_all(&mut self) {
        for target in 0..self.targets.len() as u32 {
            let now = self.common.now_ns();
            self.submit_flush(target, now);
            while self.in_flight > 0 && self.error.is_none() {
                self.wait(1, None);
                self.pending.clear();
                let now = self.common.now_ns();
                self.take(now);
            }
        }
    }
}

/// A duration that means "forever".
const LONG: Duration = Duration::from_secs(3600);

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
}

/// Returns the total bytes that a job moves.
fn budget(job: &Job, targets: &[Opened]) -> u64 {
    if job.time_based || job.replay.is_some() {
        return u64::MAX;
    }
    let all: u64 = targets.iter().map(|target| target.region.len_bytes).sum();
    job.io_size.unwrap_or(all).saturating_mul(u64::from(job.loops.max(1)))
}

fn writer(job: &Job, targets: &[Opened], common: &Common<'_>) -> Result<Option<Writer>> {
    let Some(path) = &job.write_iolog else { return Ok(None) };
    let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
    Writer::create(path, &names, common.now_ns()).map(Some)
}

/// Returns options for the memory of request buffers. Reserved huge pages are used only if the job
/// requests them, because they were reserved for others.
fn memory(job: &Job, targets: &[Opened]) -> ArenaOptions {
    let shared = targets.iter().any(|target| target.device.info().shared_memory);
    ArenaOptions { shared, huge_pages_only: job.huge_pages }
}
