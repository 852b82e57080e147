//! Transactions: snapshots, row locks, private writes, commits. See docs/design/transactions.md.
//!
//! Invariants: the trees have committed data only. A leaf has the newest committed values; the
//! values before them are in the row table as long as a snapshot needs them. A transaction keeps
//! its writes to itself until it commits, and holds the lock of each row that it will write.

mod commit;
mod history;
mod locking;
mod transaction;
mod versions;

pub(crate) use commit::{
    Committing, Inline, Reach, commit, delete, nothing_to_do, put, put_inline, wait_durable,
};
pub(crate) use history::{collect, spill};
pub(crate) use locking::{Awaited, Inside};
pub use locking::{TransactionInfo, TransactionState};
pub(crate) use transaction::{
    Contended, PrefetchSet, RangeCursor, SnapshotCore, TxState, View, bounds, next_inline,
    next_into,
};
pub use transaction::{Isolation, KeyBounds, Prefix, Savepoint, TransactionOptions};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use qpair_block::format_bytes;
use qpair_format::{Error, ErrorKind, Result};
use qpair_memory::locks::Mutex;

use history::{History, Queue};
use locking::{Info, Names, Registry, slot_of};
use transaction::{RecentCommits, Spare, UncommittedLarge};
use versions::{RowRef, Rows, Snapshots};

use crate::incarnation::Incarnation;
use crate::shared::Shared;
use crate::sync::Waiters;
use crate::task::current;

/// Limits of a store's transactions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TxOptions {
    /// Limit on the memory for older values that snapshots need, in bytes.
    pub(crate) versions_bytes_max: u64,
    /// Limit on the device space for these values, in bytes.
    pub(crate) history_bytes_max: u64,
    /// Limit on the keys of recent commits, kept for serializable transactions, in bytes.
    pub(crate) recent_bytes_max: usize,
    /// Limit on the memory for a transaction's writes, in bytes. The options of a transaction
    /// override it.
    pub(crate) transaction_bytes_max: usize,
    /// How long a transaction waits for a locked row. The options of a transaction override it.
    pub(crate) lock_timeout: Option<Duration>,
}

/// The state that all transactions of a store share.
pub(crate) struct Tx {
    pub(crate) shared: Arc<Shared>,
    pub(super) incarnation: Arc<Incarnation>,
    pub(crate) rows: Rows,
    /// Undo versions that snapshots need and that are no longer in the row table.
    pub(crate) history: History,
    pub(crate) names: Names,
    /// One slot for each worker, and one for all other threads.
    slots: Box<[Slot]>,
    large: UncommittedLarge,
    /// The recent commits, kept while serializable transactions are open.
    recent: Arc<RecentCommits>,
    /// Device space of replaced large values whose before-images are kept, in bytes.
    old_large_bytes: AtomicU64,
    /// The newest commit that replaced a large value.
    old_large_newest: AtomicU64,
    /// Tasks that wait until undo versions are on the device, or have moved from run to run.
    moved: Waiters,
    /// Snapshots below this timestamp are lost.
    lost_below: AtomicU64,
    /// A lower bound of the snapshots in use, from the last search.
    oldest: AtomicU64,
    pub(crate) versions_bytes_max: u64,
    pub(crate) transaction_bytes_max: usize,
    lock_timeout: Option<Duration>,
}

/// A worker's part of the transactions' state.
#[repr(align(128))]
#[derive(Default)]
struct Slot {
    open: Mutex<Open>,
    /// Commits whose before-images are kept, in the order in which they ended.
    queue: Mutex<Queue>,
    /// The size of these before-images, in bytes.
    bytes: AtomicU64,
    /// Whether a task is moving the oldest before-images to the device.
    spills: AtomicBool,
}

#[derive(Default)]
struct Open {
    snapshots: Snapshots,
    registry: Registry,
    spare: Spare,
}

