//! What a commit gives.

use std::sync::Arc;

use qpair_format::{ErrorKind, Result};

use super::StoreInner;
use crate::tx::wait_durable;

/// A commit that was made.
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
    /// The commit's number: of two commits of a store the later has the greater one. For a transaction that wrote nothing
    /// the newest commit that it may have seen.
    #[must_use]
    pub fn timestamp(&self) -> u64 {
        self.timestamp
    }

    /// Waits, in a task, until the commit survives power loss. In a store without a log that is when the store is closed,
    /// and this does not wait.
    ///
    /// # Errors
    /// The failure of the device that made the store read-only.
    pub async fn durable(&self) -> Result<()> {
        wait_durable(&self.inner.shared, self.timestamp).await
    }

    /// [`Commit::durable`] for threads that are no workers, also after the store was closed.
    ///
    /// # Errors
    /// As [`Commit::durable`]; `Invalid` on a worker.
    pub fn wait_durable(&self) -> Result<()> {
        let commit = self.clone();
        match self.inner.block_on(move || async move { commit.durable().await }) {
            // A close makes all durable, or says why not.
            Err(error) if error.kind() == ErrorKind::Closed => {
                self.inner.outcome_of_close().unwrap_or(Err(error))
            }
            outcome => outcome,
        }
    }
}
