//! What workers do for the layers above, which they do not know.

use std::fmt::Debug;
use std::sync::Arc;

use crate::shared::Shared;
use crate::sync::LocalFuture;

/// Handed to workers by those who start them.
pub(crate) trait Upkeep: Debug + Sync {
    /// A look, within a turn, at what commits left behind; a task for this worker if there is more to do than that.
    fn look(&self, shared: &Arc<Shared>) -> Option<LocalFuture>;

    /// Makes a checkpoint. If it fails, the store says why.
    fn checkpoint(&self, shared: Arc<Shared>) -> LocalFuture;
}
