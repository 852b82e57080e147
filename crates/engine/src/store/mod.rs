//! A store: members, workers, tables.

mod backup;
mod bulk;
mod catalog;
mod changes;
mod check;
mod chores;
mod close;
mod commit;
mod compact;
mod compact_values;
mod compressed;
mod dropped;
mod estimate;
mod expiry;
mod follow;
mod load;
mod observer;
mod open;
mod options;
mod range;
mod recover;
mod removal;
mod rename;
mod report;
mod retry;
mod roots;
mod snapshot;
mod table;
mod table_options;
mod task_transaction;
mod transaction;
mod transaction_range;
mod warm;
mod workers;

pub use backup::BackupReport;
pub use bulk::BulkLoader;
pub use changes::WriteBatch;
pub use check::{CheckReport, TableCheck};
pub use commit::Commit;
pub use compact::CompactReport;
pub use estimate::TableStatistics;
pub use follow::{CatalogChange, ChangeFeed, Changes, FeedBegin, Next};
pub use observer::Observer;
pub use open::new_member_bytes_min;
pub use options::{RecoveryProgress, StoreOptions};
pub use range::{Range, TaskRange};
pub use report::{LogDeviceReport, StoreReport, StoreStatistics};
pub use snapshot::{Snapshot, TaskSnapshot};
pub use table::{Table, TaskTable};
pub use table_options::TableOptions;
pub use task_transaction::{TaskStore, TaskTransaction};
pub use transaction::Transaction;
pub use transaction_range::{TaskTransactionRange, TransactionRange};
pub use warm::WarmReport;

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use qpair_block::ChannelStatistics;
use qpair_format::{Error, ErrorKind, Result};
use qpair_members::Encryption;
use qpair_memory::locks::Mutex;

use crate::checkpoint::checkpoint;
use crate::incarnation::Incarnation;
use crate::shared::Shared;
use crate::task::{JoinHandle, Step, oneshot, spawn_program, spawn_to, stepped};
use crate::tree::Tree;
use crate::tx::{Awaited, Tx};

/// The workers of an open store, for the thread that ends them.
enum WorkerSet {
    Threads(Vec<std::thread::JoinHandle<ChannelStatistics>>),
    /// The workers run on this thread: see [`crate::task::stepped`].
    Stepped,
    /// The workers have ended, or a close is ending them.
    Gone,
}

/// The parts of an open store that its workers do not share.
pub(crate) struct StoreInner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) tx: Arc<Tx>,
    pub(crate) incarnation: Arc<Incarnation>,
    /// The key of an encrypted store, for copies of it.
    encryption: Option<Arc<dyn Encryption>>,
    /// The catalog, or the error that opening it gave. Only a store opened for reading continues
    /// without a catalog.
    catalog: OnceLock<Result<Tree>>,
    /// The reason why the last checkpoint's image is not known, in a store opened for reading.
    image_fault: OnceLock<Error>,
    /// The opened tables by name. Locked only briefly, also by workers.
    tables: Mutex<Vec<(String, Tree)>>,
    /// Held by a thread that makes, drops or first opens a table, also while it waits for workers.
    /// Workers never wait for it.
    changing_tables: Mutex<()>,
    worker_set: Mutex<WorkerSet>,
    /// The outcome of the close. The closing thread holds the lock, so that other closes wait for
    /// it.
    closed: Mutex<Option<Result<()>>>,
    next_worker: AtomicUsize,
}

/// An open store. Cheap to clone; dropping the last clone closes it.
///
/// A store belongs to the process that opened it and has its workers as threads. After a `fork` the
/// child has none of these threads. In the child, calls fail with `Invalid`, except lookups of data
/// in memory, which may miss changes that the parent made since. Dropping the store in the child
/// does nothing. Open stores after the fork, in the process that uses them.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<StoreInner>,
}

/// A handle that does not keep the store open.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// let weak = store.downgrade();
/// assert!(weak.upgrade().is_some());
/// drop(table);
/// store.close()?;
/// // It does not keep the store open.
/// assert!(weak.upgrade().is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct WeakStore(std::sync::Weak<StoreInner>);

impl WeakStore {
    /// Returns the store if another handle keeps it open. Dropping the last handle closes the
    /// store.
    #[must_use]
    pub fn upgrade(&self) -> Option<Store> {
        self.0.upgrade().map(|inner| Store { inner })
    }
}

