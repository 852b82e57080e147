//! Loading by transactions, for stores without a sorted load of their own.

use qpair::Result;
use qpair_bench::kv::{Begin, Durability, KvLoader, KvSession, TableId};

/// The number of records of one transaction of a load.
const BATCH: usize = 1000;

/// Fills a table by transactions of 1000 inserts that do not wait to be durable.
pub struct TransactionLoader<'session, S: KvSession> {
    session: &'session mut S,
    table: TableId,
    /// The number of records of the open transaction; 0 if no transaction is open.
    pending: usize,
}

impl<S: KvSession> std::fmt::Debug for TransactionLoader<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TransactionLoader").field("table", &self.table).finish_non_exhaustive()
    }
}

impl<'session, S: KvSession> TransactionLoader<'session, S> {
    /// Begins to fill a table.
    pub fn new(session: &'session mut S, table: TableId) -> Self {
        Self { session, table, pending: 0 }
    }
}

impl<S: KvSession> KvLoader for TransactionLoader<'_, S> {
    async fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.pending == 0 {
            self.session.begin(Begin::read_write(Durability::Async)).await?;
        }
        self.session.insert(self.table, key, value).await?;
        self.pending += 1;
        if self.pending == BATCH {
            self.pending = 0;
            self.session.commit().await?;
        }
        Ok(())
    }

    async fn finish(self) -> Result<()> {
        if self.pending > 0 { self.session.commit().await } else { Ok(()) }
    }

    async fn abandon(self) {
        // Whatever the result, the load is over.
        let _ = self.session.rollback().await;
    }
}
