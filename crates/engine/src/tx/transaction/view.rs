//! The view of the store that a range reads: a transaction's or a snapshot's.

use std::ops::Bound;

use qpair_format::Result;

use super::snapshot::SnapshotCore;
use super::state::TxState;
use crate::shared::Shared;
use crate::tree::Tree;

/// The view that a range reads.
pub(crate) enum View<'a> {
    Transaction(&'a mut TxState),
    Snapshot(&'a SnapshotCore),
}

impl View<'_> {
    /// Must be called before a leaf is read, so that the leaf is never older than the snapshot.
    pub(super) fn enter(&mut self) {
        if let Self::Transaction(core) = self {
            core.needs_snapshot();
        }
        let _ = self.snapshot();
    }

    pub(super) fn snapshot(&mut self) -> u64 {
        match self {
            Self::Transaction(core) => core.snapshot(),
            Self::Snapshot(core) => core.timestamp(),
        }
    }

    pub(super) fn core(&self) -> Option<&TxState> {
        match self {
            Self::Transaction(core) => Some(core),
            Self::Snapshot(_) => None,
        }
    }

    /// Whether the program may see the contents of a leaf with this timestamp. For a transaction
    /// always, since its commit waits.
    pub(super) fn may_give(&mut self, shared: &Shared, timestamp: u64) -> bool {
        match self {
            Self::Transaction(core) => {
                core.note_timestamp(timestamp);
                true
            }
            Self::Snapshot(core) => {
                shared.wal.may_give(shared.wal.options.reads_wait, timestamp.min(core.timestamp()))
            }
        }
    }

    /// Waits until the program may see the contents of a leaf with this timestamp.
    pub(super) async fn wait_to_give(&mut self, shared: &Shared, timestamp: u64) -> Result<()> {
        if self.may_give(shared, timestamp) {
            return Ok(());
        }
        shared.wait_to_give(true, timestamp.min(self.snapshot())).await
    }

    pub(super) fn note(&mut self, tree: Tree, low: Bound<&[u8]>, high: Bound<&[u8]>) -> Result<()> {
        match self {
            Self::Transaction(core) => core.note_range(tree, low, high),
            Self::Snapshot(_) => Ok(()),
        }
    }

    pub(super) fn check(&mut self) -> Result<()> {
        match self {
            Self::Transaction(core) => {
                let snapshot = core.snapshot();
                core.check_snapshot(snapshot)
            }
            Self::Snapshot(core) => core.check(),
        }
    }

    pub(super) fn doomed(&self) -> Result<()> {
        match self {
            Self::Transaction(core) => core.doomed.clone().map_or(Ok(()), Err),
            Self::Snapshot(_) => Ok(()),
        }
    }
}
