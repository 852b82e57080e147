//! Requests of a guest's disk.
//!
//! Invariant: each list is either in its slot or in the lane.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qpair_block::{Buffer, ErrorKind, IoError, Op, Result, Segment};
use qpair_virtio::blk::{Header, ID_BYTES, Range, SECTOR_SHIFT, Status, Verb};
use qpair_virtio::ring::{Broken, Segment as Named};

use crate::disk::{Disk, add};
use crate::memory::{GuestMemory, Place};
use crate::queue::{
    End, Guest, GuestRing, Job, Lane, SEGMENTS_MAX, Verbs, segments_of, take_array,
};

#[derive(Debug, Default)]
struct Slot {
    /// The place of the status, while the head is busy.
    status: Option<Place>,
    /// The bytes that the device writes into the guest's memory for the head, including the status.
    written: u32,
    list: Option<Buffer>,
}

pub(super) struct BlkVerbs {
    lane: Lane,
    slots: Box<[Slot]>,
    write_back: Arc<AtomicBool>,
    read_only: bool,
    named: Vec<Named>,
    segments: Vec<Segment>,
}

impl BlkVerbs {
    /// Opens a channel on the calling thread.
    ///
    /// # Errors
    /// The device's error.
    pub(super) fn open(
        ring: &GuestRing,
        disk: &Arc<Disk>,
        write_back: &Arc<AtomicBool>,
        read_only: bool,
    ) -> Result<Self> {
        let arena = ring.memory().arena(ring.size().into(), SEGMENTS_MAX);
        let slot = |_| Slot { list: arena.lease(), ..Slot::default() };
        Ok(Self {
            lane: Lane::open(disk, &arena, ring.size())?,
            slots: (0..ring.size()).map(slot).collect(),
            write_back: write_back.clone(),
            read_only,
            named: Vec::with_capacity(SEGMENTS_MAX),
            segments: Vec::with_capacity(SEGMENTS_MAX),
        })
    }

    /// Begins a request, or returns the status with which it ended.
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
                let serial = self.lane.disk().serial.as_bytes();
                let len = serial.len().min(ID_BYTES);
                id[..len].copy_from_slice(&serial[..len]);
                let mut list = self.take_list(head, segments)?;
                let len = list.len().min(ID_BYTES);
                list.copy_from(0, &id[..len]);
                let slot = &mut self.slots[usize::from(head)];
                slot.list = Some(list);
                slot.written += len as u32;
                return Err(Status::Ok);
            }
        };
        if self.read_only && op != Op::Read && op != Op::Flush {
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
        if op == Op::Read {
            self.slots[usize::from(head)].written += len_bytes;
        }
        let durable = !self.write_back.load(Ordering::Relaxed);
        self.lane.begin(head, Job { op, durable, offset_bytes, len_bytes }, list);
        Ok(())
    }

    /// Returns the slot's list, filled with the request's segments.
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
}

impl Verbs for BlkVerbs {
    #[inline]
    fn begin(
        &mut self,
        head: u16,
        ring: &mut GuestRing,
        guest: Guest<'_>,
    ) -> std::result::Result<(), Broken> {
        self.lane.count_taken();
        let (mut named, mut segments) =
            (std::mem::take(&mut self.named), std::mem::take(&mut self.segments));
        let walked = ring.walk(head, guest, &mut named);
        let found = walked.and_then(|()| Chain::read(guest.memory, &mut named, &mut segments));
        let result = found.map(|chain| {
            let slot = &mut self.slots[usize::from(head)];
            (slot.status, slot.written) = (Some(chain.status), 1);
            if let Err(status) = self.carry_out(head, &chain, &segments) {
                answer(&mut self.slots, head, status, ring, guest);
            }
        });
        (self.named, self.segments) = (named, segments);
        result
    }

    #[inline]
    fn settle(&mut self, ring: &mut GuestRing, guest: Guest<'_>) {
        let Self { lane, slots, .. } = self;
        lane.settle(|End { head, list, result, .. }| {
            if list.is_some() {
                slots[usize::from(head)].list = list;
            }
            answer(slots, head, status_of(result), ring, guest);
        });
    }

    fn published(&mut self, is_called: bool) {
        if is_called {
            add(&self.lane.counters().calls, 1);
        }
    }

    fn rest(&mut self) -> bool {
        self.lane.rest();
        true
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        self.lane.completion_fd()
    }

    fn count_kick(&self) {
        add(&self.lane.counters().kicks, 1);
    }
}

/// Gives a head back to the guest.
fn answer(slots: &mut [Slot], head: u16, status: Status, ring: &mut GuestRing, guest: Guest<'_>) {
    let slot = &mut slots[usize::from(head)];
    let Some(place) = slot.status.take() else { return };
    let (bytes, at) = guest.memory.bytes(place);
    bytes.store_u8(at, status as u8);
    ring.give(head, slot.written, guest);
}

fn status_of(result: std::result::Result<(), IoError>) -> Status {
    match result {
        Ok(()) => Status::Ok,
        Err(error) if error.kind == ErrorKind::Unsupported => Status::Unsupported,
        Err(_) => Status::IoError,
    }
}

/// The contents of a request's chain.
struct Chain {
    /// `None` if the chain has too few bytes for a header, or if its data is not valid.
    header: Option<Header>,
    /// The range of a discard or write-zeroes: the data that the device reads, if it has the length
    /// of one range.
    range: Option<Range>,
    status: Place,
    /// Whether the data goes to the guest.
    is_in: bool,
    data_bytes: u64,
}

impl Chain {
    /// Reads a chain, and puts the segments of its data into `segments`.
    ///
    /// # Errors
    /// The chain has no byte for the status, so the driver cannot be answered.
    fn read(
        memory: &GuestMemory,
        named: &mut [Named],
        segments: &mut Vec<Segment>,
    ) -> std::result::Result<Self, Broken> {
        segments.clear();
        let last = named.last_mut().filter(|last| last.is_written && last.len > 0).ok_or(Broken)?;
        last.len -= 1;
        let status = memory.find_guest(last.address + u64::from(last.len), 1).ok_or(Broken)?;
        let mut header = take_array(memory, named).map(|bytes| Header::decode(&bytes));
        let is_in = named.iter().any(|named| named.is_written && named.len > 0);
        // A request must not have data in both directions: one with device-writable data that also
        // has device-readable data is rejected.
        let data_bytes = segments_of(memory, named, is_in, segments);
        if data_bytes.is_none()
            || is_in && named.iter().any(|named| !named.is_written && named.len > 0)
        {
            header = None;
        }
        let data_bytes = data_bytes.unwrap_or(0);
        let is_range = !is_in && data_bytes == Range::BYTES as u64;
        let range = if is_range { take_array(memory, named) } else { None };
        let range = range.map(|bytes| Range::decode(&bytes));
        Ok(Self { header, range, status, is_in, data_bytes })
    }
}
