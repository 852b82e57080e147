//! One job's thread: requests down, completions up, figures kept.
//!
//! Invariants:
//! - a tag is either free or names one request in flight (or held back), whose stamps and buffer are in its slot;
//! - `in_flight` counts the requests that channels have taken and not given back;
//! - nothing is measured before the ramp is over; from then on every request that completes is.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use qpair_block::{
    Arena, ArenaOptions, Buffer, ChannelOptions, Completion, Error, ErrorKind, IoChannel, Request,
    Result, WaitOptions, WakeEvent,
};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore};

use crate::job::{Content, Direction, Form, Job, TargetOrder};
use crate::report::{JobError, VerifyError, VerifyReport};

use super::arrivals::Arrivals;
use super::cpu::Counters;
use super::offsets::{Offsets, generator, used_sizes};
use super::open::Opened;
use super::record::{Record, Shown, Stamps};
use super::sizes::Draw;
use super::verify::Chunks;

/// A sleep may end so much late: what is left is spent looking at the clock.
const SLEEP_SLACK_NS: u64 = 80_000;
/// How often a thread that waits for its time looks whether it should stop.
const LOOK: Duration = Duration::from_millis(100);
/// Wrong blocks that are told one by one.
const ERRORS_TOLD: usize = 20;

/// A request on its way.
#[derive(Default)]
struct Slot {
    stamps: Stamps,
    offset_bytes: u64,
    len_bytes: u32,
    target: u32,
    kind: Kind,
    buffer: Option<Buffer>,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Kind {
    #[default]
    Read,
    Write,
    Trim,
    Flush,
}

/// A request that has been decided on.
#[derive(Clone, Copy)]
struct Candidate {
    direction: Direction,
    target: u32,
    offset_bytes: u64,
    len_bytes: u32,
    /// When it is meant to start; 0: now.
    due_ns: u64,
}

/// What to do next.
enum Next {
    Go(Candidate),
    /// Not before then.
    Later(u64),
    /// Not before something completes.
    Blocked,
    End,
}

/// What a thread gives back.
pub(super) struct Outcome {
    pub(super) record: Record,
    pub(super) cpu: crate::report::CpuReport,
    pub(super) error: Option<JobError>,
    pub(super) verify: VerifyReport,
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
}

/// What the threads of a run share.
pub(super) struct Common<'a> {
    pub(super) stop: &'a AtomicBool,
    pub(super) clock: Instant,
}

impl Common<'_> {
    #[inline]
    fn now_ns(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }
}

pub(super) struct Thread<'a> {
    job: &'a Job,
    targets: &'a [Opened],
    common: &'a Common<'a>,
    shown: &'a Shown,
    // Before the buffers, which they may hold.
    channels: Vec<Box<dyn IoChannel>>,
    /// For sleeping on several channels; empty where there is one, or where one must be polled.
    sleepers: Vec<OwnedFd>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Taken by channels, not yet handed over.
    pending: Vec<u32>,
    completions: Vec<Completion>,
    in_flight: u32,
    offsets: Vec<Offsets>,
    chunks: Vec<Chunks>,
    draw: Draw,
    random: SmallRng,
    arrivals: Arrivals,
    held: Option<Candidate>,
    target_next: u32,
    bytes_left: u64,
    writes_since_flush: u32,
    /// A target whose turn to be flushed it is.
    flush_due: Option<u32>,
    since_pause: u32,
    pause_until_ns: u64,
    record: Record,
    verify: VerifyReport,
    error: Option<JobError>,
    system_calls_before: u64,
}

