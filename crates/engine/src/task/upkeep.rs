//! Work that workers do for the layers above, which the engine's task layer does not know.

use crate::sync::LocalFuture;

/// The work for the layers above, given to a worker by the code that starts it.
pub(crate) trait Upkeep: Send + Sync {
    /// Looks, within a turn, at the work that commits left behind. Returns a task for this worker
    /// if there is more to do.
    fn look(&self) -> Option<LocalFuture>;

    /// Makes a checkpoint. If it fails, the store holds the error.
    fn checkpoint(&self) -> LocalFuture;

    /// Gives up the snapshots that need older values on the device, if those values have at least
    /// `pages_min` pages. Returns whether that frees pages, now or with the next checkpoint.
    fn give_older_values_up(&self, pages_min: u64) -> bool;

    /// Waits for older values that are being moved to the device. Returns `None` if there are none.
    fn older_values_moved(&self) -> Option<LocalFuture>;
}
