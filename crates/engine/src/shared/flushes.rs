//! Counts flushes, so that the next one serves every caller that comes while one is under way.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::sync::AsyncMutex;

#[derive(Default)]
pub(crate) struct Flushes {
    /// Held by a task that flushes the device.
    pub(crate) alone: Arc<AsyncMutex>,
    pub(crate) begun: AtomicU64,
    /// The number of the last flush that succeeded.
    pub(crate) ended: AtomicU64,
}
