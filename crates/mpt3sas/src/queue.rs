//! One thread's queue to one unit.
//!
//! Invariants:
//! - A tag is `active` from the time its command was taken until it was reported.
//! - Commands in `pending` were taken and not posted. A posted command was posted through the gate
//!   in the life `life`.
//! - Frames, sense buffers and the reply queue are this queue's alone, by their leases.
//!
//! Long, because each step of a command relies on the invariants, and so on the private fields.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use qpair_block::{Arena, Buffer, Error, ErrorKind, Result};
use qpair_mpi_wire::descriptor::{ReplyDescriptor, RequestDescriptor, request};
use qpair_mpi_wire::scsi_io::{
    CONTROL_READ, CONTROL_WRITE, SGL_AT, STATE_AUTOSENSE, ScsiIoReply, at,
};
use qpair_mpi_wire::sgl::{ELEMENT_BYTES, END_OF_LIST, Element};
use qpair_mpi_wire::task::{self as mpi_task, TaskReply, response};
use qpair_mpi_wire::{function, ioc_status};
use qpair_pci::{Interrupt, OpenArenas, OpenRegions, Step};
use qpair_scsi::host::{
    Data, HostQueue, Outcome, QueueOptions, Refusal, Report, SENSE_BYTES, Task, Unit,
};
use qpair_scsi_wire::{Cdb, GOOD};

use crate::coherent::{FRAMES, SENSE_STRIDE};
use crate::host::Inner;
use crate::replies::{FRAME_BYTES_MAX, ReplyQueue};
use crate::state::{Gate, Phase, Word};
use crate::targets::TargetState;

/// The maximum number of unanswered tasks: each rung of the ladder has one.
const TASKS: u16 = 3;
/// The number of polls between two looks at events.
const POLLS: u32 = 1024;
/// The number that stands for no block of frames.
const NO_BLOCK: u16 = u16::MAX;

pub(crate) struct MptQueue {
    replies: ReplyQueue,
    frames: Vec<Buffer>,
    sense: Vec<Buffer>,
    /// The index in `frames` of each block of the arena.
    places: Box<[u16]>,
    frame_bytes: usize,
    active: Box<[bool]>,
    /// The bytes of sense data, by tag.
    sense_bytes: Box<[u8]>,
    depth: u16,
    pending: Vec<u64>,
    /// The number of commands and tasks in flight.
    under_way: u32,
    task: Option<u16>,
    seen: Word,
    /// The life of the controller that the reply queue belongs to.
    life: u64,
    target: Arc<TargetState>,
    gate: Arc<Gate>,
    stepper: Option<Arc<dyn Step>>,
    due: Option<Instant>,
    interrupt: Option<Interrupt>,
    polls_left: u32,
    unit: Unit,
    arenas: OpenArenas,
    regions: OpenRegions,
    /// The segments of a command's list, by tag; the next field counts the tags with segments.
    chained: Box<[Option<Buffer>]>,
    chained_count: u32,
    inner: Arc<Inner>,
}

