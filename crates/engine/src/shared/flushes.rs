//! Counts flushes, so that the next one serves every caller that comes while one is under way.

use std::sync::atomic::AtomicU64;

/// Flushes of a store, counted.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    pub(crate) begun: AtomicU64,
    /// The last one that ended well.
    pub(crate) ended: AtomicU64,
}
