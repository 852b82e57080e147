//! A reply queue, and the requests that were posted for it.

use qpair_memory::SharedBytes;
use qpair_memory::locks::Mutex;
use std::collections::VecDeque;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use qpair_block::time;
use qpair_mpi_wire::descriptor::{
    DESCRIPTOR_BYTES, ReplyDescriptor, RequestDescriptor, request as request_kind,
};
use qpair_mpi_wire::init::Init;
use qpair_pci::Stepped;

use super::device::SoftHba;
use crate::medium::Scratch;
use qpair_pci::model::{Extent, LastHit, SharedTable};

/// The size of a request frame, in bytes.
pub(crate) const FRAME_BYTES: usize = 128;
/// The size of a reply frame, in bytes.
pub(crate) const REPLY_BYTES: usize = 128;

/// The fault code, private to this controller, for a queue or frame address that it cannot access.
pub(crate) const FAULT_QUEUE: u16 = 0x5851;
/// The fault code for more requests than the controller's credit.
pub(crate) const FAULT_CREDIT: u16 = 0x5852;

#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Slot {
    lane: Mutex<Lane>,
    posted: Mutex<VecDeque<u64>>,
    /// Whether there may be something to do.
    attention: AtomicBool,
    /// The index up to which the driver has taken descriptors.
    pub(crate) host_index: AtomicU32,
}

impl Slot {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Lane> {
        self.lane.lock()
    }

    pub(crate) fn call_attention(&self) {
        self.attention.store(true, Ordering::Release);
    }

    /// Queues a request. Returns false if the number of queued requests has reached `credit`.
    #[inline]
    pub(crate) fn post(&self, word: u64, credit: usize) -> bool {
        let mut posted = self.posted.lock();
        if posted.len() >= credit {
            return false;
        }
        posted.push_back(word);
        drop(posted);
        self.call_attention();
        true
    }

    /// Discards all state of the driver in this slot.
    pub(crate) fn forget(&self) {
        let mut lane = self.lock();
        self.posted.lock().clear();
        lane.setup = None;
        lane.index = 0;
        lane.outbox.clear();
        lane.parked.clear();
        lane.entries = None;
        self.host_index.store(0, Ordering::Relaxed);
    }
}

/// The driver's IOC initialisation request, as far as a lane needs it.
pub(crate) type Setup = Init;

#[derive(Debug, Default)]
pub(crate) struct Lane {
    pub(crate) table: SharedTable,
    pub(crate) last: LastHit,
    pub(crate) extents: Vec<Extent>,
    pub(crate) scratch: Scratch,
    pub(crate) setup: Option<Setup>,
    /// The index of the next entry to be written.
    index: u32,
    entries: Option<Entries>,
    /// The answers that found no room in the queue yet.
    outbox: VecDeque<Answer>,
    pub(crate) parked: Vec<Parked>,
    /// Whether an entry was written since the last interrupt.
    has_posted: bool,
}

/// The memory of a reply queue.
#[derive(Clone, Copy, Debug)]
enum Entries {
    Whole(Extent),
    /// Adjacent ranges, as pages behind an IOMMU are. Each entry is looked up.
    Parts,
}

/// An answer: a success without a frame, or a reply frame.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) smid: u16,
    pub(crate) reply: Option<Vec<u8>>,
}

/// A command that waits.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) smid: u16,
    pub(crate) handle: u16,
    pub(crate) lun: [u8; 8],
    /// The request frame, from which the reply is made.
    pub(crate) frame: Vec<u8>,
    /// The time of the answer and its reply frame; `None` if the command is never answered.
    pub(crate) due: Option<(Instant, Option<Vec<u8>>)>,
}

impl Lane {
    /// Adopts a new table of the driver's memory.
    pub(crate) fn set_table(&mut self, table: &SharedTable) {
        self.table = table.clone();
        self.last = LastHit::default();
        self.extents.clear();
        self.find_entries();
    }

    fn find_entries(&mut self) {
        self.entries = self.setup.and_then(|setup| {
            let len = u32::from(setup.reply_queue_entries) * DESCRIPTOR_BYTES as u32;
            let at = setup.reply_queues;
            if !at.is_multiple_of(8) || !self.table.covers(at, len.into(), true) {
                return None;
            }
            let found = self.table.find(at, len, &mut LastHit::default());
            Some(found.map_or(Entries::Parts, Entries::Whole))
        });
    }

    /// Starts the lane with the reply queue that `setup` gives for it. Returns false if that memory
    /// is not open to the controller.
    pub(crate) fn begin(&mut self, setup: Setup, table: &SharedTable) -> bool {
        self.setup = Some(setup);
        self.index = 0;
        self.set_table(table);
        self.entries.is_some()
    }

    /// Reads the request frame of `smid`.
    pub(crate) fn frame(&mut self, smid: u16) -> Option<[u8; FRAME_BYTES]> {
        let setup = self.setup?;
        let at = setup.frames.checked_add(u64::from(smid) * u64::from(setup.frame_bytes))?;
        let found = self.table.find(at, FRAME_BYTES as u32, &mut self.last)?;
        let (bytes, offset) = self.table.bytes(found)?;
        let mut frame = [0; FRAME_BYTES];
        bytes.copy_to(offset, &mut frame);
        Some(frame)
    }

    /// Copies bytes to the driver's memory. Returns false if that memory is not open to the
    /// controller.
    pub(crate) fn copy_out(&mut self, at: u64, bytes: &[u8]) -> bool {
        self.table.copy_from(at, bytes)
    }

