//! A channel: one thread's queue pair on a controller, for one namespace.
//!
//! Invariants:
//! - `taken` requests were submitted and not returned: each is in a lead slot, or its completion is
//!   in `ended`.
//! - A request's buffer stays in its slot until the controller can no longer access it.
//! - Commands are pushed only while the queue is open (`is_open`). Requests that come while it is
//!   not are `held`.
//!
//! Long, because each step of a request relies on the invariants, and so on the private fields.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use qpair_block::{
    Arena, Arrival, ChannelOptions, ChannelStatistics, Completion, DeviceInfo, IoChannel, IoError,
    Op, Request, Result, WaitOptions, WakeEvent,
};
use qpair_nvme_wire::command::{DEALLOCATE, FORCE_UNIT_ACCESS, io};
use qpair_nvme_wire::{Range, Status};
use qpair_pci::{OpenRegions, QueueMemory, Step};

use crate::controller::Controller;
use crate::device::{Geometry, MEMORY_ALIGNMENT_BYTES};
use crate::line::{self, Line, UNSEEN};
use crate::options::WaitMode;
use crate::rings::{Rings, Words};
use crate::slots::{NO_BOUNCE, Slots, Stage};
use crate::state::Word;
use crate::status::error_of;
use crate::transfer::{BOUNCES, Layout, prps_of, second_prp, write_list};
use crate::wait::Bell;

/// The number of slots for further commands of large requests.
const SPARES: u32 = 32;
/// The maximum number of polls between two checks of the clock. A poll without result counts as
/// more than one, as [`EMPTY_POLL`] says.
const POLLS: u32 = 1024;
const EMPTY_POLL: u32 = 8;

pub(crate) struct NvmeChannel {
    pub(crate) rings: Rings,
    pub(crate) slots: Slots,
    /// Whether the queue pair exists and accepts commands.
    pub(crate) is_open: bool,
    pub(crate) taken: u32,
    depth: u32,
    /// The arena that was used last, and its address for the controller.
    last_arena: (u32, u64),
    pub(crate) geometry: Geometry,
    layout: Layout,
    pub(crate) queue: u16,
    pub(crate) stepper: Option<Arc<dyn Step>>,
    /// The completions of requests that the controller did not see.
    pub(crate) ended: Vec<Completion>,
    /// Leads whose requests wait for a bounce buffer.
    waiting: VecDeque<u16>,
    free_bounces: Vec<u16>,
    /// Leads whose requests wait for the queue.
    pub(crate) held: VecDeque<u16>,
    /// The controller's state when this channel last checked it.
    pub(crate) seen: Word,
    /// The current time, as the number of this channel's period.
    pub(crate) epoch: u32,
    polls_left: u32,
    pub(crate) line: Line,
    pub(crate) statistics: ChannelStatistics,
    info: DeviceInfo,
    arenas: Vec<(Arc<Arena>, u64)>,
    /// The regions behind lists of segments.
    regions: OpenRegions,
    pub(crate) wake: Option<Arc<WakeEvent>>,
    pub(crate) bell: Bell,
    pub(crate) controller: Arc<Controller>,
}

