//! Sorted load.

use qpair::task::BulkLoader;

use crate::kv::{KvLoader, KvResult};

/// Fills a table from its leaves up.
pub struct StoreLoader {
    loader: BulkLoader,
}

impl std::fmt::Debug for StoreLoader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreLoader").finish_non_exhaustive()
    }
}

impl StoreLoader {
    pub(super) fn new(loader: BulkLoader) -> Self {
        Self { loader }
    }
}

impl KvLoader for StoreLoader {
    async fn push(&mut self, key: &[u8], value: &[u8]) -> KvResult<()> {
        Ok(self.loader.push(key, value).await?)
    }

    async fn finish(self) -> KvResult<()> {
        self.loader.finish().await?;
        Ok(())
    }

    async fn abandon(self) {
        self.loader.abandon().await;
    }
}
