//! A ring, and the memory that each of its slots needs besides the data: header, range, status.
//!
//! Slot `n` has the descriptors `3n` (header), `3n + 1` (data) and `3n + 2` (status). Only the data
//! descriptor changes its address.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use qpair_block::{Buffer, Error, ErrorKind, Result};
use qpair_memory::SharedBytes;
use qpair_virtio::blk::{Header, Range, Status, Verb};
use qpair_virtio::ring::{Broken, Descriptor, DriverRing, Layout, NEXT, WRITE};
use rustix::event::{EventfdFlags, eventfd};

use super::link::{Link, Word};
use crate::codec::{Request, RingAddresses, RingFile, RingState, feature};

const DESCRIPTORS: u16 = 3;
/// The bytes of a slot's own memory; the next constants are the offsets of its parts.
const SLOT_BYTES: usize = 64;
const RANGE_AT: usize = 16;
const STATUS_AT: usize = 32;
/// A status that no request has.
const NOT_YET: u8 = 0xFF;

#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    pub(super) address: u64,
    pub(super) len_bytes: u32,
    /// Whether the device writes the data.
    pub(super) is_in: bool,
}

pub(super) struct Queue {
    number: u16,
    depth: u16,
    event_index: bool,
    layout: Layout,
    ring: DriverRing,
    memory: Buffer,
    /// The address of the queue's memory for the back end.
    address: u64,
    slots_at: usize,
    kick: OwnedFd,
    pub(super) call: Arc<OwnedFd>,
    is_quiet: bool,
}

fn event() -> Result<OwnedFd> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    eventfd(0, flags).map_err(|errno| Error::os(errno.into(), "creating an event of a queue"))
}

impl Queue {
    pub(super) fn new(link: &Link, number: u16, depth: u16, features: u64) -> Result<Self> {
        let size = (depth * DESCRIPTORS).next_power_of_two();
        let layout = Layout::new(size).ok_or_else(|| {
            Error::new(ErrorKind::Limit, format!("a queue cannot have {depth} requests"))
        })?;
        let slots_at = layout.bytes();
        let memory = link.ring_memory(number, slots_at + SLOT_BYTES * usize::from(depth))?;
        let address = memory.as_ptr().expose_provenance() as u64;
        let (kick, call) = (event()?, Arc::new(event()?));
        let event_index = features & feature::EVENT_IDX != 0;
        let ring = DriverRing::with_event_index(layout, event_index);
        Ok(Self {
            number,
            depth,
            event_index,
            layout,
            ring,
            memory,
            address,
            slots_at,
            kick,
            call,
            is_quiet: true,
        })
    }

    /// Gives the ring to the back end, empty.
    pub(super) fn set_up(&mut self, link: &Link, seen: Word) -> Result<()> {
        let (ring, layout) = (u32::from(self.number), self.layout);
        if link.word() != seen {
            return Err(link.gone());
        }
        self.memory.shared().zero(0, layout.bytes());
        self.ring = DriverRing::with_event_index(layout, self.event_index);
        if self.is_quiet {
            self.ring.be_quiet(layout.areas(self.memory.shared()));
        }
        let addresses = RingAddresses {
            ring,
            flags: 0,
            descriptors: self.address,
            used: self.address + layout.used_at() as u64,
            available: self.address + layout.available_at() as u64,
            log: 0,
        };
        let state = |number| RingState { ring, number }.payload();
        let file = RingFile { ring, has_file: true }.payload();
        let (kick, call) = (self.kick.as_fd(), self.call.as_fd());
        link.with(seen, |back_end| {
            back_end.tell(Request::SetVringNum, &state(layout.size().into()), &[])?;
            back_end.tell(Request::SetVringBase, &state(0), &[])?;
            back_end.tell(Request::SetVringAddr, &addresses.payload(), &[])?;
            back_end.tell(Request::SetVringCall, &file, &[call])?;
            back_end.tell(Request::SetVringKick, &file, &[kick])?;
            back_end.tell(Request::SetVringEnable, &state(1), &[])
        })
    }

