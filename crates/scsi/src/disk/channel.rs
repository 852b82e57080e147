//! A channel: one thread's requests to one disk. A request is one command at a time; a large one
//! goes piece by piece.
//!
//! Invariants:
//! - `taken` requests were submitted and not returned: each is in a job, or its completion is in
//!   `ended`.
//! - A job's number is the tag of its command and of its slot in the queue, which has the request's
//!   buffer.
//! - A job waits for a bounce buffer if and only if it is in `waiting`.
//!
//! Long, because each step of a request relies on the invariants, and so on the private fields.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use qpair_block::{
    Arrival, ChannelOptions, ChannelStatistics, Completion, CompletionEvent, DeviceInfo, IoChannel,
    IoError, Op, Request, Result, WaitOptions, WakeEvent, time,
};
use qpair_scsi_wire::unmap;

use super::device::MEMORY_ALIGNMENT_BYTES;
use super::flushed::Flushed;
use super::plan::{BOUNCE_BYTES, BOUNCES, Layout, Plan};
use super::recall::Answers;
use crate::host::{Host, QueueOptions, Unit};
use crate::middle::{Command, Done, Place, Queue, UnitState, scratch};
use crate::options::ScsiOptions;

const NO_BOUNCE: u16 = u16::MAX;

#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    op: Op,
    force_unit_access: bool,
    /// Whether the writes are done, and a flush of them is in flight.
    is_flushing: bool,
    /// Whether data of the request was copied through a bounce buffer.
    is_copied: bool,
    has_buffer: bool,
    offset_bytes: u64,
    len_bytes: u32,
    buffer_offset_bytes: u32,
    caller_tag: u64,
    /// The number of bytes that are done; the next field has those of the command in flight.
    done_bytes: u32,
    piece_bytes: u32,
    bounce: u16,
    /// The number of power losses counted when the flush was sent.
    pub(super) power_losses: u64,
    /// Whether a reset waits for this job.
    is_recalled: bool,
}

pub(crate) struct ScsiChannel {
    pub(super) queue: Queue,
    pub(super) jobs: Box<[Option<Job>]>,
    pub(crate) taken: u32,
    depth: u32,
    pub(super) timeout: Duration,
    plan: Plan,
    pub(super) layout: Layout,
    done: Vec<Done>,
    /// The completions of requests that the disk did not see.
    ended: Vec<Completion>,
    waiting: VecDeque<u16>,
    free_bounces: Vec<u16>,
    /// The number of power losses counted up to the last successful flush.
    pub(super) power_losses: u64,
    pub(super) state: Arc<UnitState>,
    pub(super) answers: Arc<Answers>,
    /// The last recall that was seen; the next field counts the jobs that a reset waits for.
    recall: u64,
    recalled: u32,
    /// The last look that was seen; the next field says whether it has yet to be answered.
    pub(super) look: u64,
    pub(super) is_looking: bool,
    /// Flushes that the disk has done, with the step that each waits for.
    pub(super) flushed: Vec<Flushed>,
    info: DeviceInfo,
    pub(crate) statistics: ChannelStatistics,
    pub(crate) wake: Option<Arc<WakeEvent>>,
    pub(crate) event: CompletionEvent,
    /// Keeps the host, and so the controller, as long as the queue.
    host: Arc<dyn Host>,
    /// The resets of the controller before the channel was opened.
    resets_before: u64,
}

impl ScsiChannel {
    pub(crate) fn open(
        host: &Arc<dyn Host>,
        unit: Unit,
        (state, options): (Arc<UnitState>, ScsiOptions),
        plan: Plan,
        info: &DeviceInfo,
        channel: &ChannelOptions,
    ) -> Result<Self> {
        let depth = channel.depth as u16;
        let layout = Layout::new(depth);
        let (arena, scratch) = scratch(info.shared_memory, layout.len)?;
        let mut arenas = channel.arenas.clone();
        arenas.push(arena);
        let sleeps = options.sleeps;
        let queue =
            host.open_queue(unit, &QueueOptions { depth: channel.depth, arenas: &arenas, sleeps })?;
        let queue = Queue::new(queue, depth, scratch, state.clone(), options, false);
        let power_losses = state.power.losses();
        let wake = channel.wake.clone().filter(|_| queue.interrupt().is_some());
        let answers = state.recall.enlist(wake);
        Ok(Self {
            queue,
            jobs: (0..depth).map(|_| None).collect(),
            taken: 0,
            depth: channel.depth,
            timeout: options.timeout(),
            plan,
            layout,
            done: Vec::with_capacity(depth.into()),
            ended: Vec::with_capacity(depth.into()),
            waiting: VecDeque::with_capacity(depth.into()),
            free_bounces: (0..BOUNCES).rev().collect(),
            power_losses,
            recall: state.recall.number(),
            recalled: 0,
            look: 0,
            is_looking: false,
            flushed: Vec::new(),
            state,
            answers,
            info: info.clone(),
            statistics: ChannelStatistics::default(),
            wake: channel.wake.clone(),
            event: CompletionEvent::default(),
            host: host.clone(),
            resets_before: host.resets(),
        })
    }

