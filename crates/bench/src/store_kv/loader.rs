//! Sorted load of a qpair store: a table is filled from its leaves up.

use qpair::Result;
use qpair::task::BulkLoader;

use crate::kv::KvLoader;

impl KvLoader for BulkLoader {
    async fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.push(key, value).await
    }

    async fn finish(self) -> Result<()> {
        self.finish().await.map(drop)
    }

    async fn abandon(self) {
        self.abandon().await;
    }
}
