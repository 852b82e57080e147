//! Submission and completion queues, and the state that a controller keeps for each number of a
//! queue pair.
//!
//! Invariants: indices are below the number of the queue's entries, whatever a doorbell says; a
//! completion entry that the driver has not acknowledged is not overwritten; the last dword of an
//! entry, with the phase, is stored last.

use qpair_memory::SharedBytes;
use qpair_nvme_wire::{COMPLETION_BYTES, Command, Completion, SUBMISSION_BYTES, Status};

use qpair_pci::model::{LastHit, SharedTable};

use crate::backend::QueueState;
use crate::ring::Ring;
use crate::shadow::{EventIndex, Shadow};

/// The error that the driver has closed a queue's memory.
#[derive(Debug)]
pub(crate) struct Unreachable;

#[derive(Debug)]
pub(crate) struct SubmissionQueue {
    pub(crate) ring: Ring,
    pub(crate) head: u32,
    /// The number of the completion queue.
    pub(crate) cq: u16,
    /// The tail at which the driver must ring, if its doorbells are in memory.
    pub(crate) event: EventIndex,
}

impl SubmissionQueue {
    pub(crate) fn new(ring: Ring, cq: u16) -> Self {
        Self { ring, head: 0, cq, event: EventIndex::default() }
    }

    /// Tells the driver, whose tail is `tail`, that it need not ring, because a thread is polling.
    #[inline]
    pub(crate) fn be_quiet(&mut self, shadow: &Shadow, number: u16, tail: u32) {
        let entries = self.ring.entries();
        if let Some(event) = Some(tail)
            .filter(|tail| *tail < entries)
            .and_then(|tail| self.event.behind(tail, entries))
        {
            shadow.be_quiet(number, false, event);
        }
    }

    /// Returns the number of entries from the head to `tail`.
    #[inline(always)]
    pub(crate) fn pending(&self, tail: u32) -> u32 {
        let entries = self.ring.entries();
        if tail >= self.head { tail - self.head } else { tail + entries - self.head }
    }

    /// Prefetches `count` entries from the head on, which are taken soon. Fetching more would be
    /// harmful: the driver writes the entries after that, and would have to fetch them back.
    #[inline(always)]
    pub(crate) fn prefetch(&self, count: u32) {
        let mut index = self.head;
        for _ in 1..count {
            index = next(index, self.ring.entries());
            if let Some((bytes, at)) = self.ring.entry(index) {
                bytes.prefetch(at);
            }
        }
    }

    #[inline(always)]
    pub(crate) fn fetch(&mut self) -> Result<Command, Unreachable> {
        let (bytes, at) = self.ring.entry(self.head).ok_or(Unreachable)?;
        let mut command = Command::default();
        for (number, pair) in command.0.chunks_exact_mut(2).enumerate() {
            let word = bytes.load_u64(at + 8 * number);
            pair[0] = word as u32;
            pair[1] = (word >> 32) as u32;
        }
        self.head = next(self.head, self.ring.entries());
        Ok(command)
    }
}

#[derive(Debug)]
pub(crate) struct CompletionQueue {
    pub(crate) ring: Ring,
    /// The first entry that the driver has not acknowledged, as far as known.
    head: u32,
    tail: u32,
    phase: bool,
    pub(crate) vector: Option<u16>,
    /// The number of submission queues that complete here.
    pub(crate) users: u32,
    /// Whether the driver had acknowledged everything before the last posted entry.
    wake: bool,
    /// The head at which the driver must ring, if its doorbells are in memory.
    event: EventIndex,
}

impl CompletionQueue {
    pub(crate) fn new(ring: Ring, vector: Option<u16>) -> Self {
        let event = EventIndex::default();
        Self { ring, head: 0, tail: 0, phase: true, vector, users: 0, wake: false, event }
    }

    /// Whether there are entries that the driver has not acknowledged, as far as known.
    #[inline]
    pub(crate) fn has_unacknowledged(&self) -> bool {
        self.head != self.tail
    }

    /// Tells the driver that it need not ring for its head, because a thread is polling.
    #[inline]
    pub(crate) fn be_quiet(&mut self, shadow: &Shadow, number: u16) {
        // The known head falls behind while no code updates it. If it fell behind by a whole queue,
        // the driver would reach the index again.
        if self.room_known() < self.ring.entries() / 8 * 7
            && let Some(head) = shadow.load(number, true)
        {
            self.refresh(head);
        }
        if let Some(event) = self.event.behind(self.head, self.ring.entries()) {
            shadow.be_quiet(number, true, event);
        }
    }

    /// Asks the driver to ring when it acknowledges more entries, if there are any. Returns false
    /// if it has acknowledged some already.
    pub(crate) fn listen(&mut self, shadow: &Shadow, number: u16) -> bool {
        let Some(head) = shadow.load(number, true) else { return true };
        let before = self.head;
        self.refresh(head);
        if self.head != before {
            return false;
        }
        if !self.has_unacknowledged() {
            return true;
        }
        // Set the event to the doorbell's value, even if that is invalid: an invalid value must not
        // keep a thread awake.
        self.event.set(head);
        shadow.listen(number, true, head)
    }