impl std::fmt::Debug for WeakStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WeakStore").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("device", &self.inner.shared.device.info().name)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Starts a task on one of the workers, in turn. `make` runs on the worker, and so does its
    /// future, which may therefore hold values that are not `Send`.
    pub fn spawn<F, T>(&self, make: impl FnOnce() -> F + Send + 'static) -> JoinHandle<T>
    where
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        self.spawn_on(self.inner.next_worker(), make)
    }

    /// Starts a task on the worker with this number, from 0 to [`Store::workers`] exclusive.
    ///
    /// # Panics
    /// If there is no such worker.
    pub fn spawn_on<F, T>(
        &self,
        worker: usize,
        make: impl FnOnce() -> F + Send + 'static,
    ) -> JoinHandle<T>
    where
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        if let Err(error) = self.inner.shared.lifecycle.check_process() {
            let (sender, handle) = oneshot();
            sender.fill(Err(error));
            return handle;
        }
        spawn_program(&self.inner.shared, worker, make)
    }

    /// The number of workers of the store.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.inner.shared.worker_handles.len()
    }

    /// Whether the store refuses changes: opened read-only, or read-only since a write failed.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.inner.shared.lifecycle.check_writable().is_err()
    }

    /// Returns the timestamp of the newest commit of the checkpoint that a store beside a writer
    /// sees, and whether there is a newer checkpoint by now, or another file. `None` if the store
    /// was opened otherwise.
    ///
    /// # Errors
    /// Errors of the device.
    #[doc(hidden)]
    pub fn seen(&self) -> Result<Option<(u64, bool)>> {
        let Some(witness) = &self.inner.shared.witness else { return Ok(None) };
        let timestamp = self.inner.shared.checkpointing.record().timestamp;
        let is_outdated = self.inner.shared.device.removed().is_some() || witness.is_outdated()?;
        Ok(Some((timestamp, is_outdated)))
    }

    /// The length of the longest key that this store accepts, in bytes: [`crate::KEY_LEN_MAX`].
    #[must_use]
    pub fn key_len_max(&self) -> usize {
        qpair_format::page::KEY_LEN_MAX
    }

    /// The length of the longest key that is whole in this store's pages, in bytes. Groups have
    /// keys that are one byte longer ([`Table::stored`]), and copies need stores of the same
    /// length to copy groups as they are.
    #[doc(hidden)]
    #[must_use]
    pub fn whole_key_len_max(&self) -> usize {
        self.inner.shared.whole_key_len_max
    }

    /// Returns a handle that does not keep the store open.
    #[must_use]
    pub fn downgrade(&self) -> WeakStore {
        WeakStore(Arc::downgrade(&self.inner))
    }

    /// Marks the store as failed. From now on it is read-only, and closing it does not mark it as
    /// complete. Used when the initial load of a new store fails.
    #[doc(hidden)]
    pub fn fail(&self, cause: Error) {
        self.inner.shared.fail(cause);
    }

    /// Makes a checkpoint. After a crash, recovery starts from this checkpoint or a later one.
    ///
    /// # Errors
    /// An error of the device: the store is read-only then. `NoSpace`: the previous checkpoint
    /// stays in force, and nothing is lost. `NotFound` if a file of the store was removed
    /// meanwhile: the checkpoint was made in that file and is lost with it. `Invalid` on a worker.
    pub fn checkpoint(&self) -> Result<()> {
        self.inner.incarnation.begin_change()?;
        let shared = self.inner.shared.clone();
        self.inner.block_on(move || async move { checkpoint(&shared, false).await })?;
        self.inner.check_not_removed()
    }

    /// Runs one step of one of a stepped store's workers.
    #[doc(hidden)]
    #[must_use]
    pub fn step(&self) -> Step {
        stepped::step(&self.inner.shared)
    }

    /// Ends a stepped store as a crash does: workers and tasks are dropped in their present state,
    /// and nothing is written.
    #[doc(hidden)]
    pub fn crash(self) {
        let worker_set = &mut *self.inner.worker_set.lock();
        if matches!(worker_set, WorkerSet::Stepped) {
            *worker_set = WorkerSet::Gone;
            self.inner.shared.begin_closing();
            stepped::crash(&self.inner.shared);
            self.inner.shared.lifecycle.end();
        }
    }

    /// Returns the properties of the device behind the store, with the interface that is really in
    /// use.
    #[doc(hidden)]
    #[must_use]
    pub fn device_info(&self) -> qpair_block::DeviceInfo {
        match &self.inner.incarnation.members[..] {
            // A stripe with one member is that member, shifted by its superblock.
            [one] => one.info().clone(),
            _ => self.inner.shared.device.info().clone(),
        }
    }
}