    /// Returns the result of a request that can be answered without the disk.
    fn answer(&self, request: &Request) -> Option<std::result::Result<(), IoError>> {
        if let Err(error) = self.info.check(request, self.plan.size_bytes) {
            return Some(Err(error));
        }
        match request.op {
            // Without a volatile cache, completed writes are durable already.
            Op::Flush => (!self.plan.write_cache).then_some(Ok(())),
            op => (self.plan.piece_bytes_max(op) == 0).then_some(Err(IoError::UNSUPPORTED)),
        }
    }

    /// Whether a request is valid, fits one command, and has data that the device can access, as
    /// most do.
    #[inline(always)]
    fn is_direct(&mut self, request: &Request) -> bool {
        let Some(buffer) = &request.buffer else { return false };
        let (len, at) = (request.len_bytes, request.buffer_offset_bytes);
        let plan = &self.plan;
        let block_mask = (1 << plan.block_shift) - 1;
        matches!(request.op, Op::Read | Op::Write)
            && !self.info.read_only
            && !request.force_unit_access
            && !request.atomic
            // The length is not 0, and at most that of one command.
            && len.wrapping_sub(1) < plan.piece_bytes_max(request.op)
            && (request.offset_bytes | u64::from(len)) & block_mask == 0
            && u64::from(len) <= plan.size_bytes
            && request.offset_bytes <= plan.size_bytes - u64::from(len)
            && at & (MEMORY_ALIGNMENT_BYTES - 1) == 0
            && u64::from(at) + u64::from(len) <= buffer.len() as u64
            && self.queue.reaches(buffer)
    }

    #[inline]
    fn take(&mut self, request: Request) -> std::result::Result<u16, Request> {
        let Request {
            op,
            force_unit_access,
            atomic,
            offset_bytes,
            len_bytes,
            buffer_offset_bytes,
            buffer,
            tag: caller_tag,
        } = request;
        let has_buffer = buffer.is_some();
        let tag = self.queue.begin(buffer).map_err(|buffer| Request {
            op,
            force_unit_access,
            atomic,
            offset_bytes,
            len_bytes,
            buffer_offset_bytes,
            buffer,
            tag: caller_tag,
        })?;
        self.jobs[usize::from(tag)] = Some(Job {
            op,
            force_unit_access,
            is_flushing: false,
            is_copied: false,
            has_buffer,
            offset_bytes,
            len_bytes,
            buffer_offset_bytes,
            caller_tag,
            done_bytes: 0,
            piece_bytes: 0,
            bounce: NO_BOUNCE,
            power_losses: 0,
            is_recalled: false,
        });
        self.took();
        Ok(tag)
    }

    #[inline(always)]
    fn took(&mut self) {
        if self.taken == 0 {
            self.answers.set_busy(true);
        }
        self.taken += 1;
    }

    #[inline(always)]
    fn gave(&mut self, count: u32) {
        self.taken -= count;
        if self.taken == 0 {
            self.answers.set_busy(false);
        }
    }

    /// Recalls all jobs: a reset waits until the commands that are in flight now have come back.
    #[cold]
    fn recalled(&mut self, number: u64) {
        self.recall = number;
        self.recalled = 0;
        for job in self.jobs.iter_mut().flatten() {
            job.is_recalled = true;
            self.recalled += 1;
        }
        if self.recalled == 0 {
            self.answers.answer(number);
        }
    }

    #[inline(always)]
    fn submit_direct(&mut self, request: Request) -> std::result::Result<(), Request> {
        let is_write = request.op == Op::Write;
        let (at, len) = (request.offset_bytes, request.len_bytes);
        let offset = request.buffer_offset_bytes;
        let tag = self.take(request)?;
        if let Some(job) = &mut self.jobs[usize::from(tag)] {
            job.piece_bytes = len;
        }
        let cdb = self.plan.transfer(is_write, at, len, false);
        let place = Place::Buffer;
        self.queue.send(tag, Command { cdb, is_out: is_write, place, offset, len });
        Ok(())
    }