impl<'a> Thread<'a> {
    /// Opens the channels and maps the memory. On the thread that will use them.
    pub(super) fn new(
        job: &'a Job,
        targets: &'a [Opened],
        common: &'a Common<'a>,
        shown: &'a Shown,
        wake: Option<Arc<WakeEvent>>,
    ) -> Result<Self> {
        let (unit, max) = used_sizes(job);
        let block = (max as usize).next_power_of_two().max(4096);
        let no_memory = |cause| {
            Error::os(cause, format!("mapping {} buffers of {block} bytes", job.depth))
                .hint("choose a smaller bs or iodepth")
        };
        let arena = Arena::new(block, job.depth, ArenaOptions::default()).map_err(no_memory)?;
        let options = ChannelOptions { depth: job.depth, arenas: vec![arena.clone()], wake };
        let mut channels = targets
            .iter()
            .map(|target| target.device.open_channel(&options))
            .collect::<Result<Vec<_>>>()?;
        let sleepers = sleepers(&mut channels)?;
        let mut random = generator(job.seed, job.clone);
        let mut slots: Vec<Slot> = (0..job.depth).map(|_| Slot::default()).collect();
        let mut content = vec![0; block];
        for slot in &mut slots {
            let mut buffer = arena.lease().ok_or_else(|| {
                Error::new(ErrorKind::Limit, "fewer buffers than requests in flight")
            })?;
            fill_content(&job.content, &mut content, &mut random);
            buffer.copy_from(0, &content);
            slot.buffer = Some(buffer);
        }
        let offsets =
            targets.iter().map(|target| Offsets::new(job, target.region, random.random()));
        let offsets = offsets.collect();
        let chunks = match &job.verify {
            None => Vec::new(),
            // Not the clone's seed: another run of the same job must find what this one wrote.
            Some(verify) => targets
                .iter()
                .map(|target| Chunks::new(verify, target.region, unit, job.seed))
                .collect(),
        };
        Ok(Self {
            job,
            targets,
            common,
            shown,
            channels,
            sleepers,
            slots,
            free: (0..job.depth).rev().collect(),
            pending: Vec::with_capacity(job.depth as usize),
            completions: Vec::with_capacity(job.depth as usize),
            in_flight: 0,
            offsets,
            chunks,
            draw: Draw::new(job),
            random,
            arrivals: Arrivals::new(job, 0),
            held: None,
            target_next: 0,
            bytes_left: budget(job, targets),
            writes_since_flush: 0,
            flush_due: None,
            since_pause: 0,
            pause_until_ns: 0,
            record: Record::new(job.measured, job.sample.unwrap_or(Duration::from_secs(1))),
            verify: VerifyReport::default(),
            error: None,
            system_calls_before: 0,
        })
    }

    /// Runs the job to its end. `messages` are the moments at which [`Form::Messages`] hands requests over.
    pub(super) fn run(mut self, messages: Option<&Messages<'_>>) -> Outcome {
        let start_ns = self.common.now_ns();
        let ramp_end_ns = start_ns + nanos(self.job.ramp);
        let end_ns = self.job.runtime.map_or(u64::MAX, |runtime| ramp_end_ns + nanos(runtime));
        self.arrivals = Arrivals::new(self.job, start_ns);
        let mut counters = Counters::begin();
        self.record.begin(start_ns);
        let mut begin_ns = start_ns;
        let mut ramping = !self.job.ramp.is_zero();
        self.shown.phase.store(if ramping { 1 } else { 2 }, Ordering::Relaxed);
        let mut now = start_ns;
        loop {
            if ramping && now >= ramp_end_ns {
                ramping = false;
                self.record.begin(now);
                counters = Counters::begin();
                self.system_calls_before = self.system_calls();
                begin_ns = now;
                self.shown.phase.store(2, Ordering::Relaxed);
            }
            let stop = self.common.stop.load(Ordering::Relaxed) || self.error.is_some();
            let over = stop || now >= end_ns;
            now = match messages {
                None => self.turn(now, over, end_ns),
                Some(messages) => self.turn_of_messages(now, over, messages),
            };
            self.record.turn(now, self.shown);
            if self.in_flight == 0 && self.completions.is_empty() && self.is_over(over) {
                break;
            }
        }
        if self.job.flush_at_end && self.error.is_none() {
            self.flush_all();
        }
        let end_ns = self.common.now_ns();
        self.record.end(end_ns);
        let cpu = counters.end(self.system_calls() - self.system_calls_before);
        if self.error.is_none() && !self.common.stop.load(Ordering::Relaxed) {
            self.verify_written();
        }
        self.shown.phase.store(4, Ordering::Relaxed);
        Outcome {
            record: self.record,
            cpu,
            error: self.error,
            verify: self.verify,
            begin_ns,
            end_ns,
        }
    }

