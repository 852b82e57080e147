//! Commands for namespaces whose blocks are elsewhere: they are handed to the thread that steps the controller, and answered when they are done.
//!
//! Invariant: memory is opened and closed, queues are made and deleted, and the controller is reset only while nothing is handed out. The
//! thread that is handed commands sees to it: it steps the admin queue ([`SoftNvme::has_admin_commands`]), lets a client be heard, and changes
//! namespaces only then.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use qpair_block::{ErrorKind, IoError, Mapping, Op, Segment};
use qpair_nvme_wire::command::{DEALLOCATE, feature, io};
use qpair_nvme_wire::registers::{
    CSTS_READY, CSTS_SHUTDOWN_COMPLETE, CSTS_SHUTDOWN_MASK, CSTS_SHUTDOWN_OCCURRING,
};
use qpair_nvme_wire::{Command, NSID_ALL, Status};

use super::device::SoftNvme;
use super::events::Event;
use super::io::{RANGES_BYTES_MAX, read_ranges};
use super::outer::{NAMESPACES_CHANGED, Outer, OuterNamespace};
use super::prp::{Direction, Walk};
use super::queue::{CompletionQueue, Side, Tools, Unreachable};
use super::step::Ran;
use qpair_pci::model::locked;

/// The type of statuses that say that the medium failed.
const MEDIA_ERRORS: u8 = 2;

/// Names a command that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    queue: u16,
    cid: u16,
}

impl Ticket {
    /// Of no command, but of the controller as it shuts down.
    pub(crate) const SHUTDOWN: Self = Self { queue: u16::MAX, cid: 0 };

    pub(crate) fn new(queue: u16, cid: u16) -> Self {
        Self { queue, cid }
    }
}

/// Something to be done for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The namespace.
    pub nsid: u32,
    /// What.
    pub op: Op,
    /// First byte; 0 for a flush.
    pub offset_bytes: u64,
    /// Bytes; 0 for a flush.
    pub len_bytes: u64,
}

/// A command that is handed out.
#[derive(Debug)]
pub struct Handed {
    /// Answered with it: [`SoftNvme::answer`].
    pub ticket: Ticket,
    /// What is to be done first.
    pub first: Part,
    /// What is to be done after it. None of them has data.
    pub then: Vec<Part>,
    /// What is written is on stable storage before the answer.
    pub force_unit_access: bool,
}

/// How something ended.
pub type Ended = Result<(), IoError>;

/// Takes commands.
pub trait Hand {
    /// Whether it takes another one.
    fn has_room(&self) -> bool;

    /// Takes one. Of a read or write the data's memory are these segments of the mappings that [`SoftNvme::new_memory`] gave last.
    ///
    /// # Errors
    /// Why it cannot be begun; it is over then.
    fn take(&mut self, handed: Handed, segments: &mut dyn Iterator<Item = Segment>) -> Ended;
}

impl SoftNvme {
    /// Namespaces are others from now on, and a driver that wants to hear of it does. Only of a controller made for it.
    pub fn set_namespaces(&self, namespaces: Vec<OuterNamespace>) {
        let Some(outer) = self.outer_namespaces() else { return };
        let changed = outer.set(namespaces);
        if changed.is_empty() || self.status() & CSTS_READY == 0 {
            return;
        }
        let mut admin = self.admin();
        admin.changed.extend(changed);
        let wanted = admin.features.get(feature::ASYNC_EVENT, 0, 0).unwrap_or(0);
        if wanted & NAMESPACES_CHANGED != 0 && admin.events.happen(Event::NamespacesChanged) {
            drop(admin);
            self.call_attention(0);
        }
    }

    /// What the driver has opened, if that has changed since it was asked last.
    pub fn new_memory(&self) -> Option<Vec<Arc<Mapping>>> {
        let is_new = &self.outer_namespaces()?.is_memory_new;
        if !is_new.load(Ordering::Acquire) {
            return None;
        }
        is_new.store(false, Ordering::Release);
        // Memory of this process is not reached: its commands fail, as none of their segments is there.
        Some(self.table().mappings().unwrap_or_default())
    }

    /// Whether the driver waits for admin commands, which may change what commands that are handed out work with.
    #[must_use]
    pub fn has_admin_commands(&self) -> bool {
        let Some(slot) = self.slot(0).filter(|slot| slot.has_news(self.doorbell(0, false))) else {
            return false;
        };
        let pair = slot.lock();
        pair.side.submission.as_ref().is_some_and(|queue| queue.head != self.doorbell(0, false))
    }

    /// Does what there is to do for the admin queue; executes commands only if told to.
    pub fn step_admin(&self, executes: bool) -> bool {
        let run = |tail, side: &mut Side, completion: &mut CompletionQueue| {
            let head = side.submission.as_ref().map_or(tail, |queue| queue.head);
            let mut ran = self.run_admin(if executes { tail } else { head }, side, completion)?;
            ran.again |= !executes && head != tail;
            Ok(ran)
        };
        self.step_queue_by(0, run).progress
    }

