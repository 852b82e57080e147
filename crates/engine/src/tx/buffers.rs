//! Buffers of transactions that ended, for those that begin: most transactions are alike, and allocate nothing then.

use super::prefetch_set::PrefetchSet;
use super::rows::RowRef;
use super::write_set::WriteSet;
use crate::tree::{Batch, CursorHint};

/// Buffers that a worker keeps.
const KEPT: usize = 64;
/// Bytes, and entries of lists, above which buffers are not kept: they belong to a transaction unlike the others.
const BYTES_MAX: usize = 64 << 10;
const ENTRIES_MAX: usize = 1024;

/// What a transaction gathers things in; empty between two transactions.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) writes: WriteSet,
    pub(super) locks: Vec<RowRef>,
    pub(super) cursor_hints: Vec<CursorHint>,
    pub(super) key: Vec<u8>,
    /// Of ranges: what a leaf has, and another to put records together in.
    pub(super) batches: (Batch, Batch),
    pub(super) ahead: PrefetchSet,
}

impl Buffers {
    /// Empties them; `false` if they are too large to be kept.
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
pub(super) struct Spare(Vec<Buffers>);

impl Spare {
    pub(super) fn take(&mut self) -> Buffers {
        self.0.pop().unwrap_or_default()
    }

    pub(super) fn give(&mut self, mut buffers: Buffers) {
        if buffers.clear() && self.0.len() < KEPT {
            self.0.push(buffers);
        }
    }
}