    /// Returns the memory of an entry of the reply queue, and the entry's offset in it.
    #[inline]
    fn entry(
        &self,
        setup: &Setup,
        entries: Entries,
        index: u32,
    ) -> Option<(SharedBytes<'_>, usize)> {
        let at = index as usize * DESCRIPTOR_BYTES;
        match entries {
            Entries::Whole(found) => {
                self.table.bytes(found).map(|(memory, offset)| (memory, offset + at))
            }
            Entries::Parts => {
                let (at, len) = (setup.reply_queues + at as u64, DESCRIPTOR_BYTES as u32);
                self.table.bytes(self.table.find(at, len, &mut LastHit::default())?)
            }
        }
    }

    /// Returns the number of entries of the reply queue, and the index of the next one to be
    /// written. Returns `None` without a driver.
    pub(crate) fn written(&self) -> Option<(u32, u32)> {
        self.setup.map(|setup| (setup.reply_queue_entries.into(), self.index))
    }

    #[inline]
    pub(crate) fn answer(&mut self, smid: u16, reply: Option<Vec<u8>>) {
        self.outbox.push_back(Answer { smid, reply });
    }
}

impl SoftHba {
    /// Does all pending work of one reply queue.
    #[inline]
    pub(crate) fn step_queue(&self, queue: u16) -> Stepped {
        let Some(slot) = self.slot(queue) else { return Stepped::default() };
        if !slot.attention.load(Ordering::Acquire) {
            return Stepped::default();
        }
        slot.attention.store(false, Ordering::Relaxed);
        let queue = queue as u8;
        let mut lane = slot.lock();
        if self.is_stopped() {
            return Stepped::default();
        }
        let mut tasks = Vec::new();
        let mut progress = false;
        // Requests posted from here on wait for the next step.
        let mut posted = std::mem::take(&mut *slot.posted.lock());
        while let Some(word) = posted.pop_front() {
            progress = true;
            let request = RequestDescriptor::decode(word);
            match request.kind {
                request_kind::SCSI_IO | request_kind::FAST_PATH => {
                    self.run_scsi_io(&mut lane, queue, request);
                }
                request_kind::HIGH_PRIORITY => tasks.push(request),
                _ => self.run_message(&mut lane, queue, request),
            }
            if self.is_stopped() {
                return Stepped { progress: true, due: None };
            }
            self.flush(slot, &mut lane, queue);
        }
        let due = self.finish_parked(&mut lane);
        if queue == 0 && lane.setup.is_some() {
            while let Some(event) = self.events.next() {
                lane.answer(0, Some(event));
            }
        }
        self.flush(slot, &mut lane, queue);
        if !lane.outbox.is_empty() || !lane.parked.is_empty() {
            slot.call_attention();
        }
        if std::mem::take(&mut lane.has_posted) {
            progress = true;
            self.interrupt(queue);
        }
        drop(lane);
        for request in tasks {
            self.run_task(queue, request);
        }
        Stepped { progress, due }
    }

    /// Answers the parked commands that are due. Returns when the next one is due.
    fn finish_parked(&self, lane: &mut Lane) -> Option<Instant> {
        if lane.parked.is_empty() {
            return None;
        }
        let now = time::now();
        let mut at = 0;
        while at < lane.parked.len() {
            match &lane.parked[at].due {
                Some((due, _)) if *due <= now => {
                    let Parked { smid, due, .. } = lane.parked.remove(at);
                    lane.answer(smid, due.and_then(|(_, reply)| reply));
                }
                _ => at += 1,
            }
        }
        lane.parked.iter().filter_map(|parked| parked.due.as_ref().map(|(due, _)| *due)).min()
    }

    /// Writes answers to the reply queue, as far as there is room.
    #[inline]
    pub(crate) fn flush(&self, slot: &Slot, lane: &mut Lane, queue: u8) {
        while let Some(answer) = lane.outbox.front() {
            let (Some(setup), Some(entries)) = (lane.setup, lane.entries) else {
                lane.outbox.clear();
                self.stop(FAULT_QUEUE);
                return;
            };
            let depth = u32::from(setup.reply_queue_entries);
            let next = if lane.index + 1 == depth { 0 } else { lane.index + 1 };
            if next == slot.host_index.load(Ordering::Acquire) {
                return;
            }
            let word = match &answer.reply {
                None => ReplyDescriptor::success(queue, answer.smid),
                Some(reply) => {
                    let Some(low) = self.take_reply_frame(lane.table.as_ref(), &setup) else {
                        return;
                    };
                    let at = u64::from(setup.reply_high) << 32 | u64::from(low);
                    let bytes: &[u8] = &reply[..reply.len().min(REPLY_BYTES)];
                    if !lane.table.copy_from(at, bytes) {
                        self.stop(FAULT_QUEUE);
                        return;
                    }
                    ReplyDescriptor::address(queue, answer.smid, low)
                }
            };
            // This comes before the driver can see the answer: a driver that sees it may use the
            // SMID again.
            self.strict.answered(answer.smid);
            if let Some((memory, offset)) = lane.entry(&setup, entries, lane.index) {
                // Release: data, sense and frame are seen by a driver that sees the descriptor.
                memory.store_u64_release(offset, word);
            }
            lane.index = next;
            lane.has_posted = true;
            lane.outbox.pop_front();
        }
    }
}