impl MptQueue {
    pub(crate) fn open(inner: &Arc<Inner>, unit: Unit, options: &QueueOptions<'_>) -> Result<Self> {
        let memory = &inner.memory;
        let name = inner.name();
        let target = inner.targets.get(unit.target).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("{name}: there is no target {}", unit.target))
        })?;
        let depth = u16::try_from(options.depth).unwrap_or(u16::MAX);
        let blocks = (usize::from(depth) + usize::from(TASKS)).div_ceil(FRAMES.into());
        let limit = |what: &str, hint: &str| {
            Error::new(ErrorKind::Limit, format!("{name}: {what}")).hint(hint)
        };
        let reply_buffer = memory.replies.lease().ok_or_else(|| {
            let queues = memory.sizes.queues - 1;
            limit(
                "all reply queues are in use",
                &format!("at most {queues} channels can be open at once"),
            )
        })?;
        let take = |arena: &Arc<Arena>| -> Result<Vec<Buffer>> {
            (0..blocks)
                .map(|_| {
                    arena.lease().ok_or_else(|| {
                        limit(
                            "all requests that it gives credit for are in use",
                            "open fewer channels, or channels of less depth",
                        )
                    })
                })
                .collect()
        };
        let (frames, sense) = (take(&memory.frames)?, take(&memory.sense)?);
        let mut places = vec![NO_BLOCK; memory.sizes.blocks as usize];
        for (place, buffer) in (0u16..).zip(&frames) {
            places[buffer.block().0 as usize] = place;
        }
        let arenas = OpenArenas::new(&inner.maps, options.arenas)?;
        let regions = OpenRegions::new(&inner.maps, options.arenas)?;
        let interrupt = match options.sleeps {
            true => inner.interrupt(reply_buffer.block().0)?,
            false => None,
        };
        let seen = inner.state.get();
        let mut queue = Self {
            replies: ReplyQueue::new(reply_buffer, memory.sizes.reply_entries),
            frames,
            sense,
            places: places.into(),
            frame_bytes: memory.sizes.frame_bytes as usize,
            active: vec![false; usize::from(depth + TASKS)].into(),
            sense_bytes: vec![0; depth.into()].into(),
            depth,
            pending: Vec::with_capacity(depth.into()),
            under_way: 0,
            task: None,
            seen,
            life: seen.life(),
            target,
            gate: inner.new_gate(),
            stepper: inner.stepper.clone(),
            due: None,
            interrupt,
            polls_left: POLLS,
            unit,
            arenas,
            regions,
            chained: (0..depth).map(|_| None).collect(),
            chained_count: 0,
            inner: inner.clone(),
        };
        let mark = inner.mark(queue.replies.number()).load(Ordering::Acquire);
        if mark >> 32 == queue.life & 0xFFFF_FFFF {
            queue.replies.resume(mark as u32);
        } else {
            queue.replies.clear();
        }
        queue.prepare_frames();
        Ok(queue)
    }

    /// Writes the parts of frames that are the same in all commands.
    fn prepare_frames(&mut self) {
        let sense_iova = self.inner.memory.sense_iova;
        let lun = u64::from_le_bytes(self.unit.lun.0);
        for tag in 0..self.depth {
            let (place, number) = split(tag);
            let sense_block = self.sense[place].block().0 as usize;
            let sense_at = (sense_block * usize::from(FRAMES) + number) * SENSE_STRIDE;
            let at_frame = number * self.frame_bytes;
            let frame_bytes = self.frame_bytes;
            let memory = self.frames[place].shared();
            memory.zero(at_frame, frame_bytes);
            memory.store_u32(at_frame + at::SENSE, sense_iova as u32 + sense_at as u32);
            let flags = (SENSE_BYTES as u32) << 16;
            memory.store_u32(at_frame + at::FLAGS, flags);
            memory.store_u32(at_frame + at::FLAGS + 4, (SGL_AT / 4) as u32);
            memory.store_u32(at_frame + at::LUN, lun as u32);
            memory.store_u32(at_frame + at::LUN + 4, (lun >> 32) as u32);
        }
    }

    /// Returns the target's current handle. During a reset, which this channel may not have seen
    /// yet, no target has one.
    #[inline]
    fn handle(&self) -> std::result::Result<u16, Refusal> {
        self.target.handle().ok_or_else(|| {
            if self.inner.state.get() == self.seen { Refusal::Gone } else { Refusal::Later }
        })
    }

    fn smid(&self, tag: u16) -> u16 {
        let (place, number) = split(tag);
        self.frames[place].block().0 as u16 * FRAMES + number as u16
    }

    #[inline]
    fn tag(&self, smid: u16) -> Option<u16> {
        let place = *self.places.get(usize::from(smid / FRAMES))?;
        let tag = place.checked_mul(FRAMES)?.checked_add(smid % FRAMES)?;
        (place != NO_BLOCK && self.active.get(usize::from(tag)).copied()?).then_some(tag)
    }

    /// Handles a change of the controller's state since this queue last looked.
    #[cold]
    fn turn_over(&mut self, word: Word, reports: &mut Vec<Report>) {
        self.seen = word;
        let is_gone = word.phase() == Phase::Gone;
        if word.life() == self.life && !is_gone {
            return;
        }
        self.life = word.life();
        self.pending.clear();
        let outcome = if is_gone { Outcome::Gone } else { Outcome::Reset };
        for tag in 0..self.active.len() {
            if std::mem::take(&mut self.active[tag]) && tag < usize::from(self.depth) {
                reports.push(Report::Ended(tag as u16, outcome));
            }
        }
        self.under_way = 0;
        self.chained.fill_with(|| None);
        self.chained_count = 0;
        if self.task.take().is_some() {
            reports.push(Report::Task(false));
        }
        self.replies.clear();
    }

    #[cold]
    fn answered(&mut self, tag: u16, frame: &[u8; FRAME_BYTES_MAX], reports: &mut Vec<Report>) {
        if tag >= self.depth {
            self.inner.give_task_credit();
            if self.task == Some(tag) {
                self.task = None;
                let reply = TaskReply::decode(frame);
                let is_done = matches!(reply.response, response::COMPLETE | response::SUCCEEDED);
                reports.push(Report::Task(is_done && reply.ioc_status == ioc_status::SUCCESS));
            }
            return;
        }
        let reply = ScsiIoReply::decode(frame);
        self.sense_bytes[usize::from(tag)] = match reply.state & STATE_AUTOSENSE {
            0 => 0,
            _ => reply.sense_bytes.min(SENSE_BYTES as u32) as u8,
        };
        reports.push(Report::Ended(tag, outcome_of(&reply)));
    }

    #[inline]
    fn take_all(&mut self, reports: &mut Vec<Report>) {
        while let Some(found) = self.replies.take() {
            let (smid, low) = match found {
                ReplyDescriptor::Success(smid) => (smid, None),
                ReplyDescriptor::Address(smid, low) => (smid, Some(low)),
                // A kind of descriptor that this driver never requests.
                ReplyDescriptor::Other(_) => continue,
            };
            let frame =
                low.map(|low| self.inner.memory.pool().take(low, self.life, &self.inner.registers));
            // The command was answered twice, or never sent.
            let Some(tag) = self.tag(smid) else { continue };
            match frame {
                None if tag < self.depth => {
                    self.ended(tag);
                    reports.push(Report::Ended(tag, Outcome::Good));
                }
                Some(Some(frame)) => {
                    self.ended(tag);
                    self.answered(tag, &frame, reports);
                }
                // A task's answer has a frame. A frame that is not one of the pool's has no
                // meaning.
                None | Some(None) => {}
            }
        }
    }

    #[inline(always)]
    fn ended(&mut self, tag: u16) {
        self.active[usize::from(tag)] = false;
        self.under_way -= 1;
        if self.chained_count > 0 {
            self.forget_list(tag);
        }
    }

    #[cold]
    fn forget_list(&mut self, tag: u16) {
        let list = self.chained.get_mut(usize::from(tag)).and_then(Option::take);
        self.chained_count -= u32::from(list.is_some());
    }

    /// Writes the elements of a list of segments. Returns the offset of the chain element in the
    /// frame.
    #[cold]
    fn write_list(
        &mut self,
        tag: u16,
        buffer: &Buffer,
        offset: usize,
        len: u32,
    ) -> std::result::Result<u8, Refusal> {
        let memory = &self.inner.memory;
        let layout = memory.sizes.chains;
        let pieces = || buffer.pieces(offset, len as usize);
        let arena_id = buffer.arena().id();
        let place = |piece| self.regions.iova_of(arena_id, piece);
        let count = pieces().count() as u32;
        if count == 0 || count > layout.elements_max() || pieces().any(|it| place(it).is_none()) {
            return Err(Refusal::Gone);
        }
        let mut list = match layout.needs_segments(count) {
            true => Some(memory.chains.lease().ok_or(Refusal::Later)?),
            false => None,
        };
        let block = list.as_mut().map(|list| {
            let at = u64::from(list.block().0) * list.len() as u64;
            (list.shared(), memory.chains_iova + at)
        });
        let elements = pieces().map(|it| (place(it).unwrap_or(0), it.len_bytes as u32));
        let (in_block, number) = split(tag);
        let frame = self.frames[in_block].shared();
        let Some(frame) = frame.part(number * self.frame_bytes, self.frame_bytes) else {
            return Err(Refusal::Gone);
        };
        let chain_offset = layout.write(frame, block, count, elements);
        self.chained_count += u32::from(list.is_some());
        self.chained[usize::from(tag)] = list;
        Ok(chain_offset)
    }
}

