//! The checkpoints of a store: the barrier that every change passes, the epoch, and the record of
//! the newest checkpoint.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use qpair_format::image::Record;
use qpair_memory::locks::Mutex;

use crate::pool::{Checkpoints, Copies};
use crate::space::CommitBarrier;
use crate::sync::AsyncMutex;

pub(crate) struct Checkpointing {
    /// The barrier that every change of the trees enters and leaves.
    pub(crate) barrier: Arc<CommitBarrier>,
    /// The current epoch, and how much of its image is saved.
    pub(crate) epochs: Checkpoints,
    /// Held by a task that makes a checkpoint or drops a table.
    pub(crate) alone: Arc<AsyncMutex>,
    /// The memory of checkpoints; empty in a read-only store.
    pub(crate) copies: Copies,
    /// Whether a checkpoint was asked for and has not ended.
    pub(crate) wanted: AtomicBool,
    record: Mutex<Record>,
}

impl Checkpointing {
    pub(super) fn new(barrier: Arc<CommitBarrier>) -> Self {
        Self {
            barrier,
            epochs: Checkpoints::default(),
            alone: Arc::default(),
            copies: Copies::default(),
            wanted: AtomicBool::new(false),
            record: Mutex::default(),
        }
    }

    pub(crate) fn record(&self) -> Record {
        *self.record.lock()
    }

    pub(crate) fn replace_record(&self, record: Record) -> Record {
        std::mem::replace(&mut *self.record.lock(), record)
    }
}