    fn is_over(&self, over: bool) -> bool {
        over || (self.bytes_left == 0 && self.held.is_none() && self.flush_due.is_none())
    }

    fn system_calls(&self) -> u64 {
        self.channels.iter().map(|channel| channel.statistics().system_calls).sum()
    }

    /// Fills the queue, waits for what completes, takes it; the time then.
    #[inline]
    fn turn(&mut self, mut now: u64, over: bool, end_ns: u64) -> u64 {
        let barrier = matches!(self.job.form, Form::Barrier | Form::Stress);
        let mut later = None;
        let may_add = !barrier || self.in_flight == 0;
        if !over && may_add && self.completions.is_empty() {
            while !self.free.is_empty() {
                if let Some(target) = self.flush_due.take() {
                    self.submit_flush(target, now);
                    continue;
                }
                match self.next(now) {
                    Next::Go(candidate) => {
                        self.submit(candidate, now);
                        if !barrier && self.pending.len() as u32 >= self.job.batch_submit {
                            // Alone at the end of a queue that is full, it goes with the wait if nobody wants to know
                            // how long submitting takes.
                            if self.job.measured.slat || !self.free.is_empty() {
                                now = self.kick();
                            }
                        }
                    }
                    Next::Later(due_ns) => {
                        later = Some(due_ns);
                        break;
                    }
                    Next::Blocked | Next::End => break,
                }
            }
            if !self.pending.is_empty() && self.job.measured.slat {
                self.kick();
            }
        }
        if self.in_flight == 0 {
            return match later {
                Some(due_ns) => self.sleep_until(due_ns.min(end_ns)),
                None => self.common.now_ns(),
            };
        }
        if self.completions.is_empty() {
            let want = if barrier { u32::MAX } else { self.job.batch_complete_min.max(1) };
            match later {
                None => self.wait(want.min(self.in_flight), None),
                Some(due_ns) => {
                    let left_ns = due_ns.saturating_sub(self.common.now_ns());
                    if left_ns > SLEEP_SLACK_NS {
                        let timeout = Duration::from_nanos(left_ns - SLEEP_SLACK_NS);
                        self.wait(1, Some(timeout.min(LOOK)));
                    } else {
                        self.poll();
                    }
                }
            }
            self.settle_pending_without_stamps();
        }
        now = self.common.now_ns();
        self.take(now);
        now
    }

    /// As [`Self::turn`], with requests that come when another thread says so.
    fn turn_of_messages(&mut self, now: u64, over: bool, messages: &Messages<'_>) -> u64 {
        if !over {
            while !self.free.is_empty()
                && let Ok(due_ns) = messages.queue.try_recv()
            {
                let Some(mut candidate) = self.candidate() else { break };
                candidate.due_ns = due_ns;
                self.submit(candidate, now);
            }
        }
        self.kick();
        messages.wake.prepare();
        let timeout = if over && self.in_flight == 0 { Duration::ZERO } else { LOOK };
        self.wait(1, Some(timeout));
        messages.wake.awake();
        let now = self.common.now_ns();
        self.take(now);
        now
    }

    /// The next request, if it may go now.
    #[inline]
    fn next(&mut self, now: u64) -> Next {
        if self.pause_until_ns > now {
            return Next::Later(self.pause_until_ns);
        }
        let candidate = match self.held.take() {
            Some(candidate) => candidate,
            None => match self.candidate() {
                Some(candidate) => candidate,
                None => return Next::End,
            },
        };
        // An earlier look at the clock may say too early what by now is due.
        if candidate.due_ns > now && candidate.due_ns > self.common.now_ns() {
            self.held = Some(candidate);
            return Next::Later(candidate.due_ns);
        }
        if let Some(chunks) = self.chunks.get_mut(candidate.target as usize) {
            if chunks.is_busy(candidate.offset_bytes, candidate.len_bytes) {
                self.held = Some(candidate);
                return Next::Blocked;
            }
            chunks.set_busy(candidate.offset_bytes, candidate.len_bytes, true);
        }
        Next::Go(candidate)
    }