impl NvmeChannel {
    pub(crate) fn open(
        controller: &Arc<Controller>,
        geometry: Geometry,
        info: &DeviceInfo,
        wait: WaitMode,
        options: &ChannelOptions,
    ) -> Result<Self> {
        let entries_max = controller.queue_entries_max();
        let slots = (options.depth + SPARES).min(entries_max - 1);
        let entries = match controller.options.queue_entries {
            Some(_) => entries_max,
            None => slots + 1,
        };
        let rings_bytes = Rings::bytes_of(entries);
        let layout = Layout::new(rings_bytes, slots as u16, geometry.piece_bytes_max);
        let queue = line::Number::take(controller)?;
        let memory = QueueMemory::new(&controller.maps, layout.len)?;
        let rings = Rings::new(memory, controller.doorbells.of(queue.number()), entries);
        let mut arenas = Arenas { controller, opened: Vec::new() };
        for arena in &options.arenas {
            arenas.open(arena)?;
        }
        let regions = OpenRegions::new(&controller.maps, &options.arenas)?;
        let bell = Bell::new(controller, wait, queue.number())?;
        let mut channel = Self {
            rings,
            slots: Slots::new(options.depth as u16, (slots - options.depth) as u16),
            is_open: false,
            taken: 0,
            depth: options.depth,
            last_arena: (u32::MAX, 0),
            geometry,
            layout,
            queue: queue.number(),
            stepper: controller.stepper.clone(),
            ended: Vec::with_capacity(options.depth as usize),
            waiting: VecDeque::with_capacity(options.depth as usize),
            free_bounces: (0..BOUNCES).rev().collect(),
            held: VecDeque::with_capacity(options.depth as usize),
            seen: UNSEEN,
            epoch: 0,
            polls_left: POLLS,
            line: Line::new(controller),
            statistics: ChannelStatistics::default(),
            info: info.clone(),
            arenas: arenas.keep(),
            regions,
            wake: options.wake.clone(),
            bell,
            controller: controller.clone(),
        };
        // From here on the channel itself frees the number.
        queue.keep();
        channel.open_queue()?;
        Ok(channel)
    }

    #[inline]
    fn answer(&self, request: &Request) -> Option<std::result::Result<(), IoError>> {
        if let Err(error) = self.info.check(request, self.geometry.size_bytes) {
            return Some(Err(error));
        }
        match request.op {
            // The write is one command. If the controller cannot access its memory, it must also
            // fit into a bounce buffer.
            Op::Write if request.atomic && !self.is_one_command(request) => {
                Some(Err(IoError::INVALID))
            }
            Op::Read | Op::Write => None,
            // Without a volatile cache, completed writes are durable already.
            Op::Flush => (!self.controller.limits.volatile_write_cache).then_some(Ok(())),
            Op::Discard => {
                (!self.controller.limits.deallocate).then_some(Err(IoError::UNSUPPORTED))
            }
            Op::WriteZeroes => {
                (!self.controller.limits.write_zeroes).then_some(Err(IoError::UNSUPPORTED))
            }
        }
    }

    /// Whether a write is one command. It must not be longer than the maximum of a command.
    fn is_one_command(&self, request: &Request) -> bool {
        let arena_id = request.buffer.as_ref().map(|buffer| buffer.arena().id());
        request.len_bytes <= self.layout.bounce_bytes
            || self.arenas.iter().any(|(arena, _)| Some(arena.id()) == arena_id)
    }

    /// Returns the address of a request's data for the controller, if the request is valid and fits
    /// one command, as most do.
    #[inline(always)]
    fn direct(&self, request: &Request) -> Option<u64> {
        let Some(buffer) = &request.buffer else { return None };
        let (len, at) = (request.len_bytes, request.buffer_offset_bytes);
        let buffer_len = buffer.len() as u64;
        let is_sound = matches!(request.op, Op::Read | Op::Write)
            && !request.atomic
            // The length is not 0, and at most that of one command.
            && len.wrapping_sub(1) < self.geometry.piece_bytes_max
            && (request.offset_bytes | u64::from(len)) & self.geometry.block_mask() == 0
            && u64::from(len) <= self.geometry.size_bytes
            && request.offset_bytes <= self.geometry.size_bytes - u64::from(len)
            && at & (MEMORY_ALIGNMENT_BYTES - 1) == 0
            && u64::from(at) + u64::from(len) <= buffer_len;
        let is_near = self.is_open && self.last_arena.0 == buffer.arena().id();
        (is_sound && is_near)
            .then(|| self.last_arena.1 + u64::from(buffer.block().0) * buffer_len + u64::from(at))
    }

