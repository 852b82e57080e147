//! Background work of the workers for transactions and checkpoints.

use std::sync::Arc;

use crate::checkpoint::checkpoint;
use crate::sync::LocalFuture;
use crate::task::Upkeep;
use crate::tx::{self, Tx};

/// The maximum number of rows whose older values one turn drops.
const COLLECT_ROWS: usize = 64;

pub(super) struct Chores {
    pub(super) tx: Arc<Tx>,
}

impl Upkeep for Chores {
    fn look(&self) -> Option<LocalFuture> {
        let slot = tx::collect(&self.tx, COLLECT_ROWS)?;
        Some(Box::pin(tx::spill(self.tx.clone(), slot)))
    }

    fn checkpoint(&self) -> LocalFuture {
        let tx = self.tx.clone();
        Box::pin(async move {
            // If the checkpoint fails, the store is read-only and has the error.
            let _ = checkpoint(&tx.shared, false).await;
        })
    }

    fn give_older_values_up(&self, pages_min: u64) -> bool {
        self.tx.old_device_bytes() / self.tx.shared.page_size as u64 >= pages_min
            && self.tx.give_history_up()
    }

    fn older_values_moved(&self) -> Option<LocalFuture> {
        let tx = self.tx.clone();
        tx.is_writing_history().then(|| -> LocalFuture {
            Box::pin(async move {
                tx.wait_moved(|| !tx.is_writing_history()).await;
            })
        })
    }
}