    /// Decides on a request; `None` when all bytes have been moved.
    #[inline]
    fn candidate(&mut self) -> Option<Candidate> {
        if self.bytes_left == 0 {
            return None;
        }
        let direction = match self.arrivals.earlier() {
            Some(direction) => direction,
            None => self.draw.direction(&mut self.random),
        };
        let len_bytes = self.draw.len_bytes(direction, &mut self.random);
        let target = self.target();
        let offsets = &mut self.offsets[target as usize];
        let (offset_bytes, len_bytes) = offsets.next(direction, len_bytes, &mut self.random);
        self.bytes_left = self.bytes_left.saturating_sub(u64::from(len_bytes));
        let due_ns = if self.arrivals.are_limited() {
            let due_ns = self.arrivals.due_ns(direction);
            self.arrivals.advance(direction, len_bytes, &mut self.random);
            due_ns
        } else {
            0
        };
        Some(Candidate { direction, target, offset_bytes, len_bytes, due_ns })
    }

    #[inline]
    fn target(&mut self) -> u32 {
        let count = self.targets.len() as u32;
        if count == 1 {
            return 0;
        }
        match self.job.target_order {
            TargetOrder::RoundRobin => {
                self.target_next = (self.target_next + 1) % count;
                self.target_next
            }
            TargetOrder::Random => self.random.random_range(0..count),
            TargetOrder::Sequential => {
                let each = (budget(self.job, self.targets) / u64::from(count)).max(1);
                let done = budget(self.job, self.targets) - self.bytes_left;
                ((done / each) as u32).min(count - 1)
            }
        }
    }

    #[inline]
    fn submit(&mut self, candidate: Candidate, now: u64) {
        let Candidate { direction, target, offset_bytes, len_bytes, due_ns } = candidate;
        let Some(tag) = self.free.pop() else { return };
        let slot = &mut self.slots[tag as usize];
        let start_ns = now.max(due_ns);
        let intended_ns = if due_ns == 0 { start_ns } else { due_ns };
        if due_ns > 0 {
            self.record.late(start_ns - due_ns);
        }
        let only_reads = !self.job.writes();
        slot.kind = match direction {
            Direction::Read => Kind::Read,
            Direction::Write if only_reads => Kind::Read,
            Direction::Write => Kind::Write,
            Direction::Trim => Kind::Trim,
        };
        slot.stamps = Stamps { intended_ns, start_ns, issued_ns: start_ns };
        (slot.offset_bytes, slot.len_bytes, slot.target) = (offset_bytes, len_bytes, target);
        let request = match slot.kind {
            Kind::Trim => Request::discard(offset_bytes, len_bytes, tag.into()),
            Kind::Flush => Request::flush(tag.into()),
            Kind::Read | Kind::Write => {
                let Some(mut buffer) = slot.buffer.take() else { return };
                if slot.kind == Kind::Read {
                    Request::read(offset_bytes, len_bytes, buffer, tag.into())
                } else {
                    if let Some(chunks) = self.chunks.get_mut(target as usize) {
                        chunks
                            .fill(offset_bytes, len_bytes, |at, bytes| buffer.copy_from(at, bytes));
                    } else if self.job.content == Content::Refill {
                        let mut bytes = vec![0; len_bytes as usize];
                        self.random.fill_bytes(&mut bytes);
                        buffer.copy_from(0, &bytes);
                    }
                    Request {
                        force_unit_access: self.job.force_unit_access,
                        ..Request::write(offset_bytes, len_bytes, buffer, tag.into())
                    }
                }
            }
        };
        self.hand_over(tag, request);
        if self.job.flush_blocks > 0 && self.slots[tag as usize].kind == Kind::Write {
            self.writes_since_flush += 1;
            if self.writes_since_flush >= self.job.flush_blocks {
                self.writes_since_flush = 0;
                self.flush_due = Some(target);
            }
        }
        if !self.job.think_time.is_zero() {
            self.since_pause += 1;
            if self.since_pause >= self.job.think_time_blocks.max(1) {
                self.since_pause = 0;
                self.pause();
            }
        }
    }