impl Tx {
    pub(crate) fn new(incarnation: Arc<Incarnation>, options: TxOptions) -> Self {
        let shared = incarnation.shared.clone();
        let workers = shared.worker_handles.len();
        Self {
            rows: Rows::new(&shared.planted),
            shared,
            incarnation,
            history: History::new(options.history_bytes_max),
            names: Names::default(),
            slots: (0..=workers).map(|_| Slot::default()).collect(),
            large: UncommittedLarge::default(),
            recent: Arc::new(RecentCommits::new(options.recent_bytes_max)),
            old_large_bytes: AtomicU64::new(0),
            old_large_newest: AtomicU64::new(0),
            moved: Waiters::default(),
            lost_below: AtomicU64::new(0),
            oldest: AtomicU64::new(0),
            versions_bytes_max: options.versions_bytes_max,
            transaction_bytes_max: options.transaction_bytes_max,
            lock_timeout: options.lock_timeout,
        }
    }

    /// Takes a snapshot of everything that is committed. It is in use until [`Tx::leave_snapshot`].
    fn enter_snapshot(&self, slot: usize) -> u64 {
        let mut open = self.slots[slot].open.lock();
        let timestamp = self.shared.oracle.applied();
        open.snapshots.enter(timestamp);
        timestamp
    }

    fn leave_snapshot(&self, slot: usize, timestamp: u64) {
        self.slots[slot].open.lock().snapshots.leave(timestamp);
    }

    /// Returns an error if a snapshot was given up, since undo versions that it needs may be gone.
    /// Must be called after reading with the snapshot.
    #[inline]
    fn check_snapshot(&self, timestamp: u64, name: impl FnOnce() -> String) -> Result<()> {
        // Acquire: the shards' locks give the order: a reader that misses an undo version finds
        // this raised.
        if timestamp >= self.lost_below.load(Ordering::Acquire) {
            return Ok(());
        }
        if self.shared.oracle.is_closed() {
            return Err(Error::closed());
        }
        let age = self.shared.oracle.applied().saturating_sub(timestamp);
        Err(Error::with_hint(
            ErrorKind::SnapshotLost,
            format!(
                "the snapshot of {} was dropped, {age} commits old: its undo versions exceeded the limits of {} memory and {} disk, or the disk is full",
                name(),
                format_bytes(self.versions_bytes_max),
                format_bytes(self.history.bytes_max()),
            ),
            "end long transactions and snapshots sooner, change less in one transaction, or raise versions_bytes_max or history_bytes_max of the store",
        ))
    }

    /// Returns the row that an open transaction waits for.
    fn waits_of(&self, id: u64) -> Option<RowRef> {
        self.slots.get(slot_of(id))?.open.lock().registry.get(id).and_then(Info::waits)
    }

    /// Returns the open transactions, in the order in which they began.
    pub(crate) fn transactions(&self) -> Vec<TransactionInfo> {
        let (applied, workers) = (self.shared.oracle.applied(), self.slots.len() - 1);
        let mut all: Vec<_> = self
            .slots
            .iter()
            .enumerate()
            .flat_map(|(slot, state)| {
                let worker = (slot < workers).then_some(slot);
                state.open.lock().registry.list(worker, applied).collect::<Vec<_>>()
            })
            .collect();
        all.sort_by_key(|info| info.started);
        all
    }

    /// Describes an open transaction for an error message.
    fn describe(&self, id: u64) -> String {
        let name = self.transactions().into_iter().find(|it| it.id == id).and_then(|it| it.name);
        locking::describe(id, name.as_deref())
    }

    /// Drops what snapshots and open transactions keep, when the store is being closed and no
    /// commit is under way.
    pub(crate) fn collect_all(&self) {
        self.drop_images();
        self.large.free_all(&self.shared);
    }

    /// Refuses new commits, and ends every wait for a lock.
    pub(crate) fn close(&self) {
        self.shared.oracle.close();
        self.rows.wake_all();
    }
}

/// Returns the slot for transactions and snapshots that begin on this thread.
fn slot_here(shared: &Shared) -> usize {
    // A worker of another store has no slot in this store.
    current(|worker| std::ptr::eq(worker.shared(), shared).then_some(worker.number))
        .flatten()
        .unwrap_or(shared.worker_handles.len())
}
