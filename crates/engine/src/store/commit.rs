//! The result of a commit.

use std::sync::Arc;

use qpair_format::{ErrorKind, Result};

use super::StoreInner;
use crate::tx::wait_durable;

/// A commit that was made.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// let mut tx = store.begin();
/// tx.put(&table, b"k", b"v")?;
/// let commit = tx.commit()?;
/// commit.wait_durable()?;
/// assert!(store.snapshot()?.timestamp() >= commit.timestamp());
/// # drop(commit);
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Commit {
    pub(super) timestamp: u64,
    pub(super) inner: Arc<StoreInner>,
}

impl std::fmt::Debug for Commit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Commit").field("timestamp", &self.timestamp).finish_non_exhaustive()
    }
}

impl Commit {
    /// Returns the commit's timestamp: of two commits of a store the later one has the greater
    /// timestamp. For a transaction without writes, this is the newest commit that it may have
    /// seen.
    #[must_use]
    pub fn timestamp(&self) -> u64 {
        self.timestamp
    }

    /// Waits, in a task, until the commit survives power loss. Returns at once in a store without a
    /// log, where commits become durable only when the store is closed.
    ///
    /// # Errors
    /// The error of the device that made the store read-only.
    pub async fn durable(&self) -> Result<()> {
        wait_durable(&self.inner.shared, self.timestamp).await
    }

    /// Like [`Commit::durable`], for threads that are no workers; also after the store was closed.
    ///
    /// # Errors
    /// As [`Commit::durable`]; `Invalid` on a worker.
    pub fn wait_durable(&self) -> Result<()> {
        let commit = self.clone();
        match self.inner.block_on(move || async move { commit.durable().await }) {
            // A close makes all commits durable, or has the error.
            Err(error) if error.kind() == ErrorKind::Closed => {
                self.inner.outcome_of_close().unwrap_or(Err(error))
            }
            outcome => outcome,
        }
    }
}
