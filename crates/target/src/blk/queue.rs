//! A queue of a guest's disk: from its ring to a channel, and back.
//!
//! Invariants:
//! - a head is busy from the moment it is taken from the ring until it is given back: exactly then its slot says so, and at most one request
//!   with its number as tag is in the channel or in `parked`;
//! - a slot's list is in the slot, or under way with the slot's request.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use qpair_block::{
    Arena, Buffer, ChannelOptions, Completion, ErrorKind, IoChannel, IoError, Op, Request, Result,
    Segment,
};
use qpair_pci::IrqEvent;
use qpair_virtio::blk::{Header, ID_BYTES, Range, SECTOR_SHIFT, Status, Verb};
use qpair_virtio::ring::{Area, Areas, Broken, DeviceRing, Layout, Segment as Named, walk};

use super::inflight::Inflight;
use crate::disk::Disk;
use crate::memory::{GuestMemory, Place};
use crate::session::Call;

/// Segments of a request's data that the guest is told of. Some front ends have rings of 128 entries, and a request takes two more.
pub(crate) const SEG_MAX: u32 = 126;
/// Segments of a request's data at most: those, and more at the ends of regions.
const SEGMENTS_MAX: usize = 256;
/// Heads taken in one turn, so that other queues have theirs.
const TURN_MAX: usize = 64;
/// Blocks that requests are copied through whose segments do not lie as the device wants them, and bytes of each.
const BOUNCES: u32 = 4;
const BOUNCE_BYTES_MAX: u32 = 1 << 20;

/// What a queue starts with.
#[derive(Debug)]
pub(crate) struct QueueOptions {
    pub(crate) size: u16,
    /// Descriptors, what is available, what was used: addresses of the front end's.
    pub(crate) addresses: [u64; 3],
    /// Heads taken so far, modulo 2^16.
    pub(crate) taken: u16,
    pub(crate) event_index: bool,
    pub(crate) indirect: bool,
    pub(crate) memory: Arc<GuestMemory>,
    pub(crate) kick: Option<OwnedFd>,
    pub(crate) call: Call,
    /// Signalled when the ring makes no sense.
    pub(crate) error: Option<Arc<IrqEvent>>,
    pub(crate) inflight: Option<Inflight>,
    pub(crate) disk: Arc<Disk>,
    /// Writes may be answered before they are durable.
    pub(crate) write_back: Arc<AtomicBool>,
    pub(crate) read_only: bool,
}

/// What a queue was doing, when it stopped.
#[derive(Debug)]
pub(crate) struct Stopped {
    /// Heads taken so far, modulo 2^16.
    pub(crate) taken: u16,
    pub(crate) kick: Option<OwnedFd>,
    /// The ring made no sense.
    pub(crate) is_broken: bool,
}

/// What is known of a busy head.
#[derive(Clone, Copy, Debug, Default)]
struct Busy {
    verb: Option<Op>,
    /// Where the status goes.
    status: Option<Place>,
    /// Bytes that the device writes into the guest's memory for it, the status with them.
    written: u32,
    offset_bytes: u64,
    len_bytes: u32,
    /// Bytes of it that are done.
    done_bytes: u32,
    bounced: bool,
}

impl Busy {
    /// How much of what is left goes at once.
    fn part(&self, op: Op, transfer_bytes_max: u32) -> u32 {
        let left = self.len_bytes - self.done_bytes;
        if matches!(op, Op::Read | Op::Write) { left.min(transfer_bytes_max) } else { left }
    }
}

#[derive(Debug, Default)]
struct Slot {
    busy: Option<Busy>,
    list: Option<Buffer>,
}