    /// Gives a request to its channel, which has room: it holds no more requests than there are tags.
    #[inline]
    fn hand_over(&mut self, tag: u32, request: Request) {
        let target = self.slots[tag as usize].target as usize;
        match self.channels[target].submit(request) {
            Ok(()) => {
                self.in_flight += 1;
                self.pending.push(tag);
            }
            Err(request) => {
                self.slots[tag as usize].buffer = request.buffer;
                self.free.push(tag);
                self.fail(libc_ebusy(), format!("{} took no request", self.targets[target].name));
            }
        }
    }

    /// Needs a free tag. The flush is for writes that have completed; those in flight are for the next one.
    fn submit_flush(&mut self, target: u32, now: u64) {
        if let Some(tag) = self.free.pop() {
            let slot = &mut self.slots[tag as usize];
            slot.kind = Kind::Flush;
            slot.target = target;
            slot.stamps = Stamps { intended_ns: now, start_ns: now, issued_ns: now };
            self.hand_over(tag, Request::flush(tag.into()));
        }
    }

    fn pause(&mut self) {
        let now = self.kick();
        let spin_end = now + nanos(self.job.think_time_spin);
        while self.common.now_ns() < spin_end {
            std::hint::spin_loop();
        }
        self.pause_until_ns = now + nanos(self.job.think_time);
    }

    /// Hands over what is pending; the time then.
    #[inline]
    fn kick(&mut self) -> u64 {
        if self.channels.len() == 1 {
            self.channels[0].kick();
        } else {
            self.channels.iter_mut().for_each(|channel| channel.kick());
        }
        let now = self.common.now_ns();
        if !self.pending.is_empty() {
            self.record.submitted(self.pending.len() as u32, self.in_flight);
            for tag in self.pending.drain(..) {
                self.slots[tag as usize].stamps.issued_ns = now;
            }
        }
        now
    }

    /// Counts a batch that went with the wait.
    #[inline]
    fn settle_pending_without_stamps(&mut self) {
        if !self.pending.is_empty() {
            self.record.submitted(self.pending.len() as u32, self.in_flight);
            self.pending.clear();
        }
    }

    #[inline]
    fn wait(&mut self, want: u32, timeout: Option<Duration>) {
        if let [channel] = &mut self.channels[..] {
            channel.wait(
                &mut self.completions,
                WaitOptions {
                    want: want.max(1),
                    linger: if want > 1 { Duration::MAX } else { Duration::ZERO },
                    timeout,
                },
            );
        } else {
            self.wait_for_several(want, timeout);
        }
    }

    fn wait_for_several(&mut self, want: u32, timeout: Option<Duration>) {
        self.channels.iter_mut().for_each(|channel| channel.kick());
        let begin = Instant::now();
        loop {
            self.poll();
            let left = timeout.map(|timeout| timeout.saturating_sub(begin.elapsed()));
            if self.completions.len() >= want as usize || left == Some(Duration::ZERO) {
                return;
            }
            if !self.sleepers.is_empty() {
                let mut fds: Vec<_> = self
                    .sleepers
                    .iter()
                    .map(|fd| rustix::event::PollFd::new(fd, rustix::event::PollFlags::IN))
                    .collect();
                let left = left.unwrap_or(LOOK).min(LOOK);
                let timeout = rustix::event::Timespec::try_from(left).ok();
                let _ = rustix::event::poll(&mut fds, timeout.as_ref());
            }
        }
    }

