//! Checkpoints of a store: the barrier that every change passes, the epoch, and the newest one's record.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use qpair_format::image::Record;

use crate::pool::{Checkpoints, Copies};
use crate::space::CommitBarrier;
use crate::sync::AsyncMutex;

/// The part of an open store that knows its checkpoints.
pub(crate) struct Checkpointing {
    /// Every change of the trees is between its entering and leaving.
    pub(crate) barrier: Arc<CommitBarrier>,
    /// The epoch, and what of it is saved.
    pub(crate) epochs: Checkpoints,
    /// Held by a task that makes a checkpoint or drops a table.
    pub(crate) alone: Arc<AsyncMutex>,
    /// Memory of checkpoints; none in a store that is only read.
    pub(crate) copies: Copies,
    /// A checkpoint was asked for, and is not over.
    pub(crate) wanted: AtomicBool,
    /// The newest durable checkpoint's.
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

    /// The newest durable checkpoint's record.
    pub(crate) fn record(&self) -> Record {
        *self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a newer one; the one before.
    pub(crate) fn replace_record(&self, record: Record) -> Record {
        std::mem::replace(&mut *self.record.lock().unwrap_or_else(PoisonError::into_inner), record)
    }
}
