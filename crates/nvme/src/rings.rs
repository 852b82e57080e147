//! A queue pair: the submission and the completion ring, in memory that the controller accesses.
//!
//! Invariants:
//! - There are fewer commands in flight than entries, so neither ring is ever full, and no caller
//!   has to check.
//! - An entry of the completion ring is taken once, when its phase matches the current round. The
//!   rest of the entry is read after its phase.
//! - Words that no command of this driver uses are zero in all entries, and are not written again.

use qpair_nvme_wire::{COMPLETION_BYTES, Command, PAGE_BYTES, SUBMISSION_BYTES, Status};

use qpair_pci::QueueMemory;

use crate::registers::DoorbellPair;

/// The words that differ from command to command. The others are zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    /// Opcode, identifier, namespace (dwords 0 and 1).
    pub(crate) head: u64,
    pub(crate) prp1: u64,
    pub(crate) prp2: u64,
    /// Dwords 10 and 11.
    pub(crate) first: u64,
    /// Dwords 12 and 13.
    pub(crate) second: u64,
}

impl Words {
    /// Returns these words of a command whose other words are zero.
    pub(crate) fn of(command: &Command) -> Self {
        let words = command.words();
        Self { head: words[0], prp1: words[3], prp2: words[4], first: words[5], second: words[6] }
    }
}

/// The parts of a completion that the driver uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) result: u32,
    pub(crate) cid: u16,
    pub(crate) status: Status,
}

pub(crate) struct Rings {
    memory: QueueMemory,
    doorbells: DoorbellPair,
    entries: u32,
    completions_at: usize,
    tail: u32,
    told_tail: u32,
    head: u32,
    told_head: u32,
    phase: u32,
}

impl Rings {
    /// Returns the bytes that two rings take at the start of their memory.
    pub(crate) fn bytes_of(entries: u32) -> usize {
        Self::completions_at(entries)
            + (entries as usize * COMPLETION_BYTES).next_multiple_of(PAGE_BYTES)
    }

    fn completions_at(entries: u32) -> usize {
        (entries as usize * SUBMISSION_BYTES).next_multiple_of(PAGE_BYTES)
    }

    /// Makes rings in memory of at least [`Rings::bytes_of`] bytes, all zero.
    pub(crate) fn new(memory: QueueMemory, doorbells: DoorbellPair, entries: u32) -> Self {
        doorbells.forget();
        Self {
            memory,
            doorbells,
            entries,
            completions_at: Self::completions_at(entries),
            tail: 0,
            told_tail: 0,
            head: 0,
            told_head: 0,
            phase: 1,
        }
    }

    /// Empties the rings, for a controller that does not know them.
    pub(crate) fn reset(&mut self) {
        self.memory.bytes().zero(0, Self::bytes_of(self.entries));
        self.doorbells.forget();
        (self.tail, self.told_tail, self.head, self.told_head, self.phase) = (0, 0, 0, 0, 1);
    }

    pub(crate) fn entries(&self) -> u32 {
        self.entries
    }

    pub(crate) fn submission_iova(&self) -> u64 {
        self.memory.iova()
    }

    pub(crate) fn completion_iova(&self) -> u64 {
        self.memory.iova() + self.completions_at as u64
    }

    #[inline(always)]
    pub(crate) fn memory(&mut self) -> &mut QueueMemory {
        &mut self.memory
    }

    /// Appends a command. The controller sees it after [`Rings::kick`].
    #[inline]
    pub(crate) fn push(&mut self, words: Words) {
        let at = self.tail as usize * SUBMISSION_BYTES;
        let Some(entry) = self.memory.bytes().part(at, SUBMISSION_BYTES) else { return };
        entry.store_u64(0, words.head);
        entry.store_u64(24, words.prp1);
        entry.store_u64(32, words.prp2);
        entry.store_u64(40, words.first);
        entry.store_u64(48, words.second);
        self.tail = if self.tail + 1 == self.entries { 0 } else { self.tail + 1 };
    }

    /// Announces all pushed commands to the controller. Returns false if the controller does not
    /// respond.
    #[inline]
    pub(crate) fn kick(&mut self) -> bool {
        if self.tail == self.told_tail {
            return true;
        }
        let old = std::mem::replace(&mut self.told_tail, self.tail);
        self.doorbells.ring_submission(old, self.tail)
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Option<Taken> {
        let at = self.completions_at + self.head as usize * COMPLETION_BYTES;
        let entry = self.memory.bytes().part(at, COMPLETION_BYTES)?;
        // Acquire: everything that the controller wrote before the phase, data and the other words,
        // is visible after this load.
        let last = entry.load_u32_acquire(12);
        if last >> 16 & 1 != self.phase {
            return None;
        }
        let result = entry.load_u32(0);
        self.head += 1;
        if self.head == self.entries {
            self.head = 0;
            self.phase ^= 1;
        }
        Some(Taken { result, cid: last as u16, status: Status((last >> 17) as u16) })
    }

    pub(crate) fn is_ready(&mut self) -> bool {
        let at = self.completions_at + self.head as usize * COMPLETION_BYTES;
        self.memory.bytes().load_u32_acquire(at + 12) >> 16 & 1 == self.phase
    }

    /// Announces the taken completions to the controller. Returns false if the controller does not
    /// respond.
    #[inline]
    pub(crate) fn release(&mut self) -> bool {
        if self.head == self.told_head {
            return true;
        }
        let old = std::mem::replace(&mut self.told_head, self.head);
        self.doorbells.ring_completion(old, self.head)
    }
}
