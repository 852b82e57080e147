//! The open transactions: their names, which one waits for which, and what a report shows of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::rows::RowRef;

/// What an open transaction does.
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
    /// It reads and gathers writes, or its program does something else.
    Active,
    /// It waits for a row that another transaction has locked.
    Waiting,
    /// It is being committed.
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
    /// Names it; no other open transaction has this number.
    pub id: u64,
    /// The name its options gave it.
    pub name: Option<String>,
    /// The worker it was begun on; none for those of other threads.
    pub worker: Option<usize>,
    /// The newest commit when it began.
    pub started: u64,
    /// Commits since then.
    pub age_commits: u64,
    /// The commit up to which it sees the store; none before its first read.
    pub snapshot: Option<u64>,
    /// Rows it has locked.
    pub locks: usize,
    /// Bytes of what it has gathered to write.
    pub write_set_bytes: usize,
    /// What it does.
    pub state: TransactionState,
}

/// What others may know of an open transaction. Only the transaction changes it.
#[derive(Debug, Default)]
pub(crate) struct Info {
    pub(crate) id: AtomicU64,
    pub(crate) started: AtomicU64,
    /// One more than the snapshot's timestamp; 0: there is none.
    pub(crate) snapshot: AtomicU64,
    pub(crate) locks: AtomicU32,
    pub(crate) bytes: AtomicU64,
    /// One more than the encoded row it waits for; 0: it does not wait.
    pub(crate) waits: AtomicU64,
    pub(crate) committing: AtomicU8,
}

impl Info {
    /// The row it waits for.
    pub(crate) fn waits(&self) -> Option<RowRef> {
        // SeqCst: partner of the store in `locks`.
        self.waits.load(Ordering::SeqCst).checked_sub(1).map(RowRef::decode)
    }
}

/// What people call a transaction.
pub(super) fn describe(id: u64, name: Option<&str>) -> String {
    name.map_or_else(|| format!("transaction {id}"), |name| format!("the transaction {name}"))
}

const INDEX_BITS: u32 = 22;
const GENERATION_BITS: u32 = 26;

/// The transactions that were begun on one worker.
#[derive(Default)]
pub(crate) struct Registry {
    infos: Vec<(Arc<Info>, Option<String>)>,
    vacant: Vec<u32>,
    generation: u64,
}

impl Registry {
    /// Enters a transaction.
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

    /// Forgets a transaction.
    pub(crate) fn end(&mut self, id: u64) {
        if let Some((info, name)) = self.infos.get_mut(index_of(id))
            && info.id.load(Ordering::Relaxed) == id
        {
            info.id.store(0, Ordering::Relaxed);
            *name = None;
            self.vacant.push(index_of(id) as u32);
        }
    }

    /// A transaction that is open.
    pub(crate) fn get(&self, id: u64) -> Option<&Info> {
        let (info, _) = self.infos.get(index_of(id))?;
        (info.id.load(Ordering::Acquire) == id).then_some(info)
    }

    /// All that are open.
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

/// The slot that a transaction was begun on.
pub(crate) fn slot_of(id: u64) -> usize {
    (id >> (INDEX_BITS + GENERATION_BITS)) as usize
}
