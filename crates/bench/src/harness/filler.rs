//! The sink of the rows of a load: a table's loader that reports progress and can be stopped.

use std::sync::Arc;

use crate::harness::Errand;
use crate::kv::{KvLoader, KvResult};

/// Rows between two checks whether to stop.
const ROWS: u64 = 1024;

pub(crate) struct Sink<L> {
    loader: L,
    pushed: u64,
    errand: Arc<Errand>,
}

impl<L: KvLoader> Sink<L> {
    pub(crate) fn new(loader: L, errand: Arc<Errand>) -> Self {
        Self { loader, pushed: 0, errand }
    }

    pub(crate) async fn push(&mut self, key: &[u8], row: &[u8]) -> KvResult<()> {
        self.loader.push(key, row).await?;
        self.pushed += 1;
        if self.pushed.is_multiple_of(ROWS) {
            self.errand.advance(ROWS)?;
            // Making rows is computing; a worker has others to serve, its device among them.
            qpair::task::yield_now().await;
        }
        Ok(())
    }

    /// Ends the load, and returns the number of rows.
    pub(crate) async fn finish(self) -> KvResult<u64> {
        self.loader.finish().await?;
        Ok(self.pushed)
    }

    pub(crate) async fn abandon(self) {
        self.loader.abandon().await;
    }
}
