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

    fn give_older_values_up(&self, shared: &Shared, pages_min: u64) -> bool {
        shared.tx.old_device_bytes() / shared.page_size as u64 >= pages_min
            && shared.tx.give_history_up(shared)
    }

    fn older_values_moved(&self, shared: &Arc<Shared>) -> Option<LocalFuture> {
        let shared = shared.clone();
        shared.tx.is_writing_history().then(|| -> LocalFuture {
            Box::pin(async move {
                shared.tx.wait_moved(|| !shared.tx.is_writing_history()).await;
            })
        })
    }
}