    /// Takes the ring back from the back end. On return no request of it is in flight.
    pub(super) fn take_back(&self, link: &Link, seen: Word) {
        let state = RingState { ring: self.number.into(), number: 0 };
        // A back end that has gone has nothing in flight.
        let _ = link.with(seen, |back_end| back_end.ask(Request::GetVringBase, &state.payload()));
    }

    fn bytes(&mut self) -> SharedBytes<'_> {
        self.memory.shared()
    }

    fn slot_at(&self, slot: u16) -> usize {
        self.slots_at + SLOT_BYTES * usize::from(slot)
    }

    /// Writes a slot's range. Returns its place for the back end.
    pub(super) fn put_range(&mut self, slot: u16, range: Range) -> Data {
        let at = self.slot_at(slot) + RANGE_AT;
        self.bytes().copy_from(at, &range.encode());
        let address = self.address + at as u64;
        Data { address, len_bytes: Range::BYTES as u32, is_in: false }
    }

    /// Offers a request. The back end sees it after [`Queue::publish`].
    pub(super) fn offer(&mut self, slot: u16, verb: Verb, sector: u64, data: Option<Data>) {
        let at = self.slot_at(slot);
        let (layout, place) = (self.layout, self.address + at as u64);
        let bytes = self.memory.shared();
        bytes.copy_from(at, &Header::encode(verb, sector));
        bytes.store_u8(at + STATUS_AT, NOT_YET);
        let areas = layout.areas(bytes);
        let table = areas.descriptors;
        let head = slot * DESCRIPTORS;
        let next = if data.is_some() { head + 1 } else { head + 2 };
        let len = Header::BYTES as u32;
        Descriptor { address: place, len, flags: NEXT, next }.store(table, head);
        if let Some(Data { address, len_bytes, is_in }) = data {
            let flags = NEXT | if is_in { WRITE } else { 0 };
            Descriptor { address, len: len_bytes, flags, next: head + 2 }.store(table, head + 1);
        }
        let address = place + STATUS_AT as u64;
        Descriptor { address, len: 1, flags: WRITE, next: 0 }.store(table, head + 2);
        self.ring.offer(areas, head);
    }

    /// Makes all offered requests visible to the back end. Returns the number of system calls.
    #[inline]
    pub(super) fn publish(&mut self) -> u64 {
        if !self.ring.has_news() {
            return 0;
        }
        let areas = self.layout.areas(self.memory.shared());
        if !self.ring.publish(areas) {
            return 0;
        }
        // It counts up to 2^64: no queue kicks so often.
        let _ = rustix::io::write(&self.kick, &1u64.to_ne_bytes());
        1
    }

    /// Takes the next slot that is done, with its status.
    #[inline]
    pub(super) fn take(&mut self) -> std::result::Result<Option<(u16, Option<Status>)>, Broken> {
        let areas = self.layout.areas(self.memory.shared());
        let Some(used) = self.ring.take(areas)? else { return Ok(None) };
        let id = u16::try_from(used.id).map_err(|_| Broken)?;
        let slot = id / DESCRIPTORS;
        if !id.is_multiple_of(DESCRIPTORS) || slot >= self.depth {
            return Err(Broken);
        }
        let at = self.slot_at(slot) + STATUS_AT;
        let status = match self.bytes().load_u8(at) {
            0 => Some(Status::Ok),
            1 => Some(Status::IoError),
            2 => Some(Status::Unsupported),
            _ => None,
        };
        Ok(Some((slot, status)))
    }

    /// Asks to be signalled. Returns true if there is a completion already.
    pub(super) fn listen(&mut self) -> bool {
        self.is_quiet = false;
        self.ring.listen(self.layout.areas(self.memory.shared()))
    }

    pub(super) fn be_quiet(&mut self) {
        if !self.is_quiet {
            self.is_quiet = true;
            self.ring.be_quiet(self.layout.areas(self.memory.shared()));
        }
    }

    pub(super) fn clear_call(&self) {
        let _ = rustix::io::read(&self.call, &mut [0; 8]);
    }
}
