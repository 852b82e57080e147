//! Work that workers do for the layers above, which the engine's task layer does not know.

use crate::sync::LocalFuture;

/// The code that starts a worker hands this to it.
pub(crate) trait Upkeep: Send + Sync {
    /// A look, within a turn, at what commits left behind; a task for this worker if there is more to do than that.
    fn look(&self) -> Option<LocalFuture>;

    /// Makes a checkpoint. If it fails, the store says why.
    fn checkpoint(&self) -> LocalFuture;

    /// Gives up the snapshots that need older values on the device, if those have so many pages; whether that frees some, now or with the next
    /// checkpoint.
    fn give_older_values_up(&self, pages_min: u64) -> bool;

    /// Waits for older values that are on their way to the device; nothing if none are.
    fn older_values_moved(&self) -> Option<LocalFuture>;
}
