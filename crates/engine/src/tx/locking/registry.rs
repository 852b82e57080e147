//! The open transactions: their names, their waits for each other, and their reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::tx::versions::RowRef;

/// The activity of an open transaction.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// use qpair_engine::TransactionState;
///
/// let waiting = store.transactions().into_iter().filter(|open| open.state == TransactionState::Waiting);
/// assert_eq!(waiting.count(), 0);
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransactionState {
    /// The transaction reads and gathers writes, or its program does something else.
    Active,
    /// The transaction waits for a row that another transaction has locked.
    Waiting,
    /// The transaction is being committed.
    Committing,
}

/// An open transaction.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// let mut tx = store.begin();
/// tx.put(&table, b"k", b"v")?;
/// for open in store.transactions() {
///     println!("{}: {} rows locked, {} bytes to write", open.id, open.locks, open.write_set_bytes);
/// }
/// assert_eq!(store.transactions().len(), 1);
/// tx.rollback();
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionInfo {
    /// A number that identifies the transaction among the open ones.
    pub id: u64,
    /// The name from the transaction's options.
    pub name: Option<String>,
    /// The worker on which the transaction began; `None` for transactions of other threads.
    pub worker: Option<usize>,
    /// The timestamp of the newest commit when the transaction began.
    pub started: u64,
    /// The number of commits since then.
    pub age_commits: u64,
    /// The timestamp of the transaction's snapshot; `None` before its first read.
    pub snapshot: Option<u64>,
    /// The number of rows that the transaction has locked.
    pub locks: usize,
    /// The size of the writes that the transaction has gathered, in bytes.
    pub write_set_bytes: usize,
    /// The activity of the transaction.
    pub state: TransactionState,
}

/// The data about an open transaction that other threads may read. Only the transaction changes it.
#[derive(Debug, Default)]
pub(crate) struct Info {
    pub(crate) id: AtomicU64,
    pub(crate) started: AtomicU64,
    /// The snapshot's timestamp plus 1, or 0 if there is none.
    pub(crate) snapshot: AtomicU64,
    pub(crate) locks: AtomicU32,
    pub(crate) bytes: AtomicU64,
    /// The encoded row that the transaction waits for plus 1, or 0 if it does not wait.
    pub(crate) waits: AtomicU64,
    pub(crate) committing: AtomicU8,
}

impl Info {
    /// Returns the row that the transaction waits for.
    pub(crate) fn waits(&self) -> Option<RowRef> {
        // SeqCst: partner of the store in `locks`.
        self.waits.load(Ordering::SeqCst).checked_sub(1).map(RowRef::decode)
    }
}

/// Describes a transaction for an error message.
pub(in crate::tx) fn describe(id: u64, name: Option<&str>) -> String {
    name.map_or_else(|| format!("transaction {id}"), |name| format!("the transaction {name}"))
}

const INDEX_BITS: u32 = 22;
const GENERATION_BITS: u32 = 26;

/// The transactions that began on one worker.
#[derive(Default)]
pub(crate) struct Registry {
    infos: Vec<(Arc<Info>, Option<String>)>,
    vacant: Vec<u32>,
    generation: u64,
}

impl Registry {
    /// Adds a transaction.
    pub(crate) fn begin(&mut self, slot: u32, name: Option<&str>, started: u64) -> Arc<Info> {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.infos.push((Arc::default(), None));
            self.infos.len() as u32 - 1
        });
        self.generation = self.generation % ((1 << GENERATION_BITS) - 1) + 1;
        let id = u64::from(slot) << (INDEX_BITS + GENERATION_BITS)
            | u64::from(index) << GENERATION_BITS
            | self.generation;
        let entry = &mut self.infos[index as usize];
        entry.1 = name.map(str::to_owned);
        let info = &entry.0;
        info.started.store(started, Ordering::Relaxed);
        info.snapshot.store(0, Ordering::Relaxed);
        info.locks.store(0, Ordering::Relaxed);
        info.bytes.store(0, Ordering::Relaxed);
        info.waits.store(0, Ordering::Relaxed);
        info.committing.store(0, Ordering::Relaxed);
        info.id.store(id, Ordering::Release);
        info.clone()
    }

    /// Removes a transaction.
    pub(crate) fn end(&mut self, id: u64) {
        if let Some((info, name)) = self.infos.get_mut(index_of(id))
            && info.id.load(Ordering::Relaxed) == id
        {
            info.id.store(0, Ordering::Relaxed);
            *name = None;
            self.vacant.push(index_of(id) as u32);
        }
    }

    /// Returns the data of an open transaction.
    pub(crate) fn get(&self, id: u64) -> Option<&Info> {
        let (info, _) = self.infos.get(index_of(id))?;
        (info.id.load(Ordering::Acquire) == id).then_some(info)
    }

    /// Returns all open transactions.
    pub(crate) fn list(
        &self,
        worker: Option<usize>,
        applied: u64,
    ) -> impl Iterator<Item = TransactionInfo> {
        self.infos.iter().filter_map(move |(info, name)| {
            let id = info.id.load(Ordering::Acquire);
            let started = info.started.load(Ordering::Relaxed);
            (id != 0).then(|| TransactionInfo {
                id,
                name: name.clone(),
                worker,
                started,
                age_commits: applied.saturating_sub(started),
                snapshot: info.snapshot.load(Ordering::Relaxed).checked_sub(1),
                locks: info.locks.load(Ordering::Relaxed) as usize,
                write_set_bytes: info.bytes.load(Ordering::Relaxed) as usize,
                state: if info.waits().is_some() {
                    TransactionState::Waiting
                } else if info.committing.load(Ordering::Relaxed) != 0 {
                    TransactionState::Committing
                } else {
                    TransactionState::Active
                },
            })
        })
    }
}

fn index_of(id: u64) -> usize {
    (id >> GENERATION_BITS) as usize & ((1 << INDEX_BITS) - 1)
}

/// Returns the slot on which a transaction began.
pub(crate) fn slot_of(id: u64) -> usize {
    (id >> (INDEX_BITS + GENERATION_BITS)) as usize
}
