//! A peer as the workloads of `qpair-bench` see it: each client has a thread, and its futures are
//! ready at once.

use std::fmt;
use std::future::Future;
use std::ops::ControlFlow;
use std::time::Duration;

use qpair_bench::kv::{
    Begin, Clients, Direction, Durability, KeyRange, Kv, KvSession, KvStatistics, System, TableId,
    start_threads,
};

use crate::engine::{Engine, Session, Span, Start};
use crate::error::Error;
use crate::loader::TransactionLoader;

#[derive(Clone)]
pub struct Peer<E: Engine> {
    engine: E,
    note: String,
}

pub struct PeerSession<S: Session> {
    session: S,
    /// The number of consecutive transactions that lost a conflict.
    lost: u32,
}

impl<E: Engine> fmt::Debug for Peer<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Peer").field(&E::NAME).finish()
    }
}

impl<S: Session> fmt::Debug for PeerSession<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerSession").field("open", &self.session.is_open()).finish()
    }
}

impl From<Error> for qpair::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Conflict(why) => Self::new(qpair::ErrorKind::Conflict, why),
            Error::Failed(why) => Self::new(qpair::ErrorKind::Invalid, why),
        }
    }
}

impl<E: Engine> Peer<E> {
    #[must_use]
    pub fn new(engine: E) -> Self {
        Self { engine, note: String::new() }
    }

    /// Adds to how the store was opened, for reports.
    #[must_use]
    pub fn with_note(self, note: &str) -> Self {
        Self { note: note.to_owned(), ..self }
    }
}

impl<E: Engine> Kv for Peer<E> {
    fn describe(&self) -> String {
        let note = if self.note.is_empty() { String::new() } else { format!("; {}", self.note) };
        format!("{}: {}{note}", E::NAME, self.engine.settings())
    }
}

impl<E: Engine> System for Peer<E> {
    type Session = PeerSession<E::Session>;

    fn start<F, Fut, T>(&self, clients: usize, client: F) -> qpair::Result<Clients<T>>
    where
        F: Fn(usize, Self::Session) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = qpair::Result<T>> + 'static,
        T: Send + 'static,
    {
        let engine = self.engine.clone();
        start_threads(
            clients,
            move || Ok(PeerSession { session: engine.session()?, lost: 0 }),
            client,
        )
    }

    fn statistics(&self) -> qpair::Result<KvStatistics> {
        Ok(KvStatistics {
            log_flushes: self.engine.log_flushes(),
            store_bytes: Some(crate::folder::allocated_bytes(self.engine.path())),
            ..KvStatistics::default()
        })
    }
}

impl<S: Session> PeerSession<S> {
    /// Counts lost conflicts.
    fn judge<T>(&mut self, outcome: Result<T, Error>) -> qpair::Result<T> {
        if let Err(Error::Conflict(_)) = outcome {
            self.lost += 1;
        }
        Ok(outcome?)
    }

    /// Lets the transaction that was lost to go on, where the peer does not wait for it: 10 us
    /// after the first time, twice as long after each further one, 1 ms at most.
    fn back_off(&self) {
        if S::NEVER_WAITS && self.lost > 0 {
            let us = 10_u64 << (self.lost - 1).min(7);
            std::thread::sleep(Duration::from_micros(us.min(1000)));
        }
    }
}

impl<S: Session> KvSession for PeerSession<S> {
    type Loader<'session>
        = TransactionLoader<'session, Self>
    where
        S: 'session;

    async fn begin(&mut self, begin: Begin) -> qpair::Result<()> {
        self.session.rollback()?;
        self.back_off();
        let sync = begin.durability != Durability::Async;
        let outcome = self.session.begin(Start { read_only: begin.read_only, sync });
        self.judge(outcome)
    }

    async fn get_into(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> qpair::Result<bool> {
        let outcome = self.session.get(table.0, key, value);
        self.judge(outcome)
    }

    async fn get_for_update(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> qpair::Result<bool> {
        let outcome = self.session.get_for_update(table.0, key, value);
        self.judge(outcome)
    }

    async fn lock(&mut self, table: TableId, key: &[u8]) -> qpair::Result<()> {
        let outcome = self.session.lock(table.0, key);
        self.judge(outcome)
    }

    async fn put(&mut self, table: TableId, key: &[u8], value: &[u8]) -> qpair::Result<()> {
        let outcome = self.session.put(table.0, key, value);
        self.judge(outcome)
    }

    async fn insert(&mut self, table: TableId, key: &[u8], value: &[u8]) -> qpair::Result<()> {
        let outcome = self.session.put(table.0, key, value);
        self.judge(outcome)
    }

    async fn delete(&mut self, table: TableId, key: &[u8]) -> qpair::Result<bool> {
        let outcome = self.session.delete(table.0, key);
        self.judge(outcome)
    }

    async fn scan<F>(
        &mut self,
        table: TableId,
        range: KeyRange<'_>,
        direction: Direction,
        limit: usize,
        mut each: F,
    ) -> qpair::Result<()>
    where
        F: FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    {
        let span =
            Span { from: range.from, to: range.to, backward: direction == Direction::Backward };
        let mut left = limit;
        if left == 0 {
            return Ok(());
        }
        let outcome = self.session.scan(table.0, span, &mut |key, value| {
            left -= 1;
            each(key, value).is_continue() && left > 0
        });
        self.judge(outcome)
    }

    async fn commit(&mut self) -> qpair::Result<()> {
        let outcome = self.session.commit();
        self.judge(outcome)?;
        self.lost = 0;
        Ok(())
    }

    async fn rollback(&mut self) -> qpair::Result<()> {
        Ok(self.session.rollback()?)
    }

    async fn loader(&mut self, table: TableId) -> qpair::Result<Self::Loader<'_>> {
        Ok(TransactionLoader::new(self, table))
    }
}