/// Returns the block of a tag's frame, and the frame's index in it.
#[inline(always)]
fn split(tag: u16) -> (usize, usize) {
    (usize::from(tag / FRAMES), usize::from(tag % FRAMES))
}

fn outcome_of(reply: &ScsiIoReply) -> Outcome {
    match reply.ioc_status {
        _ if reply.scsi_status != GOOD => Outcome::Status(reply.scsi_status),
        ioc_status::SUCCESS | ioc_status::SCSI_RECOVERED_ERROR => Outcome::Good,
        ioc_status::SCSI_DATA_UNDERRUN => Outcome::Short(reply.transferred),
        ioc_status::SCSI_INVALID_DEVHANDLE | ioc_status::SCSI_DEVICE_NOT_THERE => Outcome::Gone,
        ioc_status::BUSY | ioc_status::INSUFFICIENT_RESOURCES => Outcome::Busy,
        ioc_status::SCSI_TASK_TERMINATED
        | ioc_status::SCSI_IOC_TERMINATED
        | ioc_status::SCSI_EXT_TERMINATED => Outcome::Terminated,
        _ => Outcome::Failed,
    }
}

impl HostQueue for MptQueue {
    #[inline]
    fn reaches(&mut self, arena: &Arena) -> bool {
        self.arenas.iova_of(arena.id()).is_some()
    }

