//! The data plane of a stripe.
//!
//! Invariants: a request owns one slot from submission to completion, and the slot's number is the
//! tag of its parts. A request has at most one part at a member at a time (a flush has one at
//! each), so requests of the stripe alone never fill members of the same depth. A part that a
//! member refuses is parked and tried again. A part that is not aligned for the members uses a
//! block, and its request keeps the buffer meanwhile.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::channel::bounces::Bounces;
use crate::channel::group::ChannelGroup;
use crate::channel::poller::EarlyQueue;
use crate::channel::slots::Slots;
use crate::devices::stripe::Layout;
use crate::seam::device::{
    Arrival, ChannelOptions, ChannelStatistics, DeviceInfo, IoChannel, WaitOptions,
};
use crate::seam::error::{IoError, Result};
use crate::seam::request::{Completion, Op, Request};
use crate::seam::sleep::WaitClock;
use crate::seam::wake::WakeEvent;

/// The longest sleep while a part is parked, because nothing announces when a member has room
/// again.
const PARKED_RETRY: Duration = Duration::from_millis(1);

/// A request, and the work that is left for it.
struct Parent {
    tag: u64,
    op: Op,
    len_bytes: u32,
    force_unit_access: bool,
    atomic: bool,
    result: std::result::Result<(), IoError>,
    /// The number of parts that are at members now.
    outstanding: u32,
    /// The next part: its address on the stripe, its offset in the buffer, and the number of bytes
    /// left.
    next_offset_bytes: u64,
    next_buffer_bytes: u32,
    left_bytes: u32,
    /// The size in bytes of the part that was started last.
    part_bytes: u32,
    /// The request's buffer, while a part uses a block or waits for one.
    kept: Option<crate::Buffer>,
    /// Whether a part used a block.
    is_copied: bool,
}

pub(crate) struct StripeChannel {
    info: DeviceInfo,
    layout: Layout,
    size_bytes: Arc<AtomicU64>,
    depth: u32,
    members: ChannelGroup,
    parents: Slots<Parent>,
    parked: VecDeque<(usize, Request)>,
    /// The blocks through which parts are copied; `None` if the members accept any alignment.
    bounces: Option<Bounces>,
    /// Requests that were refused without asking a member.
    early: EarlyQueue,
    /// Completions of parts; kept so that polling does not allocate.
    parts: Vec<Completion>,
    wake: Option<Arc<WakeEvent>>,
    statistics: ChannelStatistics,
}

impl StripeChannel {
    pub(crate) fn new(
        info: DeviceInfo,
        layout: Layout,
        size_bytes: Arc<AtomicU64>,
        (channels, bounces): (Vec<Box<dyn IoChannel>>, Option<Bounces>),
        options: &ChannelOptions,
    ) -> Result<Self> {
        let members = ChannelGroup::of(channels, options.wake.clone())?;
        let depth = options.depth;
        Ok(Self {
            info,
            layout,
            size_bytes,
            depth,
            parked: VecDeque::with_capacity(depth as usize * members.len()),
            bounces,
            parts: Vec::with_capacity(depth as usize),
            members,
            parents: Slots::new(depth),
            early: EarlyQueue::new(depth),
            wake: options.wake.clone(),
            statistics: ChannelStatistics::default(),
        })
    }

    fn give(&mut self, member: usize, part: Request) {
        if let Err(part) = self.members.submit(member, part) {
            self.parked.push_back((member, part));
        }
    }

