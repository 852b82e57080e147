//! The simplest possible store, for tests of workloads: maps under one lock.
//!
//! Transactions run one after the other. A session holds the whole store from its first operation
//! to its commit, and rolls back from a list of its changes.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::{
    Begin, Clients, Direction, KeyRange, Kv, KvError, KvResult, KvSession, KvStatistics, TableId,
    TransactionLoader, start_threads,
};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Debug, Default)]
struct State {
    tables: Vec<Map>,
    /// Whether a transaction is open.
    taken: bool,
    commits: u64,
    /// One of this many commits that write fails with a conflict, to test retries; 0: none fails.
    conflict_every: u64,
}

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    free: Condvar,
}

/// A store in memory whose transactions run one after the other.
#[derive(Clone, Debug)]
pub struct MemoryKv(Arc<Inner>);

/// A client of a [`MemoryKv`].
#[derive(Debug)]
pub struct MemorySession {
    inner: Arc<Inner>,
    open: Option<Begin>,
    /// The old values where this transaction wrote, oldest first.
    undo: Vec<(TableId, Vec<u8>, Option<Vec<u8>>)>,
}

impl MemoryKv {
    /// Makes an empty store with `tables` tables.
    #[must_use]
    pub fn new(tables: usize) -> Self {
        let state = State { tables: vec![Map::new(); tables], ..State::default() };
        Self(Arc::new(Inner { state: Mutex::new(state), free: Condvar::new() }))
    }

    /// Makes one of every `commits` commits that write fail with a conflict; 0: none fails.
    pub fn conflict_every(&self, commits: u64) {
        self.0.lock().conflict_every = commits;
    }

    /// Returns a new session.
    #[must_use]
    pub fn session(&self) -> MemorySession {
        MemorySession { inner: self.0.clone(), open: None, undo: Vec::new() }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The maps are whole at any time: a panic elsewhere does not change that.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kv for MemoryKv {
    type Session = MemorySession;

    fn describe(&self) -> String {
        "maps in memory".to_owned()
    }

    fn start<F, Fut, T>(&self, clients: usize, client: F) -> KvResult<Clients<T>>
    where
        F: Fn(usize, MemorySession) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = KvResult<T>> + 'static,
        T: Send + 'static,
    {
        let kv = self.clone();
        start_threads(clients, move || Ok(kv.session()), client)
    }

    fn statistics(&self) -> KvResult<KvStatistics> {
        let state = self.0.lock();
        let records = state.tables.iter().flatten();
        let store_bytes: usize = records.map(|(key, value)| key.len() + value.len()).sum();
        Ok(KvStatistics {
            log_commits: Some(state.commits),
            store_bytes: Some(store_bytes as u64),
            ..KvStatistics::default()
        })
    }
}

impl MemorySession {
    fn state(&self, write: bool) -> KvResult<MutexGuard<'_, State>> {
        match self.open {
            None => Err(KvError::Other("no transaction is open".to_owned())),
            Some(begin) if write && begin.read_only => {
                Err(KvError::Other("the transaction is read-only and cannot write".to_owned()))
            }
            Some(_) => Ok(self.inner.lock()),
        }
    }

    fn change(&mut self, table: TableId, key: &[u8], value: Option<&[u8]>) -> KvResult<bool> {
        let mut state = self.state(true)?;
        let map = &mut state.tables[table.index()];
        let old = match value {
            Some(value) => map.insert(key.to_vec(), value.to_vec()),
            None => map.remove(key),
        };
        drop(state);
        let was_there = old.is_some();
        self.undo.push((table, key.to_vec(), old));
        Ok(was_there)
    }

    fn end(&mut self, keep: bool) {
        if self.open.take().is_none() {
            return;
        }
        let mut state = self.inner.lock();
        for (table, key, old) in self.undo.drain(..).rev() {
            if keep {
                continue;
            }
            let map = &mut state.tables[table.index()];
            match old {
                Some(old) => map.insert(key, old),
                None => map.remove(&key),
            };
        }
        state.taken = false;
        drop(state);
        self.inner.free.notify_one();
    }
}

impl KvSession for MemorySession {
    type Loader<'session> = TransactionLoader<'session, Self>;

