//! A group's tables. The record of a position (what is purged, what is applied, which generation of
//! the state is valid) changes in the transaction that makes it true, or before it.

use crate::Fault;
use crate::chunks::Kept;
use crate::codec::{decode, encode};
use qpair::transaction::Commit;
use qpair::{Durability, Error, ErrorKind, Result, Store, Table, Transaction, TransactionOptions};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::{Arc, PoisonError, RwLock};

/// The keys of the table of positions.
pub(crate) mod key {
    pub(crate) const FORMAT: &[u8] = b"format";
    pub(crate) const VOTE: &[u8] = b"vote";
    pub(crate) const COMMITTED: &[u8] = b"committed";
    pub(crate) const PURGED: &[u8] = b"purged";
    pub(crate) const APPLIED: &[u8] = b"applied";
    pub(crate) const MEMBERSHIP: &[u8] = b"membership";
    pub(crate) const GENERATION: &[u8] = b"generation";
    pub(crate) const SNAPSHOT: &[u8] = b"snapshot";
}

/// The format of a group's tables.
const FORMAT: u32 = 1;

/// The log, vote, state and snapshot that one member of a Raft group keeps in a store. Clones are
/// the same group.
#[derive(Clone, Debug)]
pub struct Group {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    name: String,
    log: Table,
    positions: Table,
    snapshots: Table,
    data: RwLock<Data>,
    kept: Kept,
    fault: Option<Fault>,
}

/// The table of the state. Each installed snapshot makes another one.
#[derive(Clone, Debug)]
pub(crate) struct Data {
    pub(crate) generation: u64,
    pub(crate) table: Table,
    /// Shared with those who read the table: it is dropped after them.
    pub(crate) in_use: Arc<()>,
}

impl Group {
    /// Opens a group, and makes its tables if the store has none of this name. Completes a purge
    /// and removes an unfinished snapshot that a crash left behind.
    ///
    /// A group is opened once at a time. Blocks the thread.
    ///
    /// # Errors
    /// `Invalid` for an empty name or one with a `/`, `Version` if a later version of this crate
    /// made the group, and those of the store.
    pub fn open(store: &Store, name: &str) -> Result<Self> {
        Self::open_with_fault(store, name, None)
    }

    /// Like [`Group::open`], with a bug that a test must find.
    #[doc(hidden)]
    pub fn open_with_fault(store: &Store, name: &str, fault: Option<Fault>) -> Result<Self> {
        if name.is_empty() || name.contains('/') {
            return Err(Error::with_hint(
                ErrorKind::Invalid,
                format!("{name:?} cannot be the name of a group"),
                "use a name of at least one character and without a slash",
            ));
        }
        let positions = store.table(&format!("raft/{name}/positions"))?;
        match positions.get(key::FORMAT)? {
            None => {
                positions.put(key::FORMAT, &encode("the format", &FORMAT)?)?;
            }
            Some(bytes) => {
                let found: u32 = decode("the format", &bytes)?;
                if found != FORMAT {
                    return Err(Error::with_hint(
                        ErrorKind::Version,
                        format!("group {name:?} has format {found}; this version reads {FORMAT}"),
                        "use the version of qpair-openraft that wrote it",
                    ));
                }
            }
        }
        let generation = match positions.get(key::GENERATION)? {
            None => 0,
            Some(bytes) => decode("the generation of the state", &bytes)?,
        };
        let table = store.table(&data_name(name, generation))?;
        let data = Data { generation, table, in_use: Arc::default() };
        let group = Self {
            inner: Arc::new(Inner {
                log: store.table(&format!("raft/{name}/log"))?,
                snapshots: store.table(&format!("raft/{name}/snapshots"))?,
                positions,
                data: RwLock::new(data),
                store: store.clone(),
                name: name.to_owned(),
                kept: Kept::default(),
                fault,
            }),
        };
        group.drop_other_generations(generation)?;
        group.finish_purge()?;
        group.sweep()?;
        Ok(group)
    }

    /// The name of the group.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The store that the group is in.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    pub(crate) fn log(&self) -> &Table {
        &self.inner.log
    }

    pub(crate) fn positions(&self) -> &Table {
        &self.inner.positions
    }

    pub(crate) fn snapshots(&self) -> &Table {
        &self.inner.snapshots
    }

    pub(crate) fn data(&self) -> Data {
        self.inner.data.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes `data` the state; returns the one before.
    pub(crate) fn replace_data(&self, data: Data) -> Data {
        let mut current = self.inner.data.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut current, data)
    }

    pub(crate) fn kept(&self) -> &Kept {
        &self.inner.kept
    }

    pub(crate) fn is_same(&self, other: &Group) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.inner.fault == Some(fault)
    }

    /// A transaction whose commit does not wait for the device, and which sees what is not durable.
    pub(crate) fn begin(&self) -> Transaction {
        self.inner
            .store
            .begin_with(&TransactionOptions { durability: Durability::Async, ..Default::default() })
    }

    pub(crate) fn begin_read(&self) -> Transaction {
        self.inner.store.begin_with(&TransactionOptions {
            durability: Durability::Async,
            read_only: true,
            ..Default::default()
        })
    }

    /// The value of a position.
    pub(crate) fn position<T: DeserializeOwned>(&self, key: &[u8]) -> Result<Option<T>> {
        let mut transaction = self.begin_read();
        let found = transaction.get(self.positions(), key)?;
        found.map(|bytes| decode(&key.escape_ascii().to_string(), &bytes)).transpose()
    }

    /// Writes a position, and does not wait until it is durable.
    pub(crate) async fn put_position<T: Serialize>(
        &self,
        key: &[u8],
        value: Option<&T>,
    ) -> Result<Commit> {
        let mut transaction = self.begin();
        match value {
            Some(value) => {
                let bytes = encode(&key.escape_ascii().to_string(), value)?;
                transaction.put(self.positions(), key, &bytes)?;
            }
            None => {
                transaction.delete(self.positions(), key)?;
            }
        }
        transaction.commit_async().await
    }

    /// Writes the vote; it is durable when the call returns.
    pub(crate) async fn save_vote<T: Serialize>(&self, vote: &T) -> Result<()> {
        if self.has(Fault::LostVote) {
            return Ok(());
        }
        let commit = self.put_position(key::VOTE, Some(vote)).await?;
        if self.has(Fault::EarlyAcknowledgement) {
            return Ok(());
        }
        self.durable(commit).await
    }

    /// Waits, in any runtime, until a commit is durable.
    pub(crate) async fn durable(&self, commit: Commit) -> Result<()> {
        self.inner.store.spawn(move || async move { commit.durable().await }).await?
    }

    fn drop_other_generations(&self, valid: u64) -> Result<()> {
        let prefix = format!("raft/{}/data.", self.inner.name);
        for name in self.inner.store.table_names()? {
            if name.starts_with(&prefix) && name != data_name(&self.inner.name, valid) {
                self.inner.store.drop_table(&name)?;
            }
        }
        Ok(())
    }
}

pub(crate) fn data_name(group: &str, generation: u64) -> String {
    format!("raft/{group}/data.{generation}")
}

/// Runs something that blocks on a thread of its own, whatever the runtime is.
pub(crate) async fn run_on_thread<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let work = move || {
        // The receiver is gone if the caller's future was dropped: nobody needs the outcome.
        let _ = sender.send(run());
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(|error| {
        Error::new(ErrorKind::Io, format!("thread {name:?} cannot be started: {error}"))
    })?;
    let panicked = || Error::new(ErrorKind::Panicked, format!("thread {name:?} panicked"));
    receiver.await.unwrap_or_else(|_| Err(panicked()))
}