    /// Hands out commands of all I/O queues, and posts answers. Whether there was something.
    pub fn step_handing(&self, hand: &mut dyn Hand) -> bool {
        let Some(outer) = self.outer_namespaces() else { return false };
        let mut progress = self.hand_flushes(outer, hand);
        for number in 1..self.slots_in_use() {
            let run = |tail, side: &mut Side, completion: &mut CompletionQueue| {
                self.run_handing(number, tail, side, completion, (outer, &mut *hand))
            };
            progress |= self.step_queue_by(number, run).progress;
        }
        progress
    }

    /// A command that was handed out is done, or its part that is `op` has failed.
    pub fn answer(&self, ticket: Ticket, op: Op, ended: Ended) {
        self.answer_with(ticket, ended.err().map_or(Status::SUCCESS, |error| status_of(op, error)));
    }

    fn answer_with(&self, ticket: Ticket, status: Status) {
        if ticket == Ticket::SHUTDOWN {
            if self.status() & CSTS_SHUTDOWN_MASK == CSTS_SHUTDOWN_OCCURRING {
                self.set_status(CSTS_SHUTDOWN_MASK, CSTS_SHUTDOWN_COMPLETE);
            }
            return;
        }
        let Some(mut pair) = self.lock_pair(ticket.queue.into()) else { return };
        pair.side.handed = pair.side.handed.saturating_sub(1);
        pair.side.tools.counts.media_errors += u64::from(status.kind() == MEDIA_ERRORS);
        pair.side.answered.push_back((ticket.cid, status));
        drop(pair);
        self.call_attention(ticket.queue.into());
    }

    /// Has all namespaces flushed, if they are elsewhere. False: they are not.
    pub(crate) fn flush_outer(&self, ticket: Ticket) -> bool {
        let Some(outer) = self.outer_namespaces() else { return false };
        locked(&outer.flushes).push(ticket);
        true
    }

    fn hand_flushes(&self, outer: &Outer, hand: &mut dyn Hand) -> bool {
        let mut progress = false;
        while hand.has_room() {
            let Some(ticket) = locked(&outer.flushes).pop() else { break };
            progress = true;
            match flush_of(ticket, outer.numbers()) {
                None => self.answer_with(ticket, Status::SUCCESS),
                Some(handed) => {
                    if let Err(error) = hand.take(handed, &mut std::iter::empty()) {
                        self.answer(ticket, Op::Flush, Err(error));
                    }
                }
            }
        }
        progress
    }

    fn run_handing(
        &self,
        number: u16,
        tail: u32,
        side: &mut Side,
        completion: &mut CompletionQueue,
        (outer, hand): (&Outer, &mut dyn Hand),
    ) -> Result<Ran, Unreachable> {
        let Side { submission: Some(queue), shadow, handed, answered, tools, .. } = side else {
            return Ok(Ran::default());
        };
        let pending = self.pending(queue, tail);
        let mut ran = Ran::default();
        // What is under way could never be answered if it were more than the queue holds.
        let most = completion.ring.entries() - 1;
        let mut taken = 0;
        while taken < pending && *handed + (answered.len() as u32) < most && hand.has_room() {
            let command = queue.fetch()?;
            taken += 1;
            let ticket = Ticket::new(number, command.cid());
            match self.hand_over(&command, ticket, tools, outer, hand) {
                Ok(true) => *handed += 1,
                // There is nothing to do for it.
                Ok(false) => answered.push_back((command.cid(), Status::SUCCESS)),
                Err(status) => answered.push_back((command.cid(), status)),
            }
        }
        ran.progress = taken > 0;
        let heads = || self.doorbell_of(shadow.as_ref(), queue.cq, true);
        self.post_answers(number, queue.head, completion, answered, heads, &mut ran)?;
        ran.again = taken < pending || !answered.is_empty();
        Ok(ran)
    }

    fn post_answers(
        &self,
        number: u16,
        sq_head: u32,
        completion: &mut CompletionQueue,
        answered: &mut VecDeque<(u16, Status)>,
        heads: impl FnOnce() -> u32,
        ran: &mut Ran,
    ) -> Result<(), Unreachable> {
        if answered.is_empty() {
            return Ok(());
        }
        let wanted = answered.len() as u32;
        let (room, wrong) = completion.room(wanted, heads);
        if wrong {
            self.happened(Event::InvalidDoorbell);
        }
        for (cid, status) in answered.drain(..wanted.min(room) as usize) {
            completion.post(number, sq_head, cid, status, 0)?;
            ran.progress = true;
        }
        Ok(())
    }