    #[cold]
    fn submit_other(&mut self, request: Request) -> std::result::Result<(), Request> {
        if let Some(result) = self.answer(&request) {
            self.took();
            self.statistics.count(request.op, request.len_bytes, result);
            self.ended.push(request.complete(result));
            return Ok(());
        }
        let tag = self.take(request)?;
        self.go_on(tag);
        Ok(())
    }

    #[cold]
    fn go_on(&mut self, tag: u16) {
        let Some(mut job) = self.jobs[usize::from(tag)] else { return };
        let at = job.offset_bytes + u64::from(job.done_bytes);
        let mut len = (job.len_bytes - job.done_bytes).min(self.plan.piece_bytes_max(job.op));
        let command = match job.op {
            _ if job.is_flushing => self.flush(&mut job),
            Op::Flush => self.flush(&mut job),
            Op::Discard => {
                let shift = self.plan.block_shift;
                let offset = self.layout.list(tag);
                let list = unmap::encode_one(at >> shift, len >> shift);
                self.queue.scratch().shared().copy_from(offset as usize, &list);
                let (place, len) = (Place::Scratch, list.len() as u32);
                Command { cdb: Plan::unmap(), is_out: true, place, offset, len }
            }
            Op::WriteZeroes => Command {
                cdb: self.plan.write_zeroes(at, len),
                is_out: true,
                place: Place::Scratch,
                offset: Layout::ZEROES_AT,
                len: 1 << self.plan.block_shift,
            },
            Op::Read | Op::Write => {
                let is_out = job.op == Op::Write;
                let mut place = Place::Buffer;
                let mut offset = job.buffer_offset_bytes + job.done_bytes;
                let reached = self.queue.reach(tag, offset, len);
                if reached > 0 {
                    len = reached;
                } else {
                    let Some(bounce) = self.free_bounces.pop() else {
                        self.waiting.push_back(tag);
                        return;
                    };
                    if !std::mem::replace(&mut job.is_copied, true) {
                        self.statistics.copied += 1;
                    }
                    len = len.min(BOUNCE_BYTES);
                    let bounce_at = self.layout.bounce(bounce);
                    if is_out {
                        self.copy(tag, offset, bounce_at, len, true);
                    }
                    job.bounce = bounce;
                    (place, offset) = (Place::Scratch, bounce_at);
                }
                let cdb = self.plan.transfer(is_out, at, len, job.force_unit_access);
                Command { cdb, is_out, place, offset, len }
            }
        };
        job.piece_bytes = len;
        self.jobs[usize::from(tag)] = Some(job);
        self.queue.send(tag, command);
    }

    fn flush(&self, job: &mut Job) -> Command {
        job.power_losses = self.state.power.losses();
        Command::plain(self.plan.flush())
    }

    fn copy(&mut self, tag: u16, in_buffer: u32, in_bounce: u32, len: u32, is_out: bool) {
        let (Some(buffer), scratch) = self.queue.both(tag) else { return };
        let (in_buffer, in_bounce, len) = (in_buffer as usize, in_bounce as usize, len as usize);
        if is_out {
            buffer.copy_out(in_buffer, scratch.shared(), in_bounce, len);
        } else {
            buffer.copy_in(in_buffer, scratch.shared(), in_bounce, len);
        }
    }

    /// Takes the available completions, without sleeping.
    #[inline]
    pub(crate) fn turn(&mut self, completions: &mut Vec<Completion>) {
        if !self.ended.is_empty() {
            self.gave(self.ended.len() as u32);
            completions.append(&mut self.ended);
        }
        let recall = self.state.recall.number();
        if recall != self.recall {
            self.recalled(recall);
        }
        let mut done = std::mem::take(&mut self.done);
        self.queue.turn(&mut done);
        if self.is_looking || self.state.recall.looks() != self.look {
            self.look_up();
        }
        self.settle(&mut done, completions);
        self.done = done;
        if !self.flushed.is_empty() {
            self.settle_flushes(completions);
        }
    }

    /// Does the work that no completion triggers.
    pub(crate) fn tend(&mut self, completions: &mut Vec<Completion>) {
        let mut done = std::mem::take(&mut self.done);
        self.queue.tend(&mut done);
        self.settle(&mut done, completions);
        self.done = done;
    }

