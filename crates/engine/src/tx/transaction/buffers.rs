//! Buffers of ended transactions, kept for new ones: most transactions are alike, and then allocate
//! nothing.

use super::prefetch_set::PrefetchSet;
use super::write_set::WriteSet;
use crate::tree::{Batch, CursorHint};
use crate::tx::versions::RowRef;

/// The number of buffers that a worker keeps.
const KEPT: usize = 64;
/// The size in bytes, and in entries of lists, above which buffers are not kept: they belong to an
/// unusually large transaction.
const BYTES_MAX: usize = 64 << 10;
const ENTRIES_MAX: usize = 1024;

/// The buffers of a transaction; empty between two transactions.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) writes: WriteSet,
    pub(super) locks: Vec<RowRef>,
    pub(super) cursor_hints: Vec<CursorHint>,
    pub(super) key: Vec<u8>,
    /// Buffers of ranges: the records of a leaf, and a second batch in which records are merged.
    pub(super) batches: (Batch, Batch),
    pub(super) ahead: PrefetchSet,
}

impl Buffers {
    /// Empties the buffers; returns `false` if they are too large to be kept.
    fn clear(&mut self) -> bool {
        self.locks.clear();
        self.cursor_hints.clear();
        self.key.clear();
        self.writes.clear();
        self.ahead.clear();
        let (bytes, entries) = self.writes.capacity();
        let batches = self.batches.0.capacity().max(self.batches.1.capacity());
        bytes.max(batches).max(self.ahead.capacity()).max(self.key.capacity()) <= BYTES_MAX
            && entries.max(self.locks.capacity()).max(self.cursor_hints.capacity()) <= ENTRIES_MAX
    }
}

/// Unused buffers of one worker's transactions.
#[derive(Default)]
pub(in crate::tx) struct Spare(Vec<Buffers>);

impl Spare {
    // Not inlined, it copies some hundred bytes once more.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Buffers {
        self.0.pop().unwrap_or_default()
    }

    #[inline(always)]
    pub(super) fn give(&mut self, mut buffers: Buffers) {
        if buffers.clear() && self.0.len() < KEPT {
            self.0.push(buffers);
        }
    }
}