    #[inline(always)]
    fn room_known(&self) -> u32 {
        let entries = self.ring.entries();
        let used = if self.tail >= self.head {
            self.tail - self.head
        } else {
            self.tail + entries - self.head
        };
        entries - 1 - used
    }

    /// Returns the number of entries that can be posted. Without interrupts, reads the doorbell
    /// only if `wanted` entries do not fit as far as known. The flag is true if the value of the
    /// doorbell is not valid.
    #[inline(always)]
    pub(crate) fn room(&mut self, wanted: u32, doorbell: impl FnOnce() -> u32) -> (u32, bool) {
        let known = self.room_known();
        // With interrupts it matters whether the driver has seen everything.
        if known >= wanted && self.vector.is_none() {
            return (known, false);
        }
        let wrong = !self.refresh(doorbell());
        (self.room_known(), wrong)
    }

    /// Updates the head from its doorbell. Returns false if the value is not valid.
    #[inline]
    fn refresh(&mut self, doorbell: u32) -> bool {
        let entries = self.ring.entries();
        if doorbell == self.head {
            return true;
        }
        let distance =
            |from: u32, to: u32| if to >= from { to - from } else { to + entries - from };
        if doorbell >= entries || distance(self.head, doorbell) > distance(self.head, self.tail) {
            return false;
        }
        self.head = doorbell;
        // The driver must be signalled for entries that it had not acknowledged when it rang: it
        // may have looked just before they were posted.
        self.wake |= self.head != self.tail;
        true
    }

    /// Posts a completion. There must be room for it.
    #[inline(always)]
    pub(crate) fn post(
        &mut self,
        sq: u16,
        sq_head: u32,
        cid: u16,
        status: Status,
        result: u32,
    ) -> Result<(), Unreachable> {
        let (bytes, at) = self.ring.entry(self.tail).ok_or(Unreachable)?;
        let entry = Completion {
            result,
            sq_head: sq_head as u16,
            sq_id: sq,
            cid,
            phase: self.phase,
            status,
        };
        store(bytes, at, &entry);
        self.wake |= self.head == self.tail;
        self.tail = next(self.tail, self.ring.entries());
        self.phase ^= self.tail == 0;
        Ok(())
    }

    /// Lets the driver be signalled again, because its vector has a new event.
    pub(crate) fn tell_again(&mut self) {
        self.wake = self.has_unacknowledged();
    }

    /// Returns the vector to signal, if the driver must be notified of posted completions.
    #[inline]
    pub(crate) fn take_signal(&mut self, doorbell: impl FnOnce() -> u32) -> Option<u16> {
        let vector = self.vector?;
        self.refresh(doorbell());
        std::mem::take(&mut self.wake).then_some(vector)
    }
}

#[inline(always)]
fn store(bytes: SharedBytes<'_>, at: usize, entry: &Completion) {
    let dwords = entry.dwords();
    bytes.store_u64(at, u64::from(dwords[0]) | u64::from(dwords[1]) << 32);
    bytes.store_u32(at + 8, dwords[2]);
    // Release: a driver that sees the phase also sees the rest of the entry, and the data.
    bytes.store_u32_release(at + Completion::LAST_DWORD, dwords[3]);
}

#[inline(always)]
fn next(index: u32, entries: u32) -> u32 {
    if index + 1 == entries { 0 } else { index + 1 }
}

/// A submission queue, and the commands that were fetched from it. `Q` is the backend's state of a
/// queue.
#[derive(Debug, Default)]
pub(crate) struct Side<Q> {
    pub(crate) submission: Option<SubmissionQueue>,
    /// The driver's shadow doorbells, if it has set them up.
    pub(crate) shadow: Option<Shadow>,
    pub(crate) state: QueueState<Q>,
}

/// The submission queue and the completion queue of one number, under their own lock, which is
/// taken once for each step.
#[derive(Debug, Default)]
pub(crate) struct Pair<Q> {
    pub(crate) side: Side<Q>,
    pub(crate) completion: Option<CompletionQueue>,
}

impl<Q> Pair<Q> {
    /// Sets another table of memory. Rings outside of it are no longer accessed.
    pub(crate) fn set_table(&mut self, table: &SharedTable) {
        self.side.state.memory.table = table.clone();
        self.side.state.memory.last = LastHit::default();
        if let Some(shadow) = &mut self.side.shadow {
            shadow.resolve(table);
        }
        if let Some(queue) = &mut self.side.submission {
            queue.ring.resolve(table);
        }
        if let Some(queue) = &mut self.completion {
            queue.ring.resolve(table);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.side.submission = None;
        self.side.shadow = None;
        self.side.state.in_flight = 0;
        self.side.state.answered.clear();
        self.completion = None;
    }
}

/// The sizes in bytes of an entry of a submission queue and of a completion queue.
pub(crate) const ENTRY_BYTES: (usize, usize) = (SUBMISSION_BYTES, COMPLETION_BYTES);