    #[inline(always)]
    fn submit_direct(
        &mut self,
        request: Request,
        address: u64,
    ) -> std::result::Result<(), Request> {
        let Some(lead) = self.slots.next_lead() else { return Err(request) };
        let (opcode, flags) = data_opcode(&request);
        self.push_data(lead, opcode, flags, request.offset_bytes, request.len_bytes, address);
        self.slots.begin_whole(lead, request, self.epoch);
        self.taken += 1;
        Ok(())
    }

    #[cold]
    fn submit_other(&mut self, request: Request) -> std::result::Result<(), Request> {
        if let Some(result) = self.answer(&request) {
            self.taken += 1;
            self.statistics.count(request.op, request.len_bytes, result);
            self.ended.push(request.complete(result));
            return Ok(());
        }
        let lead = self.slots.begin(request)?;
        self.taken += 1;
        if self.is_open {
            self.start(lead);
        } else {
            self.hold(lead);
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn iova_of(&mut self, arena_id: u32) -> Option<u64> {
        if self.last_arena.0 == arena_id {
            return Some(self.last_arena.1);
        }
        let (_, iova) = *self.arenas.iter().find(|(arena, _)| arena.id() == arena_id)?;
        self.last_arena = (arena_id, iova);
        Some(iova)
    }

    /// Pushes the first command of the request in `lead`, and more if the request needs more.
    #[inline]
    pub(crate) fn start(&mut self, lead: u16) {
        let slot = self.slots.get(lead);
        let Some(request) = &slot.request else { return };
        if let (Op::Read | Op::Write, Some(buffer)) = (request.op, &request.buffer)
            && request.len_bytes <= self.geometry.piece_bytes_max
        {
            let arena_id = buffer.arena().id();
            let in_arena = buffer.block().0 as u64 * buffer.len() as u64
                + u64::from(request.buffer_offset_bytes);
            let (opcode, flags) = data_opcode(request);
            let (offset, len) = (request.offset_bytes, request.len_bytes);
            if let Some(iova) = self.iova_of(arena_id) {
                let slot = self.slots.get_mut(lead);
                slot.stage = Stage::Active;
                slot.is_whole = true;
                slot.epoch = self.epoch;
                self.push_data(lead, opcode, flags, offset, len, iova + in_arena);
                return;
            }
            if let Some(prps) = self.prps_of_list(lead, lead, 0, len) {
                let slot = self.slots.get_mut(lead);
                slot.stage = Stage::Active;
                slot.is_whole = true;
                slot.epoch = self.epoch;
                let words = self.words_of(lead, opcode, flags, offset, len, prps);
                self.rings.push(words);
                return;
            }
        }
        let slot = self.slots.get_mut(lead);
        (slot.is_whole, slot.is_copied) = (false, false);
        (slot.sent_bytes, slot.commands, slot.error) = (0, 0, None);
        self.go_on(lead);
    }

    #[inline]
    fn push_data(&mut self, cid: u16, opcode: u8, flags: u32, offset: u64, len: u32, address: u64) {
        let words = self.data_words(cid, opcode, flags, offset, len, address);
        self.rings.push(words);
    }

    #[inline(always)]
    pub(crate) fn data_words(
        &mut self,
        cid: u16,
        opcode: u8,
        flags: u32,
        offset: u64,
        len: u32,
        address: u64,
    ) -> Words {
        let prp2 = match second_prp(address, len) {
            Some(second) => second,
            None => self.list_of(cid, address, len),
        };
        self.words_of(cid, opcode, flags, offset, len, (address, prp2))
    }

    #[inline(always)]
    fn words_of(
        &self,
        cid: u16,
        opcode: u8,
        flags: u32,
        offset: u64,
        len: u32,
        (prp1, prp2): (u64, u64),
    ) -> Words {
        let blocks = (len >> self.geometry.block_shift) - 1;
        Words {
            head: self.geometry.head(cid, opcode),
            prp1,
            prp2,
            first: offset >> self.geometry.block_shift,
            second: u64::from(blocks | flags),
        }
    }

    /// Writes the PRP list of a command. Returns the list's address for the controller.
    #[inline(never)]
    fn list_of(&mut self, cid: u16, address: u64, len: u32) -> u64 {
        let list_at = self.layout.list(cid);
        let memory = self.rings.memory();
        write_list(memory.bytes(), list_at, address, len);
        memory.iova() + list_at as u64
    }

    /// Returns the PRP entries for a part of the list of segments in `lead`, for the command `cid`.
    /// `None` if the controller cannot access the segments, or if they do not lie page by page.
    fn prps_of_list(&mut self, cid: u16, lead: u16, at: u32, len: u32) -> Option<(u64, u64)> {
        let request = self.slots.get(lead).request.as_ref()?;
        let buffer = request.buffer.as_ref().filter(|buffer| buffer.is_list())?;
        let (regions, arena_id) = (&self.regions, buffer.arena().id());
        let from = (request.buffer_offset_bytes + at) as usize;
        let pieces = buffer.pieces(from, len as usize).map(|piece| {
            let iova = regions.iova_of(arena_id, piece)?;
            Some((iova, piece.len_bytes as u64))
        });
        let memory = self.rings.memory();
        let iova = memory.iova();
        prps_of(memory.bytes(), iova, self.layout.list_place(cid), pieces)
    }

    /// Pushes as much as possible of a request that needs several commands, or whose data must be
    /// copied, or that has no data.
    #[cold]
    fn go_on(&mut self, lead: u16) {
        loop {
            let slot = self.slots.get(lead);
            let Some(request) = &slot.request else { return };
            let (op, len) = (request.op, request.len_bytes.max(1));
            if slot.error.is_some() || slot.sent_bytes >= len {
                return;
            }
            if !self.is_open {
                self.slots.get_mut(lead).error = Some(IoError::CANCELED);
                return;
            }
            let at = slot.sent_bytes;
            let part = (len - at).min(self.geometry.piece_bytes_max);
            let arena_id = request.buffer.as_ref().map(|buffer| buffer.arena().id());
            let Some(cid) = self.slots.one_more(lead) else { return };
            let place = if !matches!(op, Op::Read | Op::Write) {
                Place::None
            } else if let Some(iova) = arena_id.and_then(|id| self.iova_of(id)) {
                Place::Arena(iova)
            } else if let Some(prps) = self.prps_of_list(cid, lead, at, part) {
                Place::List(prps)
            } else if let Some(bounce) = self.free_bounces.pop() {
                Place::Bounce(bounce)
            } else {
                return self.wait_for_bounce(lead, cid);
            };
            self.push_part(lead, cid, place);
        }
    }

    /// Makes a request wait for a bounce buffer, and frees the slot `cid` that was meant for its
    /// next command.
    fn wait_for_bounce(&mut self, lead: u16, cid: u16) {
        self.slots.rest(cid);
        let slot = self.slots.get_mut(lead);
        if slot.commands == 0 && !slot.is_waiting {
            slot.is_waiting = true;
            self.waiting.push_back(lead);
        }
    }

    /// Pushes one command of a request, for the next part of its data.
    fn push_part(&mut self, lead: u16, cid: u16, place: Place) {
        let at = self.slots.get(lead).sent_bytes;
        let geometry = self.geometry;
        let head_of = |opcode: u8| geometry.head(cid, opcode);
        let slot = self.slots.get_mut(lead);
        let Some(request) = &mut slot.request else { return };
        let rest = request.len_bytes - at;
        let offset = request.offset_bytes + u64::from(at);
        let first_block = offset >> geometry.block_shift;
        let mut len = rest.min(geometry.piece_bytes_max);
        let mut words = Words { head: 0, prp1: 0, prp2: 0, first: first_block, second: 0 };
        let (mut data, mut bounce) = (None, NO_BOUNCE);
        match request.op {
            Op::Flush => {
                words.head = head_of(io::FLUSH);
                words.first = 0;
                // The command has no length; 1 marks it as sent.
                len = 1;
            }
            Op::Discard => {
                len = rest;
                let range =
                    Range { attributes: 0, blocks: len >> geometry.block_shift, first_block };
                let list_at = self.layout.list(cid);
                self.rings.memory().bytes().copy_from(list_at, &range.encode());
                words.head = head_of(io::DATASET_MANAGEMENT);
                words.prp1 = self.rings.memory().iova() + list_at as u64;
                words.first = u64::from(DEALLOCATE) << 32;
            }
            Op::WriteZeroes => {
                words.head = head_of(io::WRITE_ZEROES);
                words.second = u64::from((len >> geometry.block_shift) - 1);
            }
            Op::Read | Op::Write => {
                let in_buffer = request.buffer_offset_bytes + at;
                let (opcode, flags) = data_opcode(request);
                let Some(buffer) = &mut request.buffer else { return };
                let at = match place {
                    Place::None => return,
                    Place::List(prps) => At::Pages(prps),
                    Place::Arena(iova) => At::One(
                        iova + buffer.block().0 as u64 * buffer.len() as u64 + u64::from(in_buffer),
                    ),
                    Place::Bounce(number) => {
                        bounce = number;
                        if !std::mem::replace(&mut slot.is_copied, true) {
                            self.statistics.copied += 1;
                        }
                        len = len.min(self.layout.bounce_bytes);
                        let bounce_at = self.layout.bounce(bounce);
                        let memory = self.rings.memory();
                        if request.op == Op::Write {
                            let (from, len) = (in_buffer as usize, len as usize);
                            buffer.copy_out(from, memory.bytes(), bounce_at, len);
                        }
                        At::One(memory.iova() + bounce_at as u64)
                    }
                };
                data = Some((opcode, flags, at));
            }
        }
        slot.sent_bytes += len;
        slot.commands += 1;
        let epoch = self.epoch;
        let command = self.slots.get_mut(cid);
        command.stage = Stage::Active;
        command.is_whole = false;
        (command.lead, command.bounce, command.epoch) = (lead, bounce, epoch);
        (command.at_bytes, command.len_bytes) = (at, len);
        match data {
            Some((opcode, flags, At::One(address))) => {
                self.push_data(cid, opcode, flags, offset, len, address);
            }
            Some((opcode, flags, At::Pages(prps))) => {
                let words = self.words_of(cid, opcode, flags, offset, len, prps);
                self.rings.push(words);
            }
            None => self.rings.push(words),
        }
    }

    #[inline]
    pub(crate) fn turn(&mut self, completions: &mut Vec<Completion>) {
        if !self.ended.is_empty() {
            self.taken -= self.ended.len() as u32;
            completions.append(&mut self.ended);
        }
        self.rings.kick();
        self.step();
        let found = self.reap(completions);
        if !self.waiting.is_empty() {
            self.resume();
        }
        self.look_after(found);
    }

    #[inline]
    pub(crate) fn step(&mut self) {
        if let Some(stepper) = &self.stepper {
            self.bell.due = stepper.step(self.queue).due;
        }
    }

    /// Checks the controller and the clock from time to time. `found` says that there was a
    /// completion.
    #[inline]
    pub(crate) fn look_after(&mut self, found: bool) {
        let polls = if found { 1 } else { EMPTY_POLL };
        self.polls_left = self.polls_left.saturating_sub(polls);
        if self.polls_left == 0 || self.controller.hub.state() != self.seen {
            self.tend();
            self.polls_left = if self.line.is_settled() { POLLS } else { 1 };
        }
    }

    /// Takes all completions and notifies the controller. Returns whether there was one.
    #[inline]
    fn reap(&mut self, completions: &mut Vec<Completion>) -> bool {
        let found = self.take_all(completions);
        if found {
            self.line.has_progress = true;
            self.rings.release();
        }
        found
    }

    #[inline]
    pub(crate) fn take_all(&mut self, completions: &mut Vec<Completion>) -> bool {
        let mut found = false;
        while let Some(taken) = self.rings.take() {
            found = true;
            let Some(slot) = self.slots.active(taken.cid) else {
                // The command was completed twice, or was never sent.
                continue;
            };
            if slot.is_whole {
                let is_late = slot.stage == Stage::Aborting;
                let result = match taken.status.is_success() {
                    true => Ok(()),
                    false => Err(error_of_command(taken.status, is_late)),
                };
                self.finish(taken.cid, result, completions);
            } else {
                self.part_ended(taken.cid, taken.status, completions);
            }
        }
        found
    }

    #[inline]
    pub(crate) fn finish(
        &mut self,
        lead: u16,
        result: std::result::Result<(), IoError>,
        completions: &mut Vec<Completion>,
    ) {
        let Some(request) = self.slots.end(lead) else { return };
        self.statistics.count(request.op, request.len_bytes, result);
        self.taken -= 1;
        completions.push(request.complete(result));
    }

    #[cold]
    fn part_ended(&mut self, cid: u16, status: Status, completions: &mut Vec<Completion>) {
        let is_late = self.slots.get(cid).stage == Stage::Aborting;
        let lead = self.release_part(cid, status.is_success());
        let slot = self.slots.get_mut(lead);
        if !status.is_success() {
            slot.error.get_or_insert(error_of_command(status, is_late));
        }
        self.go_on(lead);
        self.finish_if_over(lead, completions);
    }

    /// Returns a request of several commands to the caller once all of them have ended.
    fn finish_if_over(&mut self, lead: u16, completions: &mut Vec<Completion>) {
        let slot = self.slots.get(lead);
        if slot.commands == 0 && !slot.is_waiting {
            let result = slot.error.map_or(Ok(()), Err);
            self.finish(lead, result, completions);
        }
    }

    /// Ends a command that the controller has finished with but did not complete.
    pub(crate) fn end_command(
        &mut self,
        cid: u16,
        error: IoError,
        completions: &mut Vec<Completion>,
    ) {
        if self.slots.get(cid).is_whole {
            return self.finish(cid, Err(error), completions);
        }
        let lead = self.release_part(cid, false);
        self.slots.get_mut(lead).error.get_or_insert(error);
        self.finish_if_over(lead, completions);
    }

    /// Frees the resources that a command of a request used. Returns the request's lead.
    pub(crate) fn release_part(&mut self, cid: u16, copy_back: bool) -> u16 {
        let slot = self.slots.get(cid);
        let (lead, bounce, at, len) = (slot.lead, slot.bounce, slot.at_bytes, slot.len_bytes);
        if bounce != NO_BOUNCE {
            let bounce_at = self.layout.bounce(bounce);
            let request = self.slots.get_mut(lead).request.as_mut();
            if let Some(request) = request.filter(|it| it.op == Op::Read && copy_back)
                && let Some(buffer) = &mut request.buffer
            {
                let to = (request.buffer_offset_bytes + at) as usize;
                let memory = self.rings.memory().bytes();
                buffer.copy_in(to, memory, bounce_at, len as usize);
            }
            self.free_bounces.push(bounce);
        }
        let slot = self.slots.get_mut(cid);
        slot.bounce = NO_BOUNCE;
        self.slots.rest(cid);
        self.slots.get_mut(lead).commands -= 1;
        lead
    }

    #[cold]
    fn resume(&mut self) {
        if !self.is_open {
            return;
        }
        for _ in 0..self.waiting.len() {
            if self.free_bounces.is_empty() {
                return;
            }
            let Some(lead) = self.waiting.pop_front() else { return };
            self.slots.get_mut(lead).is_waiting = false;
            self.go_on(lead);
        }
    }

    pub(crate) fn forget_waiting(&mut self, error: IoError, completions: &mut Vec<Completion>) {
        while let Some(lead) = self.waiting.pop_front() {
            self.slots.get_mut(lead).is_waiting = false;
            self.finish(lead, Err(error), completions);
        }
    }

    pub(crate) fn has_commands(&self) -> bool {
        (0..self.slots.len())
            .any(|slot| matches!(self.slots.get(slot).stage, Stage::Active | Stage::Aborting))
    }
}

#[derive(Clone, Copy)]
enum Place {
    None,
    /// A block of an arena that is open at this address.
    Arena(u64),
    /// The memory named by these PRP entries.
    List((u64, u64)),
    Bounce(u16),
}

/// The location of the data of one command, as the controller sees it.
#[derive(Clone, Copy)]
enum At {
    One(u64),
    Pages((u64, u64)),
}

/// Returns the error of a failed command. `is_late` says that the controller was asked to abort it.
#[cold]
fn error_of_command(status: Status, is_late: bool) -> IoError {
    match error_of(status) {
        IoError::CANCELED if is_late => IoError::TIMED_OUT,
        error => error,
    }
}

/// Returns the opcode and the bits of dword 12 for a read or write.
#[inline]
pub(crate) fn data_opcode(request: &Request) -> (u8, u32) {
    match (request.op, request.force_unit_access) {
        (Op::Read, _) => (io::READ, 0),
        (_, false) => (io::WRITE, 0),
        (_, true) => (io::WRITE, FORCE_UNIT_ACCESS),
    }
}

/// The arenas opened for a channel that is being created. They are closed again if that fails.
struct Arenas<'a> {
    controller: &'a Controller,
    opened: Vec<(Arc<Arena>, u64)>,
}

impl Arenas<'_> {
    fn open(&mut self, arena: &Arc<Arena>) -> Result<()> {
        let known = self.opened.iter().any(|(opened, _)| opened.id() == arena.id());
        if !known && self.controller.maps.takes(arena) {
            let iova = self.controller.maps.open(arena)?;
            self.opened.push((arena.clone(), iova));
        }
        Ok(())
    }