    fn reach(&mut self, buffer: &Buffer, offset: usize, len: u32) -> u32 {
        let arena_id = buffer.arena().id();
        if !buffer.is_list() {
            return if self.arenas.iova_of(arena_id).is_some() { len } else { 0 };
        }
        if !self.regions.has(arena_id) {
            return 0;
        }
        let elements_max = self.inner.memory.sizes.chains.elements_max() as usize;
        let pieces = buffer.pieces(offset, len as usize).take(elements_max);
        let pieces = pieces.take_while(|it| self.regions.iova_of(arena_id, *it).is_some());
        pieces.map(|piece| piece.len_bytes as u32).sum()
    }

    #[inline]
    fn queue(
        &mut self,
        tag: u16,
        cdb: &Cdb,
        data: Option<Data<'_>>,
    ) -> std::result::Result<(), Refusal> {
        match self.seen.phase() {
            Phase::Running => {}
            Phase::Gone => return Err(Refusal::Gone),
            Phase::Stopping | Phase::Quiet => return Err(Refusal::Later),
        }
        let handle = self.handle()?;
        let (mut chain_offset, mut is_listed) = (0, false);
        let (element, control) = match data {
            None => (Element { flags: END_OF_LIST, ..Element::default() }, 0),
            Some(Data { is_out, buffer, offset, len }) => {
                let address = if buffer.is_list() {
                    chain_offset = self.write_list(tag, buffer, offset, len)?;
                    is_listed = true;
                    0
                } else {
                    self.arenas.iova_of_buffer(buffer).ok_or(Refusal::Gone)? + offset as u64
                };
                let element = Element { address, len, next_chain: 0, flags: END_OF_LIST };
                (element, if is_out { CONTROL_WRITE } else { CONTROL_READ })
            }
        };
        let (place, number) = split(tag);
        let at_frame = number * self.frame_bytes;
        let block = self.frames[place].block().0 as u16;
        let Some(frame) = self.frames[place].shared().part(at_frame, self.frame_bytes) else {
            return Err(Refusal::Gone);
        };
        let head = u32::from(handle) | u32::from(chain_offset) << 16;
        frame.store_u32(at::HEAD, head | u32::from(function::SCSI_IO) << 24);
        frame.store_u32(at::DATA_BYTES, element.len);
        frame.store_u32(at::IO_FLAGS, cdb.len().into());
        frame.store_u32(at::CONTROL, control);
        let (words, _) = cdb.padded().as_chunks::<8>();
        for (word, at) in words.iter().zip((at::CDB..).step_by(8)) {
            frame.store_u64(at, u64::from_le_bytes(*word));
        }
        if !is_listed {
            let [first, second] = element.words();
            frame.store_u64(SGL_AT, first);
            frame.store_u64(SGL_AT + ELEMENT_BYTES / 2, second);
        }
        let queue = self.replies.number();
        let smid = block * FRAMES + number as u16;
        let descriptor = RequestDescriptor { kind: request::SCSI_IO, queue, smid, handle };
        self.pending.push(descriptor.encode());
        self.active[usize::from(tag)] = true;
        self.under_way += 1;
        Ok(())
    }

