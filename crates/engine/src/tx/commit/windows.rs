//! The writes of a large transaction, which are in runs on the device, a window at a time: a commit
//! handles each window like the writes of a small transaction.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use qpair_format::Result;

use crate::shared::Shared;
use crate::task::yield_now;
use crate::tx::history::{Input, SortedRun};
use crate::tx::transaction::{Spilled, Write, WriteSet};
use crate::tx::versions::{BeforeImage, Locking, RowRef, Rows};

/// The memory of a window, at least and at most, in bytes; one write may exceed it.
const BYTES: RangeInclusive<usize> = (1 << 10)..=(1 << 20);
/// The share of the memory for a transaction's writes that a window may take, as a divisor.
const PART: usize = 4;

/// Returns an upper bound of the number of windows of a transaction, by the size of its record, and
/// the memory that its writes may take.
pub(super) fn parts_max(record_bytes: usize, bytes_max: usize) -> usize {
    // An entry of a write set takes less than twice what its head in a record is counted with.
    2 * record_bytes / window_bytes(bytes_max) + 1
}

fn window_bytes(bytes_max: usize) -> usize {
    (bytes_max / PART).clamp(*BYTES.start(), *BYTES.end())
}

/// The part of a commit whose writes are on the device.
pub(super) struct SpilledCommit {
    /// The writes after those in memory.
    pub(super) windows: Windows,
    /// The first pages of the large values among the writes so far.
    pub(super) referred: Vec<u64>,
    /// Runs of before-images that the commit has made.
    pub(super) image_runs: Vec<Arc<SortedRun>>,
    /// Whether before-images stay in memory, since the device takes none.
    pub(super) keeps_images: bool,
}

impl SpilledCommit {
    pub(super) fn new(windows: Windows) -> Self {
        Self { windows, referred: Vec::new(), image_runs: Vec::new(), keeps_images: false }
    }
}

/// The next write of a run: its tree, its key, its order among writes to that key, the run.
type Head = (u32, Box<[u8]>, u64, usize);

/// Runs that are merged from their beginning to their end.
pub(super) struct Windows {
    inputs: Vec<Input>,
    heads: BinaryHeap<Reverse<Head>>,
    /// The values of the next writes, by run.
    images: Vec<BeforeImage>,
    /// The runs whose next write is to be read.
    missing: Vec<usize>,
    /// The tree and the key of the last write.
    last: (u32, Box<[u8]>),
    /// Whether a window is being made: its caller may have gone away.
    is_open: bool,
    bytes_max: usize,
}

impl Windows {
    /// Creates the windows of a transaction whose writes may take `bytes_max` bytes of memory.
    pub(super) fn new(runs: &[Arc<SortedRun>], bytes_max: usize) -> Self {
        Self {
            inputs: runs.iter().cloned().map(Input::new).collect(),
            heads: BinaryHeap::new(),
            images: vec![BeforeImage::Absent; runs.len()],
            missing: (0..runs.len()).collect(),
            last: (0, Box::default()),
            is_open: false,
            bytes_max: window_bytes(bytes_max),
        }
    }

    /// Whether a window is not complete, since the task that waited for it went away.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether there are no more writes, after a window.
    pub(super) fn is_over(&self) -> bool {
        self.missing.is_empty() && self.heads.is_empty()
    }

    /// Replaces the writes in `set` by those of the next window. With `locked`, makes the rows of
    /// the writes, which this transaction has locked. If the future is dropped, the next call
    /// continues.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) async fn next(
        &mut self,
        shared: &Shared,
        spilled: &Spilled,
        set: &mut WriteSet,
        locked: Option<(&Rows, u64)>,
    ) -> Result<()> {
        if !std::mem::replace(&mut self.is_open, true) {
            set.clear();
        }
        loop {
            while let Some(run) = self.missing.last().copied() {
                self.inputs[run].fill(shared).await?;
                self.missing.pop();
                if let Some((tree, key, version)) = self.inputs[run].take() {
                    self.heads.push(Reverse((tree, key, version.timestamp, run)));
                    self.images[run] = version.image;
                }
            }
            if set.size_bytes() >= self.bytes_max {
                break;
            }
            let Some(Reverse((tree_id, key, _, run))) = self.heads.pop() else { break };
            self.missing.push(run);
            // Of several writes to a key the newest comes first.
            if (self.last.0, &self.last.1) == (tree_id, &key) {
                continue;
            }
            let Some(tree) = spilled.tree(tree_id) else { continue };
            let row = match locked {
                None => RowRef::decode(0),
                Some((rows, owner)) => match rows.lock(tree_id, &key, owner) {
                    Locking::Had(row) | Locking::Taken(row, _) | Locking::Busy(row) => row,
                },
            };
            let write = match &self.images[run] {
                BeforeImage::Absent => Write::Delete,
                BeforeImage::Inline(value) => Write::Inline(value),
                BeforeImage::Large(descriptor) => Write::Large(descriptor),
            };
            set.append(tree, &key, row, write);
            self.last = (tree_id, key);
        }
        // Other tasks run between two windows.
        yield_now().await;
        self.is_open = false;
        Ok(())
    }
}