pub(crate) struct Queue {
    options: QueueOptions,
    layout: Layout,
    places: [Place; 3],
    ring: DeviceRing,
    channel: Box<dyn IoChannel>,
    slots: Box<[Slot]>,
    busy: u32,
    /// Requests that the channel had no room for.
    parked: VecDeque<Request>,
    bounces: Arc<Arena>,
    /// Heads that wait for a block to be copied through.
    waiting: VecDeque<u16>,
    completions: Vec<Completion>,
    named: Vec<Named>,
    segments: Vec<Segment>,
    is_broken: bool,
    has_given: bool,
}

impl Queue {
    /// Opens a channel on the calling thread, and goes on with what was under way before.
    ///
    /// # Errors
    /// `Invalid` for rings that do not lie in the guest's memory; what the device says.
    pub(crate) fn start(options: QueueOptions) -> Result<Self> {
        let QueueOptions { size, addresses, ref memory, ref disk, .. } = options;
        let wrong = |what: &str| qpair_block::Error::new(ErrorKind::Invalid, what.to_owned());
        let layout = Layout::new(size).ok_or_else(|| wrong("a ring whose size is none"))?;
        let lens = [layout.descriptors_bytes(), layout.available_bytes(), layout.used_bytes()];
        let mut places = [None; 3];
        for (number, place) in places.iter_mut().enumerate() {
            let (address, unit) = (addresses[number], [16, 2, 4][number]);
            // Without the event index its words may not be there.
            let event_bytes = if number == 0 || options.event_index { 0 } else { 2 };
            let len_bytes = (lens[number] - event_bytes) as u64;
            *place = memory.find_user(address, len_bytes).filter(|_| address.is_multiple_of(unit));
        }
        let [Some(descriptors), Some(available), Some(used)] = places else {
            return Err(wrong("a ring that is not in the guest's memory"));
        };
        let places = [descriptors, available, used];
        let info = disk.device.info();
        let arena = memory.arena(size.into(), SEGMENTS_MAX);
        let bounce_bytes = info.transfer_bytes_max.min(BOUNCE_BYTES_MAX);
        let bounce_bytes = (bounce_bytes as usize + 1).next_power_of_two() / 2;
        let bounces = Arena::new(bounce_bytes.max(512), BOUNCES, info.small_arena_options())
            .map_err(|cause| qpair_block::Error::os(cause, "memory to copy requests through"))?;
        let channel = disk.device.open_channel(&ChannelOptions {
            depth: u32::from(size).min(info.depth_max),
            arenas: vec![arena.clone(), bounces.clone()],
            wake: None,
        })?;
        let slots = (0..size).map(|_| Slot { busy: None, list: arena.lease() }).collect();
        let memory = options.memory.clone();
        let areas = areas_of(&memory, places);
        let mut queue = Self {
            ring: DeviceRing::resume(layout, areas, options.taken, options.event_index),
            layout,
            places,
            channel,
            slots,
            busy: 0,
            parked: VecDeque::new(),
            bounces,
            waiting: VecDeque::new(),
            completions: Vec::with_capacity(size.into()),
            named: Vec::with_capacity(SEGMENTS_MAX),
            segments: Vec::with_capacity(SEGMENTS_MAX),
            is_broken: false,
            has_given: false,
            options,
        };
        queue.recover(&memory, areas);
        queue.ring.be_quiet(areas);
        Ok(queue)
    }

    /// Goes on with what a target before had taken and not given back.
    fn recover(&mut self, memory: &GuestMemory, areas: Areas<'_>) {
        let Some(inflight) = &mut self.options.inflight else { return };
        let used = self.ring.used();
        let found = inflight.recover(used);
        let taken = used.wrapping_add(found.len() as u16);
        self.ring = DeviceRing::resume(self.layout, areas, taken, self.options.event_index);
        for head in found {
            self.begin(head, memory, areas);
        }
    }