    /// Starts the next part of the request in `slot`, with its buffer, or lets it wait for a block.
    fn start_part(&mut self, slot: u64, mut buffer: Option<crate::Buffer>) {
        let Some(parent) = self.parents.get_mut(slot) else { return };
        let place = self.layout.place(parent.next_offset_bytes);
        // The smaller of the two is at most `left_bytes`, so it fits.
        let mut len_bytes = place.contiguous_bytes.min(u64::from(parent.left_bytes)) as u32;
        let mut buffer_offset_bytes = parent.next_buffer_bytes;
        if let (Some(bounces), Some(own)) = (&mut self.bounces, &mut buffer)
            && !self.info.takes(own, buffer_offset_bytes, len_bytes)
        {
            let block = bounces.lease(slot).map(|mut block| {
                len_bytes = len_bytes.min(block.len() as u32);
                if parent.op == Op::Write {
                    let from = buffer_offset_bytes as usize;
                    own.copy_out(from, block.shared(), 0, len_bytes as usize);
                }
                block
            });
            buffer_offset_bytes = 0;
            parent.kept = std::mem::replace(&mut buffer, block);
            if buffer.is_none() {
                return;
            }
            self.statistics.copied += u64::from(!std::mem::replace(&mut parent.is_copied, true));
        }
        parent.outstanding = 1;
        parent.next_offset_bytes += u64::from(len_bytes);
        parent.left_bytes -= len_bytes;
        parent.part_bytes = len_bytes;
        if buffer.is_some() {
            parent.next_buffer_bytes += len_bytes;
        }
        let part = Request {
            op: parent.op,
            force_unit_access: parent.force_unit_access,
            // An atomic write is one part: the largest atomic write of a stripe lies within a unit.
            atomic: parent.atomic,
            offset_bytes: place.offset_bytes,
            len_bytes,
            buffer_offset_bytes,
            buffer,
            tag: slot,
        };
        self.give(place.member, part);
    }

    /// Starts the part that has waited longest for a block, after a block was returned. Returns
    /// whether there was one.
    fn start_waiting(&mut self) -> bool {
        let Some(slot) = self.bounces.as_mut().and_then(Bounces::next) else { return false };
        let buffer = self.parents.get_mut(slot).and_then(|parent| parent.kept.take());
        self.start_part(slot, buffer);
        true
    }

    /// Handles the end of one part. Returns whether another part was started.
    fn end_part(&mut self, part: Completion, completions: &mut Vec<Completion>) -> bool {
        let slot = part.tag;
        let Some(parent) = self.parents.get_mut(slot) else { return false };
        parent.outstanding -= 1;
        parent.result = parent.result.and(part.result);
        if parent.outstanding > 0 {
            return false;
        }
        let mut buffer = part.buffer;
        let mut started = false;
        if let Some(mut own) = parent.kept.take() {
            if let (Op::Read, Ok(()), Some(block)) = (part.op, part.result, &mut buffer) {
                let len_bytes = parent.part_bytes as usize;
                let to = parent.next_buffer_bytes as usize - len_bytes;
                own.copy_in(to, block.shared(), 0, len_bytes);
            }
            // The block is returned to the pool.
            buffer = Some(own);
            started = self.start_waiting();
        }
        let Some(parent) = self.parents.get_mut(slot) else { return started };
        if parent.left_bytes > 0 && parent.result.is_ok() {
            self.start_part(slot, buffer);
            return true;
        }
        if let Some(parent) = self.parents.take(slot) {
            let Parent { tag, op, len_bytes, result, .. } = parent;
            self.statistics.count(op, len_bytes, result);
            completions.push(Completion { tag, op, buffer, result });
        }
        started
    }

    /// Rings the doorbells of members with new requests.
    fn ring(&mut self) {
        self.retry_parked();
        self.members.kick();
    }

    fn retry_parked(&mut self) {
        for _ in 0..self.parked.len() {
            if let Some((member, part)) = self.parked.pop_front() {
                self.give(member, part);
            }
        }
    }

    /// Handles the completions in `parts`. Returns whether another part was started.
    fn take_parts(&mut self, completions: &mut Vec<Completion>) -> bool {
        let mut parts = std::mem::take(&mut self.parts);
        let mut started = false;
        for part in parts.drain(..) {
            started |= self.end_part(part, completions);
        }
        self.parts = parts;
        started
    }
}