    fn poll(&mut self) {
        for channel in &mut self.channels {
            if channel.in_flight() > 0 {
                channel.poll(&mut self.completions);
            }
        }
    }

    /// Settles completions, at most as many as the job takes at once.
    #[inline]
    fn take(&mut self, now: u64) {
        let max = match self.job.batch_complete_max {
            0 => usize::MAX,
            max => max as usize,
        };
        if self.completions.is_empty() {
            return;
        }
        self.record.completed(self.completions.len().min(max) as u32);
        if self.completions.len() <= max {
            let mut completions = std::mem::take(&mut self.completions);
            completions.drain(..).for_each(|completion| self.settle(completion, now));
            self.completions = completions;
        } else {
            let rest = self.completions.split_off(max);
            let completions = std::mem::replace(&mut self.completions, rest);
            completions.into_iter().for_each(|completion| self.settle(completion, now));
        }
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
            Ok(()) => self.record.done(direction, slot.len_bytes, slot.stamps, now),
            Err(error) => self.io_failed(tag, error),
        }
        if !self.chunks.is_empty() {
            self.check(tag, completion.result.is_ok());
        }
    }

    /// Lets go of a request's chunks, and looks at what was read.
    fn check(&mut self, tag: u32, arrived: bool) {
        let slot = &self.slots[tag as usize];
        let target = slot.target as usize;
        let chunks = &mut self.chunks[target];
        chunks.set_busy(slot.offset_bytes, slot.len_bytes, false);
        if slot.kind != Kind::Read || !arrived {
            return;
        }
        let Some(buffer) = &slot.buffer else { return };
        let bytes = &buffer.as_slice()[..slot.len_bytes as usize];
        // A job that writes knows what it wrote; one that only reads takes any write of the same seed or another.
        let (looked_at, wrong) = chunks.check(slot.offset_bytes, bytes, self.job.writes());
        self.verify.blocks += looked_at;
        let len_bytes = slot.len_bytes;
        for (offset_bytes, what) in wrong {
            self.wrong(target, offset_bytes, len_bytes, what);
        }
    }

    fn wrong(&mut self, target: usize, offset_bytes: u64, len_bytes: u32, what: String) {
        let device = self.targets[target].name.clone();
        self.verify.wrong += 1;
        if self.job.verify.as_ref().is_some_and(|verify| verify.fatal) {
            self.fail(libc_eilseq(), format!("verify: {device} at offset {offset_bytes}: {what}"));
        }
        if self.verify.errors.len() < ERRORS_TOLD {
            self.verify.errors.push(VerifyError { device, offset_bytes, len_bytes, what });
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
        self.fail(error.errno, what);
    }

    /// Ends the job; the first error is the one that counts.
    fn fail(&mut self, errno: i32, what: String) {
        self.error.get_or_insert(JobError { errno, what });
    }

    /// Sleeps with nothing in flight.
    fn sleep_until(&self, due_ns: u64) -> u64 {
        let now = self.common.now_ns();
        let left = due_ns.saturating_sub(now);
        if left > SLEEP_SLACK_NS {
            std::thread::sleep(Duration::from_nanos(left - SLEEP_SLACK_NS).min(LOOK));
        } else {
            std::hint::spin_loop();
        }
        self.common.now_ns()
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

    /// Reads all that was written, and checks it. Not part of what is measured.
    fn verify_written(&mut self) {
        let after = self.job.verify.as_ref().is_some_and(|verify| verify.after);
        if !after || !self.job.writes() {
            return;
        }
        self.shown.phase.store(3, Ordering::Relaxed);
        let mut record = Record::new(self.job.measured, LONG);
        std::mem::swap(&mut self.record, &mut record);
        let max = self.slots.first().and_then(|slot| slot.buffer.as_ref().map(Buffer::len));
        for target in 0..self.targets.len() {
            let mut ranges =
                self.chunks[target].written(max.unwrap_or(0) as u32).into_iter().peekable();
            while (ranges.peek().is_some() || self.in_flight > 0)
                && self.error.is_none()
                && !self.common.stop.load(Ordering::Relaxed)
            {
                while !self.free.is_empty()
                    && let Some((offset_bytes, len_bytes)) = ranges.next()
                {
                    self.read_back(target, offset_bytes, len_bytes);
                }
                self.wait(1, None);
                self.pending.clear();
                let now = self.common.now_ns();
                self.take(now);
            }
        }
        while self.in_flight > 0 {
            self.wait(1, None);
            let now = self.common.now_ns();
            self.take(now);
        }
        self.record = record;
    }

    fn read_back(&mut self, target: usize, offset_bytes: u64, len_bytes: u32) {
        let Some(tag) = self.free.pop() else { return };
        let slot = &mut self.slots[tag as usize];
        let Some(buffer) = slot.buffer.take() else { return };
        slot.kind = Kind::Read;
        (slot.offset_bytes, slot.len_bytes, slot.target) = (offset_bytes, len_bytes, target as u32);
        self.hand_over(tag, Request::read(offset_bytes, len_bytes, buffer, tag.into()));
    }
}

/// The moments at which requests are handed over, and the event that tells of them.
pub(super) struct Messages<'a> {
    pub(super) queue: &'a std::sync::mpsc::Receiver<u64>,
    pub(super) wake: &'a WakeEvent,
}