    pub(crate) fn kick_fd(&self) -> Option<BorrowedFd<'_>> {
        self.options.kick.as_ref().map(AsFd::as_fd)
    }

    /// Descriptor that polls readable when the channel may have something; `None`: nothing of it is ever waited for.
    pub(crate) fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        self.channel.completion_fd()
    }

    /// A worker woke up for it.
    pub(crate) fn count_kick(&self) {
        self.options.disk.counters.kicks.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy > 0
    }

    /// Takes what is available, and gives back what is done. Whether there was something.
    #[inline]
    pub(crate) fn turn(&mut self) -> bool {
        let memory = self.options.memory.clone();
        let areas = areas_of(&memory, self.places);
        let mut taken = 0;
        while !self.is_broken && taken < TURN_MAX {
            match self.ring.take(areas) {
                Ok(Some(head)) => {
                    taken += 1;
                    self.begin(head, &memory, areas);
                }
                Ok(None) => break,
                Err(Broken) => self.give_up(),
            }
        }
        let given = self.settle(areas);
        taken > 0 || given
    }

    /// Gives back what is done, and takes nothing. Whether there was something.
    fn settle(&mut self, areas: Areas<'_>) -> bool {
        if self.busy > 0 {
            self.submit_parked();
            self.channel.kick();
            let mut completions = std::mem::take(&mut self.completions);
            self.channel.poll(&mut completions);
            for completion in completions.drain(..) {
                self.end(completion, areas);
            }
            self.completions = completions;
        }
        self.publish(areas)
    }

    fn publish(&mut self, areas: Areas<'_>) -> bool {
        if !std::mem::take(&mut self.has_given) {
            return false;
        }
        let wants_call = self.ring.publish(areas);
        if let Some(inflight) = &mut self.options.inflight {
            inflight.published(self.ring.used());
        }
        if wants_call {
            let call = self.options.call.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(call) = &*call {
                self.options.disk.counters.calls.fetch_add(1, Ordering::Relaxed);
                call.signal();
            }
        }
        true
    }

    /// Asks to be kicked. False: there is something to do already, or nobody would kick.
    pub(crate) fn listen(&mut self) -> bool {
        if self.options.kick.is_none() {
            return false;
        }
        if self.busy == 0 {
            // A completion descriptor may stay readable until a poll has found nothing.
            self.channel.poll(&mut self.completions);
        }
        let memory = self.options.memory.clone();
        self.is_broken || !self.ring.listen(areas_of(&memory, self.places))
    }

    /// Asks not to be kicked any more.
    pub(crate) fn be_quiet(&mut self) {
        let memory = self.options.memory.clone();
        self.ring.be_quiet(areas_of(&memory, self.places));
    }

    /// Waits for what is under way, and lets go of the guest's memory.
    pub(crate) fn stop(mut self) -> Stopped {
        let memory = self.options.memory.clone();
        let areas = areas_of(&memory, self.places);
        while self.busy > 0 {
            if !self.settle(areas) {
                std::thread::yield_now();
            }
        }
        self.publish(areas);
        let Self { ring, options, is_broken, .. } = self;
        Stopped { taken: ring.taken(), kick: options.kick, is_broken }
    }

    /// Begins the request of a head.
    fn begin(&mut self, head: u16, memory: &GuestMemory, areas: Areas<'_>) {
        if self.slots[usize::from(head)].busy.is_some() {
            return self.give_up();
        }
        if let Some(inflight) = &mut self.options.inflight {
            inflight.take(head);
        }
        self.slots[usize::from(head)].busy = Some(Busy::default());
        self.busy += 1;
        self.options.disk.counters.requests.fetch_add(1, Ordering::Relaxed);
        if self.read(head, memory, areas).is_err() {
            // It is not given back: nobody knows where its status would go.
            self.slots[usize::from(head)].busy = None;
            self.busy -= 1;
            self.give_up();
        }
    }

    /// The ring makes no sense: nothing more is taken from it.
    #[cold]
    fn give_up(&mut self) {
        self.is_broken = true;
        if let Some(error) = &self.options.error {
            error.signal();
        }
    }

    /// Reads a head's chain, and submits or answers its request.
    fn read(
        &mut self,
        head: u16,
        memory: &GuestMemory,
        areas: Areas<'_>,
    ) -> std::result::Result<(), Broken> {
        let (mut named, mut segments) =
            (std::mem::take(&mut self.named), std::mem::take(&mut self.segments));
        named.clear();
        let indirect = self.options.indirect;
        let read = |address, into: &mut [u8]| indirect && memory.read(address, into);
        let walked = walk(self.layout, areas.descriptors, head, read, &mut named);
        let found = walked.and_then(|()| Chain::read(memory, &mut named, &mut segments));
        let result = found.map(|chain| {
            if let Some(busy) = &mut self.slots[usize::from(head)].busy {
                busy.status = Some(chain.status);
                busy.written = 1;
            }
            if let Err(status) = self.carry_out(head, &chain, &segments) {
                self.answer(head, status, areas);
            }
        });
        (self.named, self.segments) = (named, segments);
        result
    }

    /// Submits a request; or says how it ended.
    fn carry_out(
        &mut self,
        head: u16,
        chain: &Chain,
        segments: &[Segment],
    ) -> std::result::Result<(), Status> {
        let header = chain.header.ok_or(Status::IoError)?;
        let op = match header.verb.ok_or(Status::Unsupported)? {
            Verb::In => Op::Read,
            Verb::Out => Op::Write,
            Verb::Flush => Op::Flush,
            Verb::Discard => Op::Discard,
            Verb::WriteZeroes => Op::WriteZeroes,
            Verb::GetId => {
                let mut id = [0; ID_BYTES];
                let serial = self.options.disk.serial.as_bytes();
                let len = serial.len().min(ID_BYTES);
                id[..len].copy_from_slice(&serial[..len]);
                let mut list = self.take_list(head, segments)?;
                let len = list.len().min(ID_BYTES);
                list.copy_from(0, &id[..len]);
                self.slots[usize::from(head)].list = Some(list);
                self.note(head, |busy| busy.written += len as u32);
                return Err(Status::Ok);
            }
        };
        if self.options.read_only && op != Op::Read && op != Op::Flush {
            return Err(Status::IoError);
        }
        let mut range = Range { sector: header.sector, sectors: 0, flags: 0 };
        if matches!(op, Op::Discard | Op::WriteZeroes) {
            range = chain.range.ok_or(Status::IoError)?;
            let known = if op == Op::WriteZeroes { Range::UNMAP } else { 0 };
            if range.flags & !known != 0 {
                return Err(Status::Unsupported);
            }
            if range.sectors == 0 {
                return Err(Status::Ok);
            }
        }
        let to_bytes = |sectors: u64| sectors.checked_mul(1 << SECTOR_SHIFT).ok_or(Status::IoError);
        let len_bytes = match op {
            Op::Read | Op::Write => chain.data_bytes,
            Op::Flush => 0,
            Op::Discard | Op::WriteZeroes => to_bytes(range.sectors.into())?,
        };
        let is_wrong_way = matches!((op, chain.is_in), (Op::Read, false) | (Op::Write, true));
        if is_wrong_way && len_bytes > 0 {
            return Err(Status::IoError);
        }
        let moves = matches!(op, Op::Read | Op::Write);
        if moves && len_bytes == 0 {
            return Err(Status::Ok);
        }
        let offset_bytes = if op == Op::Flush { 0 } else { to_bytes(range.sector)? };
        let len_bytes = u32::try_from(len_bytes).map_err(|_| Status::IoError)?;
        let list = if moves { Some(self.take_list(head, segments)?) } else { None };
        let written = if op == Op::Read { len_bytes } else { 0 };
        self.note(head, |busy| {
            busy.verb = Some(op);
            (busy.offset_bytes, busy.len_bytes, busy.done_bytes) = (offset_bytes, len_bytes, 0);
            busy.written += written;
        });
        let info = self.options.disk.device.info();
        let bounced = list.as_ref().is_some_and(|list| !info.takes(list, 0, len_bytes));
        if bounced {
            self.note(head, |busy| busy.bounced = true);
            self.options.disk.counters.bounced.fetch_add(1, Ordering::Relaxed);
        }
        self.slots[usize::from(head)].list = list.or(self.slots[usize::from(head)].list.take());
        self.go_on(head);
        Ok(())
    }

    fn note(&mut self, head: u16, change: impl FnOnce(&mut Busy)) {
        if let Some(busy) = &mut self.slots[usize::from(head)].busy {
            change(busy);
        }
    }

    /// The slot's list, filled.
    fn take_list(
        &mut self,
        head: u16,
        segments: &[Segment],
    ) -> std::result::Result<Buffer, Status> {
        let slot = &mut self.slots[usize::from(head)];
        let mut list = slot.list.take().ok_or(Status::IoError)?;
        if list.fill(segments.iter().copied()).is_err() {
            slot.list = Some(list);
            return Err(Status::IoError);
        }
        Ok(list)
    }

    /// Submits the next part of a request: as much as the device takes at once, or as a block holds that it is copied through.
    fn go_on(&mut self, head: u16) {
        let info = self.options.disk.device.info();
        let slot = &mut self.slots[usize::from(head)];
        let Some(busy) = slot.busy else { return };
        let Some(op) = busy.verb else { return };
        let mut part = busy.part(op, info.transfer_bytes_max);
        let (mut buffer, mut buffer_offset_bytes) = (None, 0);
        if busy.bounced {
            let Some(mut block) = self.bounces.lease() else {
                self.waiting.push_back(head);
                return;
            };
            part = part.min(block.len() as u32);
            if let (Op::Write, Some(list)) = (op, &mut slot.list) {
                list.copy_out(busy.done_bytes as usize, block.shared(), 0, part as usize);
            }
            buffer = Some(block);
        } else if matches!(op, Op::Read | Op::Write) {
            (buffer, buffer_offset_bytes) = (slot.list.take(), busy.done_bytes);
        }
        // What is to be durable before it is answered.
        let force_unit_access = op == Op::Write
            && info.volatile_write_cache
            && !self.options.write_back.load(Ordering::Relaxed);
        self.submit(Request {
            op,
            force_unit_access,
            offset_bytes: busy.offset_bytes + u64::from(busy.done_bytes),
            len_bytes: part,
            buffer_offset_bytes,
            buffer,
            tag: head.into(),
        });
    }

    fn submit(&mut self, request: Request) {
        if !self.parked.is_empty() {
            self.parked.push_back(request);
        } else if let Err(request) = self.channel.submit(request) {
            self.parked.push_back(request);
        }
    }

    fn submit_parked(&mut self) {
        while let Some(request) = self.parked.pop_front() {
            if let Err(request) = self.channel.submit(request) {
                self.parked.push_front(request);
                return;
            }
        }
    }

    /// Takes in the end of a request, or of a part of it.
    fn end(&mut self, completion: Completion, areas: Areas<'_>) {
        let Completion { tag, op, buffer, result } = completion;
        let head = tag as u16;
        let Some(Some(mut busy)) = self.slots.get(usize::from(head)).map(|slot| slot.busy) else {
            return;
        };
        let mut part = busy.part(op, self.options.disk.device.info().transfer_bytes_max);
        if busy.bounced {
            if let Some(mut block) = buffer {
                part = part.min(block.len() as u32);
                if let (Op::Read, Ok(()), Some(list)) =
                    (op, result, &mut self.slots[usize::from(head)].list)
                {
                    list.copy_in(busy.done_bytes as usize, block.shared(), 0, part as usize);
                }
            }
            if let Some(next) = self.waiting.pop_front() {
                self.go_on(next);
            }
        } else if buffer.is_some() {
            self.slots[usize::from(head)].list = buffer;
        }
        busy.done_bytes += part;
        self.slots[usize::from(head)].busy = Some(busy);
        if result.is_ok() && busy.done_bytes < busy.len_bytes {
            return self.go_on(head);
        }
        self.options.disk.counters.count(op, busy.len_bytes, result.is_ok());
        self.answer(head, status_of(result), areas);
    }

    /// Gives a head back.
    fn answer(&mut self, head: u16, status: Status, areas: Areas<'_>) {
        let Some(busy) = self.slots[usize::from(head)].busy.take() else { return };
        self.busy -= 1;
        if let Some(place) = busy.status {
            let (bytes, at) = self.options.memory.bytes(place);
            bytes.store_u8(at, status as u8);
        }
        if let Some(inflight) = &mut self.options.inflight {
            inflight.give(head);
        }
        self.ring.give(areas, head, busy.written);
        self.has_given = true;
    }
}