impl IoChannel for StripeChannel {
    fn submit(&mut self, request: Request) -> std::result::Result<(), Request> {
        if self.in_flight() >= self.depth {
            return Err(request);
        }
        let checked = self.info.check(&request, self.size_bytes.load(Ordering::Acquire));
        if let Err(error) = checked {
            self.statistics.count(request.op, request.len_bytes, Err(error));
            self.early.push(request.complete(Err(error)));
            return Ok(());
        }
        let is_flush = request.op == Op::Flush;
        let parent = Parent {
            tag: request.tag,
            op: request.op,
            len_bytes: request.len_bytes,
            force_unit_access: request.force_unit_access,
            atomic: request.atomic,
            result: Ok(()),
            outstanding: self.members.len() as u32,
            next_offset_bytes: request.offset_bytes,
            next_buffer_bytes: request.buffer_offset_bytes,
            left_bytes: if is_flush { 0 } else { request.len_bytes },
            part_bytes: 0,
            kept: None,
            is_copied: false,
        };
        let Some(slot) = self.parents.insert(parent) else { return Err(request) };
        if is_flush {
            for member in 0..self.members.len() {
                self.give(member, Request::flush(slot));
            }
        } else {
            self.start_part(slot, request.buffer);
        }
        Ok(())
    }

    fn kick(&mut self) {
        self.ring();
        // A thread that sleeps on the descriptor gets no other notification of members without one,
        // or of parked parts.
        if !self.parked.is_empty() || self.members.is_unsignalled() {
            self.early.tell();
        }
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        self.early.poll(completions);
        loop {
            self.members.poll(&mut self.parts);
            let started = self.take_parts(completions);
            if !started && self.parked.is_empty() {
                break;
            }
            // Submit the follow-up requests of completions before the thread sleeps.
            self.ring();
            if !started {
                break;
            }
        }
        if !self.parked.is_empty() {
            self.early.tell();
        }
        completions.len() - before
    }

    fn look(&mut self, completions: &mut Vec<Completion>) -> usize {
        if self.early.len() > 0 || !self.parked.is_empty() {
            return self.poll(completions);
        }
        let before = completions.len();
        self.members.look(&mut self.parts);
        if self.take_parts(completions) {
            self.ring();
        }
        completions.len() - before
    }

    fn arrival(&self) -> Arrival {
        if self.early.len() > 0 || !self.parked.is_empty() {
            return Arrival::Called;
        }
        self.members.arrival()
    }

    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        let in_flight = self.in_flight();
        let nothing_to_come = in_flight == 0 && options.timeout.is_none() && self.wake.is_none();
        let clock = WaitClock::start(options, in_flight);
        let (mut taken, mut now) = (0, Instant::now());
        loop {
            let before = completions.len();
            self.early.poll(completions);
            self.retry_parked();
            let retry = (!self.parked.is_empty()).then(|| now + PARKED_RETRY);
            let until = [clock.end(taken), retry].into_iter().flatten().min();
            let rest = clock.rest(taken, until, now);
            let mut alone = None;
            if completions.len() == before && !nothing_to_come {
                alone = self.members.wait_alone(&mut self.parts, rest);
            }
            let found =
                alone.unwrap_or_else(|| self.members.look_and_poll(&mut self.parts, rest.timeout));
            if self.take_parts(completions) {
                // Submit the follow-up requests of completions before the thread sleeps.
                self.ring();
            }
            taken += completions.len() - before;
            now = Instant::now();
            if clock.is_over(taken, now) || nothing_to_come {
                return taken;
            }
            let woken = match alone {
                _ if found > 0 || completions.len() > before => false,
                Some(_) => self.wake.is_some() && until.is_none_or(|until| now < until),
                None => self.members.sleep(until.map(|until| until.saturating_duration_since(now))),
            };
            if woken {
                return taken + self.poll(completions);
            }
        }
    }

    fn in_flight(&self) -> u32 {
        self.parents.used() + self.early.len()
    }

    fn statistics(&self) -> ChannelStatistics {
        let mut all = self.statistics.over(self.members.statistics());
        all.system_calls += self.early.system_calls;
        all
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        self.members.completion_fd(&mut self.early)
    }
}
