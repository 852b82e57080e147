//! Recovering in stages, for want of room.
//!
//! What always holds: a stage ends between two commits with all before it made, and its checkpoint names the old logs, from which
//! a crash goes on. Nothing of them is given up before the last stage is over.

use qpair_format::Result;

use crate::checkpoint::checkpoint;
use crate::store::StoreInner;

/// Whether the device has room for all that a recovery changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Room {
    /// It is likely to have.
    Enough,
    /// It had not: checkpoints on the way make room.
    Little,
}

/// Changes of one stage: each may take a page, of those that a checkpoint leaves free.
pub(super) fn changes_max(inner: &StoreInner) -> usize {
    (inner.shared.pool.frames.len() as usize / 8).max(8)
}

/// Ends a stage: all commits up to `timestamp` are made, and none above it.
pub(super) async fn end(inner: &StoreInner, timestamp: u64) -> Result<()> {
    inner.shared.oracle.start(timestamp);
    match inner.shared.space.is_short() {
        true => checkpoint(&inner.shared, false).await,
        false => Ok(()),
    }
}
