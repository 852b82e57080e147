//! Flushes, counted, so that who comes while one is under way is served by the next.

use std::sync::atomic::AtomicU64;

/// Flushes of a store, counted.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    pub(crate) begun: AtomicU64,
    /// The last one that ended well.
    pub(crate) ended: AtomicU64,
}