    #[inline]
    fn kick(&mut self) {
        if self.pending.is_empty() || self.seen.phase() != Phase::Running {
            return;
        }
        let (pending, registers) = (&self.pending, &self.inner.registers);
        let posted = self.gate.pass(&self.inner.state, self.seen, || {
            // A controller that does not accept the request is gone, which its state will show.
            pending.iter().all(|descriptor| registers.post(*descriptor).is_ok())
        });
        match posted {
            Some(true) => self.pending.clear(),
            Some(false) => {
                self.pending.clear();
                self.inner.begin_reset();
            }
            // The life has changed: the next poll reports these commands.
            None => {}
        }
    }

    #[inline]
    fn poll(&mut self, reports: &mut Vec<Report>) {
        let word = self.inner.state.get();
        if word != self.seen {
            self.turn_over(word, reports);
        }
        if let Some(stepper) = &self.stepper {
            self.due = stepper.step(self.replies.number().into()).due;
        }
        self.take_all(reports);
        if self.replies.is_ahead() && self.seen.phase() == Phase::Running {
            let (replies, registers) = (&mut self.replies, &self.inner.registers);
            // Through the gate: in the controller's next life this index would refer to another
            // queue. A controller that does not take it is gone, as the state will show.
            let _ = self.gate.pass(&self.inner.state, self.seen, || replies.release(registers));
        }
        // A thread that sleeps polls rarely.
        self.polls_left =
            self.polls_left.saturating_sub(if self.interrupt.is_some() { 64 } else { 1 });
        if self.polls_left == 0 {
            self.polls_left = POLLS;
            self.inner.look();
        }
    }

    fn sense(&mut self, tag: u16, into: &mut [u8; SENSE_BYTES]) -> usize {
        let (place, number) = split(tag);
        let len = self.sense_bytes.get(usize::from(tag)).copied().unwrap_or(0);
        let len = usize::from(len).min(SENSE_BYTES);
        if let Some(buffer) = self.sense.get_mut(place) {
            buffer.shared().copy_to(number * SENSE_STRIDE, &mut into[..len]);
        }
        len
    }

    fn begin_task(&mut self, task: Task) -> std::result::Result<(), Refusal> {
        if self.seen.phase() != Phase::Running {
            return Err(Refusal::Later);
        }
        let (rung, kind, smid) = match task {
            Task::Abort(tag) => (0, mpi_task::kind::ABORT_TASK, self.smid(tag)),
            Task::LunReset => (1, mpi_task::kind::LUN_RESET, 0),
            Task::TargetReset => (2, mpi_task::kind::TARGET_RESET, 0),
        };
        let tag = self.depth + rung;
        let handle = self.handle()?;
        if self.active[usize::from(tag)] || !self.inner.take_task_credit() {
            return Err(Refusal::Later);
        }
        let message = mpi_task::Task { handle, kind, lun: self.unit.lun.0, smid }.encode();
        let (place, number) = split(tag);
        let at_frame = number * self.frame_bytes;
        let frame_bytes = self.frame_bytes;
        let memory = self.frames[place].shared();
        memory.zero(at_frame, frame_bytes);
        memory.copy_from(at_frame, &message);
        let queue = self.replies.number();
        let kind = request::HIGH_PRIORITY;
        let descriptor = RequestDescriptor { kind, queue, smid: self.smid(tag), handle: 0 };
        self.pending.push(descriptor.encode());
        self.active[usize::from(tag)] = true;
        self.under_way += 1;
        self.task = Some(tag);
        self.kick();
        Ok(())
    }

    fn begin_reset(&mut self) {
        self.inner.begin_reset();
    }

    fn due(&self) -> Option<Instant> {
        self.due
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.interrupt.as_ref().map(AsFd::as_fd)
    }

    fn clear_interrupt(&mut self) {
        if let Some(interrupt) = &self.interrupt {
            interrupt.clear();
        }
    }
}

impl Drop for MptQueue {
    fn drop(&mut self) {
        let mark = (self.life & 0xFFFF_FFFF) << 32 | u64::from(self.replies.index());
        self.inner.mark(self.replies.number()).store(mark, Ordering::Release);
        if self.under_way > 0 {
            // A task without an answer may still get one: its frame is not reused until the
            // controller was reset.
            let lists = self.chained.iter_mut().filter_map(Option::take);
            let frames = self.frames.drain(..).chain(self.sense.drain(..)).chain(lists);
            self.inner.keep_stale(frames);
        }
    }
}