    #[inline]
    fn settle(&mut self, done: &mut Vec<Done>, completions: &mut Vec<Completion>) {
        for Done { tag, result, .. } in done.drain(..) {
            let Some(job) = &self.jobs[usize::from(tag)] else { continue };
            let is_whole = job.piece_bytes == job.len_bytes && job.bounce == NO_BOUNCE;
            if is_whole && !job.force_unit_access && job.op != Op::Flush {
                self.finish(tag, result, completions);
            } else {
                self.part_ended(tag, result, completions);
            }
        }
    }

    #[cold]
    fn part_ended(
        &mut self,
        tag: u16,
        result: std::result::Result<(), IoError>,
        completions: &mut Vec<Completion>,
    ) {
        let Some(mut job) = self.jobs[usize::from(tag)] else { return };
        if job.bounce != NO_BOUNCE {
            if job.op == Op::Read && result.is_ok() {
                let in_buffer = job.buffer_offset_bytes + job.done_bytes;
                let bounce_at = self.layout.bounce(job.bounce);
                self.copy(tag, in_buffer, bounce_at, job.piece_bytes, false);
            }
            self.free_bounces.push(job.bounce);
            job.bounce = NO_BOUNCE;
            self.jobs[usize::from(tag)] = Some(job);
            if let Some(next) = self.waiting.pop_front() {
                self.go_on(next);
            }
        }
        if job.op == Op::Flush || job.is_flushing {
            return self.flush_ended(tag, result, completions);
        }
        if let Err(error) = result {
            return self.finish(tag, Err(error), completions);
        }
        job.done_bytes += job.piece_bytes;
        if job.done_bytes >= job.len_bytes {
            if !self.plan.needs_flush(job.op, job.force_unit_access) {
                return self.finish(tag, Ok(()), completions);
            }
            job.is_flushing = true;
        }
        self.jobs[usize::from(tag)] = Some(job);
        self.go_on(tag);
    }

    #[inline]
    pub(super) fn finish(
        &mut self,
        tag: u16,
        result: std::result::Result<(), IoError>,
        completions: &mut Vec<Completion>,
    ) {
        let Some(job) = self.jobs[usize::from(tag)].take() else { return };
        let buffer = self.queue.end(tag);
        debug_assert_eq!(buffer.is_some(), job.has_buffer);
        self.statistics.count(job.op, job.len_bytes, result);
        self.gave(1);
        if job.is_recalled {
            self.recalled -= 1;
            if self.recalled == 0 {
                self.answers.answer(self.recall);
            }
        }
        completions.push(Completion { tag: job.caller_tag, op: job.op, buffer, result });
    }

    pub(crate) fn queue(&mut self) -> &mut Queue {
        &mut self.queue
    }
}

impl IoChannel for ScsiChannel {
    #[inline]
    fn submit(&mut self, request: Request) -> std::result::Result<(), Request> {
        if self.taken >= self.depth {
            return Err(request);
        }
        if self.is_direct(&request) {
            self.submit_direct(request)
        } else {
            self.submit_other(request)
        }
    }

    #[inline]
    fn kick(&mut self) {
        self.queue.kick();
        self.event.tell(self.taken, &mut self.statistics);
    }

    #[inline]
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let found = self.look(completions);
        if found == 0 {
            self.event.settle(self.taken, &mut self.statistics);
        }
        self.event.tell(self.taken, &mut self.statistics);
        found
    }

    #[inline]
    fn look(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        self.turn(completions);
        completions.len() - before
    }

    fn arrival(&self) -> Arrival {
        if self.queue.interrupt().is_none() { Arrival::Polled } else { Arrival::Called }
    }

    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        self.wait_for(completions, options)
    }

    fn in_flight(&self) -> u32 {
        self.taken
    }

    fn statistics(&self) -> ChannelStatistics {
        ChannelStatistics { resets: self.host.resets() - self.resets_before, ..self.statistics }
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        self.event.descriptor(self.taken).map(Some)
    }
}

impl Drop for ScsiChannel {
    fn drop(&mut self) {
        // The device may access the memory of sent commands until it reports their end, which the
        // ladder brings about in bounded time.
        let mut done = Vec::new();
        self.queue.kick();
        while self.queue.sent() > 0 {
            self.queue.turn(&mut done);
            // Done before anything is sent again: no caller waits for these commands.
            self.queue.forget_held();
            self.queue.tend(&mut done);
            done.clear();
            time::yield_now();
        }
    }
}