    async fn begin(&mut self, begin: Begin) -> KvResult<()> {
        self.end(false);
        let mut state = self.inner.lock();
        while state.taken {
            state = self.inner.free.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.taken = true;
        drop(state);
        self.open = Some(begin);
        Ok(())
    }

    async fn get_into(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> KvResult<bool> {
        value.clear();
        let state = self.state(false)?;
        let found = state.tables[table.index()].get(key);
        value.extend_from_slice(found.map_or(&[], Vec::as_slice));
        Ok(found.is_some())
    }

    async fn get_for_update(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> KvResult<bool> {
        self.get_into(table, key, value).await
    }

    async fn put(&mut self, table: TableId, key: &[u8], value: &[u8]) -> KvResult<()> {
        self.change(table, key, Some(value)).map(drop)
    }

    async fn insert(&mut self, table: TableId, key: &[u8], value: &[u8]) -> KvResult<()> {
        if self.change(table, key, Some(value))? {
            return Err(KvError::Other(format!(
                "table {} has the key {key:02x?} already",
                table.0
            )));
        }
        Ok(())
    }

    async fn delete(&mut self, table: TableId, key: &[u8]) -> KvResult<bool> {
        self.change(table, key, None)
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
        let state = self.state(false)?;
        let to = if range.to.is_empty() { Bound::Unbounded } else { Bound::Excluded(range.to) };
        let mut records =
            state.tables[table.index()].range::<[u8], _>((Bound::Included(range.from), to));
        for _ in 0..limit {
            let next = match direction {
                Direction::Forward => records.next(),
                Direction::Backward => records.next_back(),
            };
            let Some((key, value)) = next else { break };
            if each(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }

    async fn commit(&mut self) -> KvResult<()> {
        let mut state = self.state(false)?;
        state.commits += 1;
        let conflict = state.conflict_every > 0
            && !self.undo.is_empty()
            && state.commits.is_multiple_of(state.conflict_every);
        drop(state);
        self.end(!conflict);
        if conflict { Err(KvError::Conflict) } else { Ok(()) }
    }

    async fn rollback(&mut self) -> KvResult<()> {
        self.end(false);
        Ok(())
    }

    async fn loader(&mut self, table: TableId) -> KvResult<Self::Loader<'_>> {
        Ok(TransactionLoader::new(self, table))
    }
}

impl Drop for MemorySession {
    fn drop(&mut self) {
        self.end(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::{KvLoader, block_on};

    const TABLE: TableId = TableId(0);

    async fn sum(session: &mut MemorySession, direction: Direction, limit: usize) -> Vec<u8> {
        let mut keys = Vec::new();
        let range = KeyRange { from: b"b", to: b"e" };
        session
            .scan(TABLE, range, direction, limit, |key, _| {
                keys.extend_from_slice(key);
                ControlFlow::Continue(())
            })
            .await
            .unwrap();
        keys
    }

    #[test]
    fn transactions_are_all_or_nothing() {
        let kv = MemoryKv::new(1);
        let mut session = kv.session();
        block_on(async {
            let mut loader = session.loader(TABLE).await.unwrap();
            for key in [b"a", b"b", b"c", b"d", b"e"] {
                loader.push(key, b"1").await.unwrap();
            }
            loader.finish().await.unwrap();
            let mut value = Vec::new();
            session.begin(Begin::default()).await.unwrap();
            session.put(TABLE, b"a", b"2").await.unwrap();
            assert!(session.delete(TABLE, b"b").await.unwrap());
            assert!(session.insert(TABLE, b"c", b"2").await.is_err());
            assert_eq!(sum(&mut session, Direction::Forward, 9).await, b"cd");
            session.rollback().await.unwrap();
            session.begin(Begin::read_only()).await.unwrap();
            assert!(session.get_into(TABLE, b"a", &mut value).await.unwrap());
            assert_eq!(value, b"1");
            assert_eq!(sum(&mut session, Direction::Forward, 9).await, b"bcd");
            assert_eq!(sum(&mut session, Direction::Backward, 2).await, b"dc");
            assert!(session.put(TABLE, b"a", b"2").await.is_err());
            session.commit().await.unwrap();
            assert!(session.get_into(TABLE, b"a", &mut value).await.is_err());
        });
    }

    #[test]
    fn clients_take_turns() {
        let kv = MemoryKv::new(1);
        kv.conflict_every(7);
        let clients = kv
            .start(4, |_, mut session| async move {
                let mut value = Vec::new();
                let mut conflicts = 0;
                let mut done = 0;
                while done < 100 {
                    session.begin(Begin::default()).await?;
                    session.get_into(TABLE, b"n", &mut value).await?;
                    let next = value.first().map_or(0, |_| {
                        u64::from_be_bytes(value[..].try_into().unwrap_or_default())
                    }) + 1;
                    session.put(TABLE, b"n", &next.to_be_bytes()).await?;
                    match session.commit().await {
                        Ok(()) => done += 1,
                        Err(KvError::Conflict) => conflicts += 1,
                        Err(error) => return Err(error),
                    }
                }
                Ok(conflicts)
            })
            .unwrap();
        assert!(clients.join().unwrap().into_iter().sum::<u64>() > 0);
        let mut session = kv.session();
        let mut value = Vec::new();
        block_on(async {
            session.begin(Begin::read_only()).await.unwrap();
            session.get_into(TABLE, b"n", &mut value).await.unwrap();
        });
        assert_eq!(value, 400_u64.to_be_bytes());
    }
}