    /// Hands a command over. False: there is nothing to do for it.
    fn hand_over(
        &self,
        command: &Command,
        ticket: Ticket,
        tools: &mut Tools,
        outer: &Outer,
        hand: &mut dyn Hand,
    ) -> Result<bool, Status> {
        // PRPs only, and no fused pairs.
        if command.psdt() != 0 || command.fuse() != 0 {
            return Err(Status::INVALID_FIELD);
        }
        let op = match command.opcode() {
            io::READ => Op::Read,
            io::WRITE => Op::Write,
            io::FLUSH => Op::Flush,
            io::WRITE_ZEROES => Op::WriteZeroes,
            io::DATASET_MANAGEMENT => Op::Discard,
            _ => return Err(Status::INVALID_OPCODE),
        };
        let nsid = command.nsid();
        if op == Op::Flush && nsid == NSID_ALL {
            return match flush_of(ticket, outer.numbers()) {
                None => Ok(false),
                Some(handed) => taken(op, hand.take(handed, &mut std::iter::empty())),
            };
        }
        let found = outer.all().iter().find(|it| it.nsid == nsid).copied();
        let namespace = found.ok_or(Status::INVALID_NAMESPACE)?;
        if namespace.read_only && !matches!(op, Op::Read | Op::Flush) {
            return Err(Status::NAMESPACE_WRITE_PROTECTED);
        }
        let part = |(offset_bytes, len_bytes)| Part { nsid, op, offset_bytes, len_bytes };
        let target = self.target();
        let force_unit_access = target.is_durable(command);
        let one = |first: Part| Handed { ticket, first, then: Vec::new(), force_unit_access };
        let handed = match op {
            Op::Flush => one(part((0, 0))),
            Op::WriteZeroes => {
                let first = part(namespace.range(command.first_block(), command.blocks())?);
                let flush = Part { nsid, op: Op::Flush, offset_bytes: 0, len_bytes: 0 };
                // Only writes know FUA at the seam.
                let then = if force_unit_access { vec![flush] } else { Vec::new() };
                Handed { then, ..one(first) }
            }
            Op::Discard => {
                let mut list = [0; RANGES_BYTES_MAX];
                let ranges = read_ranges(command, tools, &mut list)?;
                let parts: Result<Vec<Part>, Status> = ranges
                    .map(|range| namespace.range(range.first_block, range.blocks).map(part))
                    .collect();
                let mut parts = parts?.into_iter();
                let is_done = namespace.deallocates && command.cdw(11) & DEALLOCATE != 0;
                match parts.next().filter(|_| is_done) {
                    Some(first) => Handed { then: parts.collect(), ..one(first) },
                    None => return Ok(false),
                }
            }
            Op::Read | Op::Write => {
                let range = namespace.range(command.first_block(), command.blocks())?;
                if range.1 > u64::from(target.transfer_bytes_max) {
                    return Err(Status::INVALID_FIELD);
                }
                let direction = match op {
                    Op::Read => Direction::ToDriver,
                    _ => Direction::FromDriver,
                };
                Walk { table: &tools.table, last: &mut tools.last, extents: &mut tools.extents }
                    .prps(command.prp1(), command.prp2(), range.1 as u32, direction)?;
                let counts = &mut tools.counts;
                let (count, bytes) = match op {
                    Op::Read => (&mut counts.reads, &mut counts.bytes_read),
                    _ => (&mut counts.writes, &mut counts.bytes_written),
                };
                (*count, *bytes) = (*count + 1, *bytes + range.1);
                let mut segments = tools.extents.iter().map(|extent| extent.segment());
                return taken(op, hand.take(one(part(range)), &mut segments));
            }
        };
        taken(op, hand.take(handed, &mut std::iter::empty()))
    }
}

fn taken(op: Op, begun: Ended) -> Result<bool, Status> {
    begun.map(|()| true).map_err(|error| status_of(op, error))
}

/// How the driver is told of an error: so that [`Status::errno`] gives it back where it can.
fn status_of(op: Op, error: IoError) -> Status {
    match error.kind {
        _ if error.can_be_retried() => Status::NAMESPACE_NOT_READY,
        // Deallocation is advice.
        ErrorKind::Unsupported if op == Op::Discard => Status::SUCCESS,
        ErrorKind::Unsupported => Status::INVALID_OPCODE,
        ErrorKind::Invalid => Status::INVALID_FIELD,
        ErrorKind::NoSpace => Status::CAPACITY_EXCEEDED,
        ErrorKind::ReadOnly => Status::NAMESPACE_WRITE_PROTECTED,
        ErrorKind::Gone => Status::INVALID_NAMESPACE,
        _ if op == Op::Read => Status::UNRECOVERED_READ_ERROR,
        _ => Status::WRITE_FAULT,
    }
}

/// A flush of these namespaces; `None`: of none.
fn flush_of(ticket: Ticket, numbers: Vec<u32>) -> Option<Handed> {
    let flush = |nsid| Part { nsid, op: Op::Flush, offset_bytes: 0, len_bytes: 0 };
    let mut parts = numbers.into_iter().map(flush);
    let first = parts.next()?;
    Some(Handed { ticket, first, then: parts.collect(), force_unit_access: false })
}