/// Hands a moment over at least every `interval` until told to stop.
pub(super) fn produce(
    queue: &std::sync::mpsc::SyncSender<u64>,
    wake: &WakeEvent,
    interval: Duration,
    common: &Common<'_>,
    over: &AtomicBool,
) {
    let mut due = common.now_ns();
    while !over.load(Ordering::Relaxed) {
        let now = common.now_ns();
        if now < due {
            let left = due - now;
            if left > SLEEP_SLACK_NS {
                std::thread::sleep(Duration::from_nanos(left - SLEEP_SLACK_NS).min(LOOK));
            } else {
                std::hint::spin_loop();
            }
            continue;
        }
        match queue.try_send(now) {
            Ok(()) => {
                wake.wake();
                // The shortest distance, from when it really went: a late one does not make the next come sooner.
                due = now + nanos(interval).max(1);
            }
            Err(std::sync::mpsc::TrySendError::Full(_)) => std::thread::yield_now(),
            Err(std::sync::mpsc::TrySendError::Disconnected(_)) => return,
        }
    }
}

/// As good as for ever.
const LONG: Duration = Duration::from_secs(3600);

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
}

const fn libc_ebusy() -> i32 {
    16
}

const fn libc_eilseq() -> i32 {
    84
}

fn sleepers(channels: &mut [Box<dyn IoChannel>]) -> Result<Vec<OwnedFd>> {
    if channels.len() < 2 {
        return Ok(Vec::new());
    }
    let mut fds = Vec::new();
    for channel in channels {
        match channel.completion_fd()? {
            None => return Ok(Vec::new()),
            Some(fd) => fds.push(own(fd)?),
        }
    }
    Ok(fds)
}

fn own(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    fd.try_clone_to_owned().map_err(|cause| Error::os(cause, "a descriptor to sleep on"))
}

/// Bytes that a job moves in all.
fn budget(job: &Job, targets: &[Opened]) -> u64 {
    if job.time_based {
        return u64::MAX;
    }
    let all: u64 = targets.iter().map(|target| target.region.len_bytes).sum();
    job.io_size.unwrap_or(all).saturating_mul(u64::from(job.loops.max(1)))
}

fn fill_content(content: &Content, bytes: &mut [u8], random: &mut SmallRng) {
    match content {
        Content::Random | Content::Refill => random.fill_bytes(bytes),
        Content::Zeroes => bytes.fill(0),
        Content::Pattern(pattern) => {
            for (byte, wanted) in bytes.iter_mut().zip(pattern.iter().cycle()) {
                *byte = *wanted;
            }
        }
    }
}