impl StoreInner {
    /// The number of tables that a call over all tables may open: each open table keeps its root in
    /// memory.
    fn opened_for_all_max(&self) -> usize {
        /// The share of memory that these roots may take.
        const ROOTS_PART: usize = 8;
        self.shared.pool.active() as usize / ROOTS_PART
    }

    /// Runs a task to its end, from a thread that is not a worker.
    pub(crate) fn block_on<F, T>(&self, make: impl FnOnce() -> F + Send + 'static) -> Result<T>
    where
        F: Future<Output = Result<T>> + 'static,
        T: Send + 'static,
    {
        self.block_on_worker(self.next_worker(), make)
    }

    pub(crate) fn next_worker(&self) -> usize {
        self.next_worker.fetch_add(1, Ordering::Relaxed) % self.shared.worker_handles.len()
    }

    /// Like [`StoreInner::block_on`], on this worker.
    pub(crate) fn block_on_worker<F, T>(
        &self,
        worker: usize,
        make: impl FnOnce() -> F + Send + 'static,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>> + 'static,
        T: Send + 'static,
    {
        self.shared.check_caller()?;
        if let Some(panicked) = self.shared.lifecycle.panicked() {
            return Err(panicked.clone());
        }
        let handle = match Awaited::here() {
            None => self.start_on(worker, make)?,
            Some(awaited) => self.start_on(worker, move || awaited(make()))?,
        };
        // After a panic of the engine that error is returned, whatever the outcome of the task was.
        let panicked = |error| self.shared.lifecycle.panicked().cloned().unwrap_or(error);
        handle.join().and_then(|outcome| outcome).map_err(panicked)
    }

    /// Runs a task to its end, for a caller that awaits it on any runtime.
    pub(crate) async fn run_on_worker<F, T>(
        &self,
        make: impl FnOnce() -> F + Send + 'static,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>> + 'static,
        T: Send + 'static,
    {
        self.shared.lifecycle.check_process()?;
        self.start(make)?.await?
    }

    /// Like [`Shared::wait_to_give`](crate::shared::Shared::wait_to_give), on a caller's thread.
    ///
    /// # Errors
    /// As [`Shared::wait_to_give`](crate::shared::Shared::wait_to_give); `Invalid` on a worker.
    pub(crate) fn block_to_give(&self, waits: bool, timestamp: u64) -> Result<()> {
        let shared = &self.shared;
        if shared.wal.may_give(waits, timestamp) {
            return Ok(());
        }
        let shared = shared.clone();
        self.block_on(move || async move { shared.wait_to_give(waits, timestamp).await })
    }

    /// Returns `NotFound` if a file of the store has been removed.
    fn check_not_removed(&self) -> Result<()> {
        let log_device = self.shared.wal.device.as_ref().and_then(|log| log.device.removed());
        let Some(name) = log_device.or_else(|| self.shared.device.removed()) else { return Ok(()) };
        Err(Error::with_hint(
            ErrorKind::NotFound,
            format!(
                "{name} was removed while the store was open: its data is lost when the store is closed"
            ),
            "make a backup while the store is open",
        ))
    }

    /// Starts a task on one of the workers, in turn.
    fn start<F, T>(&self, make: impl FnOnce() -> F + Send + 'static) -> Result<JoinHandle<T>>
    where
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        self.start_on(self.next_worker(), make)
    }

    fn start_on<F, T>(
        &self,
        worker: usize,
        make: impl FnOnce() -> F + Send + 'static,
    ) -> Result<JoinHandle<T>>
    where
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        if self.shared.lifecycle.has_ended() {
            return Err(Error::closed());
        }
        Ok(spawn_to(&self.shared, worker, make))
    }
}