fn status_of(result: std::result::Result<(), IoError>) -> Status {
    match result {
        Ok(()) => Status::Ok,
        Err(error) if error.kind == ErrorKind::Unsupported => Status::Unsupported,
        Err(_) => Status::IoError,
    }
}

fn areas_of(memory: &GuestMemory, places: [Place; 3]) -> Areas<'_> {
    let [descriptors, available, used] = places.map(|place| {
        let (bytes, at) = memory.bytes(place);
        Area::new(bytes, at)
    });
    Areas { descriptors, available, used }
}

/// What a chain has: how its bytes are divided into descriptors says nothing.
struct Chain {
    /// `None`: too few bytes for one.
    header: Option<Header>,
    /// Of a request that the device does not write for, if its data is one.
    range: Option<Range>,
    status: Place,
    /// Whether the data goes to the guest.
    is_in: bool,
    data_bytes: u64,
}

impl Chain {
    /// Reads it; its data's segments go to `segments`.
    ///
    /// # Errors
    /// There is no byte for the status: nobody could be told.
    fn read(
        memory: &GuestMemory,
        named: &mut [Named],
        segments: &mut Vec<Segment>,
    ) -> std::result::Result<Self, Broken> {
        segments.clear();
        let last = named.last_mut().filter(|last| last.is_written && last.len > 0).ok_or(Broken)?;
        last.len -= 1;
        let status = memory.find_guest(last.address + u64::from(last.len), 1).ok_or(Broken)?;
        let mut bytes = [0; Header::BYTES];
        let mut header = take(memory, named, &mut bytes).then(|| Header::decode(&bytes));
        let is_in = named.iter().any(|named| named.is_written && named.len > 0);
        let mut data_bytes = 0;
        // Of a request with both, what it has to say is data of neither; with IN it is refused as too much.
        for part in named.iter().filter(|part| part.is_written == is_in) {
            data_bytes += u64::from(part.len);
            if !memory.segments(part.address, part.len, segments) {
                header = None;
            }
        }
        if is_in && named.iter().any(|named| !named.is_written && named.len > 0) {
            header = None;
        }
        let mut bytes = [0; Range::BYTES];
        let is_range = !is_in && data_bytes == Range::BYTES as u64;
        let range = (is_range && take(memory, named, &mut bytes)).then(|| Range::decode(&bytes));
        Ok(Self { header, range, status, is_in, data_bytes })
    }
}

/// Takes the first bytes of what the device reads. False: there are too few, or they are nowhere.
fn take(memory: &GuestMemory, named: &mut [Named], into: &mut [u8]) -> bool {
    let mut at = 0;
    for part in named.iter_mut().filter(|part| !part.is_written) {
        let len = (into.len() - at).min(part.len as usize);
        if !memory.read(part.address, &mut into[at..at + len]) {
            return false;
        }
        part.address += len as u64;
        part.len -= len as u32;
        at += len;
        if at == into.len() {
            return true;
        }
    }
    false
}
