//! A commit that ends, even if the task that requested it goes away.

use qpair_format::{Error, Result};

use super::progress::{Committed, Progress};
use crate::task::spawn_here;
use crate::tx::transaction::TxState;

/// A commit under way. If this is dropped after the timestamp was taken, another task completes the
/// commit.
pub(crate) struct Committing {
    /// `None` once another task has the commit.
    progress: Option<Progress>,
    /// Whether this is the rest of a commit whose requesting task went away.
    is_rest: bool,
}

impl Committing {
    /// Begins the commit of a transaction that has writes, after
    /// [`begin_change`](crate::incarnation::Incarnation::begin_change). Inlined, so that the state
    /// is built where it stays.
    #[inline(always)]
    pub(crate) fn new(core: TxState) -> Self {
        Self { progress: Some(Progress::new(core)), is_rest: false }
    }

    fn progress(&mut self) -> Result<&mut Progress> {
        self.progress.as_mut().ok_or_else(Error::closed)
    }

    /// Continues the commit from its present phase to its end.
    pub(crate) async fn complete(&mut self) -> Result<Committed> {
        self.progress()?.complete().await
    }

    /// Commits on a caller's thread, as far as possible without waiting; returns `None` if the
    /// commit must continue on a worker.
    pub(crate) fn inline(&mut self) -> Result<Option<Committed>> {
        self.progress()?.inline()
    }
}

impl Drop for Committing {
    fn drop(&mut self) {
        // If the rest is dropped too, there are no workers left: the store ended without being
        // closed.
        if self.is_rest {
            return;
        }
        let Some(mut progress) = self.progress.take_if(|progress| progress.must_end()) else {
            return;
        };
        let tx = progress.core.tx.clone();
        if tx.shared.lifecycle.panicked().is_some() {
            // No task continues after a panic.
            progress.keep_large();
            return;
        }
        let mut rest = Self { progress: Some(progress), is_rest: true };
        // The task runs on the worker whose log waits for this timestamp, since the commit was
        // dropped there.
        spawn_here(&tx.shared, move || async move {
            // The requesting task has ended. A failure has made the store read-only, and later
            // calls return it.
            let _ = rest.complete().await;
        });
    }
}

/// Commits a transaction, in a task; returns its timestamp.
pub(crate) async fn commit(mut core: TxState) -> Result<u64> {
    if let Some(done) = nothing_to_do(&mut core)? {
        let (waits, seen) = core.seen();
        core.tx.shared.wait_to_give(waits, seen).await?;
        return Ok(done);
    }
    core.tx.incarnation.begin_change()?;
    Ok(Committing::new(core).complete().await?.timestamp)
}

/// Ends a transaction without writes and returns its timestamp; returns `None` if there are writes.
/// The data that it has read may not be durable yet.
pub(crate) fn nothing_to_do(core: &mut TxState) -> Result<Option<u64>> {
    if let Some(doomed) = &core.doomed {
        return Err(doomed.clone());
    }
    if core.has_writes() {
        return Ok(None);
    }
    let timestamp = core.snapshot.unwrap_or_else(|| core.shared().oracle.applied());
    core.end();
    Ok(Some(timestamp))
}