    fn keep(mut self) -> Vec<(Arc<Arena>, u64)> {
        std::mem::take(&mut self.opened)
    }
}

impl Drop for Arenas<'_> {
    fn drop(&mut self) {
        for (arena, _) in &self.opened {
            self.controller.maps.close(arena);
        }
    }
}

impl IoChannel for NvmeChannel {
    #[inline]
    fn submit(&mut self, request: Request) -> std::result::Result<(), Request> {
        if self.taken >= self.depth {
            return Err(request);
        }
        match self.direct(&request) {
            Some(address) => self.submit_direct(request, address),
            None => self.submit_other(request),
        }
    }

    #[inline]
    fn kick(&mut self) {
        self.rings.kick();
        self.bell.event.tell(self.taken, &mut self.statistics);
    }

    #[inline]
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let found = self.look(completions);
        if found == 0 {
            self.bell.event.settle(self.taken, &mut self.statistics);
        }
        self.bell.event.tell(self.taken, &mut self.statistics);
        found
    }

    #[inline]
    fn look(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        self.turn(completions);
        completions.len() - before
    }

    fn arrival(&self) -> Arrival {
        if self.bell.is_polled() { Arrival::Polled } else { Arrival::Called }
    }

    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        self.wait_for(completions, options)
    }

    fn in_flight(&self) -> u32 {
        self.taken
    }

    fn statistics(&self) -> ChannelStatistics {
        self.statistics
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        self.bell.event.descriptor(self.taken).map(Some)
    }
}

impl Drop for NvmeChannel {
    fn drop(&mut self) {
        self.close();
        for (arena, _) in &self.arenas {
            self.controller.maps.close(arena);
        }
    }
}
