//! What workers do for transactions and checkpoints.

use std::sync::Arc;

use crate::checkpoint::checkpoint;
use crate::shared::Shared;
use crate::sync::LocalFuture;
use crate::task::Upkeep;
use crate::tx;

/// Rows of which a turn forgets older values, at most.
const COLLECT_ROWS: usize = 64;

#[derive(Debug)]
pub(super) struct Chores;

impl Upkeep for Chores {
    fn look(&self, shared: &Arc<Shared>) -> Option<LocalFuture> {
        let slot = tx::collect(shared, COLLECT_ROWS)?;
        Some(Box::pin(tx::spill(shared.clone(), slot)))
    }

    fn checkpoint(&self, shared: Arc<Shared>) -> LocalFuture {
        Box::pin(async move {
            // If it fails, the store is read-only, and says why.
            let _ = checkpoint(&shared, false).await;
        })
    }
}
