//! The loader of a table that reports progress and can be stopped.

use std::sync::Arc;

use qpair::Result;

use super::job::Job;
use crate::kv::{KvLoader, KvSession, TableId};

/// The number of rows between two checks whether to stop.
const ROWS: u64 = 1024;

pub(crate) struct Filler<L> {
    loader: L,
    pushed: u64,
    job: Arc<Job>,
}

impl<L: KvLoader> Filler<L> {
    pub(crate) async fn begin<'session, S>(
        session: &'session mut S,
        table: TableId,
        job: &Arc<Job>,
    ) -> Result<Self>
    where
        S: KvSession<Loader<'session> = L>,
    {
        Ok(Self { loader: session.loader(table).await?, pushed: 0, job: job.clone() })
    }

    pub(crate) async fn push(&mut self, key: &[u8], row: &[u8]) -> Result<()> {
        self.loader.push(key, row).await?;
        self.pushed += 1;
        if self.pushed.is_multiple_of(ROWS) {
            self.job.advance(ROWS)?;
            // Making rows takes processor time; a worker has other tasks to run, and its device to
            // serve.
            qpair::task::yield_now().await;
        }
        Ok(())
    }

    /// Ends the load, or abandons it after an error. Returns the number of rows.
    pub(crate) async fn end(self, outcome: Result<()>) -> Result<u64> {
        match outcome {
            Ok(()) => self.loader.finish().await?,
            Err(error) => {
                self.loader.abandon().await;
                return Err(error);
            }
        }
        Ok(self.pushed)
    }
}
