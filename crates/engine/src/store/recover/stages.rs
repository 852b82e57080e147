//! Recovery in stages, for a device with little room.
//!
//! Invariants: a stage ends between two commits, with all commits before it made, or in a commit in
//! parts, with all before that one made. Its checkpoint names the old logs, from which recovery
//! continues after a crash: with the whole of such a commit. No part of the old logs is
//! freed before the last stage has ended.

use qpair_format::Result;

use crate::checkpoint::checkpoint;
use crate::store::StoreInner;

/// Whether the device has room for all changes of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Room {
    /// There is probably enough room.
    Enough,
    /// There was not enough room in the first attempt: checkpoints during the recovery make room.
    Little,
}

/// Returns the number of changes in a stage. Each may take one of the pages that a checkpoint
/// leaves free.
pub(super) fn changes_max(inner: &StoreInner) -> usize {
    (inner.shared.pool.frames.len() as usize / 8).max(8)
}

/// Ends a stage: all commits up to `timestamp` are made, and none after it, but for parts of the
/// next one.
pub(super) async fn end(inner: &StoreInner, timestamp: u64) -> Result<()> {
    inner.shared.oracle.start(timestamp);
    match inner.shared.space.is_short() {
        true => checkpoint(&inner.shared, false).await,
        false => Ok(()),
    }
}
