//! A peer as the workloads of `qpair-bench` see it: each client has a thread, and its futures are ready at once.

use std::fmt;
use std::future::Future;
use std::ops::ControlFlow;

use qpair_bench::kv::{
    Begin, Clients, Direction, Durability, KeyRange, Kv, KvError, KvResult, KvSession,
    KvStatistics, TableId, TransactionLoader, start_threads,
};

use crate::engine::{Engine, Session, Span, Start};
use crate::error::Error;

/// A peer's store.
#[derive(Clone)]
pub struct Peer<E: Engine>(E);

/// A peer's session.
pub struct PeerSession<S: Session>(S);

impl<E: Engine> fmt::Debug for Peer<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Peer").field(&E::NAME).finish()
    }
}

impl<S: Session> fmt::Debug for PeerSession<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerSession").field("open", &self.0.is_open()).finish()
    }
}

impl From<Error> for KvError {
    fn from(error: Error) -> Self {
        match error {
            Error::Conflict(_) => Self::Conflict,
            Error::Failed(why) => Self::Other(why),
        }
    }
}

impl<E: Engine> Peer<E> {
    /// The workloads' view of a store.
    #[must_use]
    pub fn new(engine: E) -> Self {
        Self(engine)
    }
}

impl<E: Engine> Kv for Peer<E> {
    type Session = PeerSession<E::Session>;

    fn describe(&self) -> String {
        format!("{}: {}", E::NAME, self.0.settings())
    }

    fn start<F, Fut, T>(&self, clients: usize, client: F) -> KvResult<Clients<T>>
    where
        F: Fn(usize, Self::Session) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = KvResult<T>> + 'static,
        T: Send + 'static,
    {
        let engine = self.0.clone();
        start_threads(clients, move || Ok(PeerSession(engine.session()?)), client)
    }

    fn statistics(&self) -> KvResult<KvStatistics> {
        Ok(KvStatistics {
            log_flushes: self.0.log_flushes(),
            store_bytes: Some(crate::folder::allocated_bytes(self.0.path())),
            ..KvStatistics::default()
        })
    }
}

impl<S: Session> KvSession for PeerSession<S> {
    type Loader<'session>
        = TransactionLoader<'session, Self>
    where
        S: 'session;

    async fn begin(&mut self, begin: Begin) -> KvResult<()> {
        self.0.rollback()?;
        let sync = begin.durability != Durability::Async;
        Ok(self.0.begin(Start { read_only: begin.read_only, sync })?)
    }

    async fn get_into(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> KvResult<bool> {
        Ok(self.0.get(table.0, key, value)?)
    }

    async fn get_for_update(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> KvResult<bool> {
        Ok(self.0.get_for_update(table.0, key, value)?)
    }

    async fn lock(&mut self, table: TableId, key: &[u8]) -> KvResult<()> {
        Ok(self.0.lock(table.0, key)?)
    }

    async fn put(&mut self, table: TableId, key: &[u8], value: &[u8]) -> KvResult<()> {
        Ok(self.0.put(table.0, key, value)?)
    }

    async fn insert(&mut self, table: TableId, key: &[u8], value: &[u8]) -> KvResult<()> {
        Ok(self.0.put(table.0, key, value)?)
    }

    async fn delete(&mut self, table: TableId, key: &[u8]) -> KvResult<bool> {
        Ok(self.0.delete(table.0, key)?)
    }

    async fn scan<F>(
        &mut self,
        table: TableId,
        range: KeyRange<'_>,
        direction: Direction,
        limit: usize,
        mut each: F,
    ) -> KvResult<()>
    where
        F: FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    {
        let span =
            Span { from: range.from, to: range.to, backward: direction == Direction::Backward };
        let mut left = limit;
        if left == 0 {
            return Ok(());
        }
        Ok(self.0.scan(table.0, span, &mut |key, value| {
            left -= 1;
            each(key, value).is_continue() && left > 0
        })?)
    }

    async fn commit(&mut self) -> KvResult<()> {
        Ok(self.0.commit()?)
    }

    async fn rollback(&mut self) -> KvResult<()> {
        Ok(self.0.rollback()?)
    }

    async fn loader(&mut self, table: TableId) -> KvResult<Self::Loader<'_>> {
        Ok(TransactionLoader::new(self, table))
    }
}
