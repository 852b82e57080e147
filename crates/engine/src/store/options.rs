//! Options for opening a store.

use std::sync::Arc;
use std::time::Duration;

use qpair_format::page::{PAGE_SIZE_MAX, PAGE_SIZE_MIN};
use qpair_format::{Error, ErrorKind, Result};
use qpair_members::{Encryption, LogPlace};

use crate::canary::Canary;
use crate::log::Durability;
use crate::panics::of_program;
use crate::shared::WallClock;
use crate::task::Runtime;

/// Options for opening a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Memory for pages, in bytes.
    pub memory_bytes: u64,
    /// Whether to take all of that memory when opening. Otherwise the kernel provides it as it is
    /// used, and opening does not wait until it is cleared.
    pub prefault: bool,
    /// Whether to take that memory from reserved huge pages (`vm.nr_hugepages`), or fail. Otherwise
    /// the store leaves these to the programs that they were reserved for, and asks for transparent
    /// huge pages.
    pub huge_pages: bool,
    /// The number of workers: threads, one to a core. 0: one for each core.
    pub workers: usize,
    /// The number of requests that a worker has in flight at most.
    pub depth: u32,
    /// The number of page reads among these requests at most. 0: as many as increase throughput,
    /// which the worker measures.
    pub reads: u32,
    /// The number of completions that a busy worker waits for, to take them together.
    pub batch: u32,
    /// How long a busy worker waits for that many completions, in microseconds.
    pub linger_us: u32,
    /// Whether to make a new store on the members; their present contents are lost.
    pub format: bool,
    /// Whether a new store may be used only once it was closed: if this process ends before that,
    /// no other process opens the store.
    pub whole_when_closed: bool,
    /// Page size of a new store, in bytes: a power of two from 512 to 65,536.
    pub page_size: usize,
    /// Stripe unit of a new store, in bytes: a multiple of the page size.
    pub stripe_unit_bytes: u64,
    /// Whether the store refuses changes.
    pub read_only: bool,
    /// Limit on the memory for older values that snapshots need, in bytes. From half of the limit
    /// on, the oldest of these values go to the device. At the limit the oldest snapshot is given
    /// up; while the device still takes values, only at nine eighths of the limit.
    pub versions_bytes_max: u64,
    /// Limit on device space for older values, in bytes, including the pages of large values. With
    /// 0, older values stay in memory, and large ones may take `versions_bytes_max` of device
    /// space. The space is free again once no snapshot needs it, and before a change would fail for
    /// want of space.
    pub history_bytes_max: u64,
    /// Limit on the memory for the writes of a transaction, in bytes. Writes beyond it go to the
    /// device. The options of a transaction override it.
    pub transaction_bytes_max: usize,
    /// How long a change waits for a row that a transaction has locked, before it fails with
    /// `TimedOut`. `None`: without limit. The options of a transaction override it.
    pub lock_timeout: Option<Duration>,
    /// The key of an encrypted store. With it a new store is encrypted, and a store in clear is
    /// refused.
    pub encryption: Option<Arc<dyn Encryption>>,
    /// The place of the write-ahead log.
    pub log_place: LogPlace,
    /// Whether to keep a write-ahead log, so that commits survive a crash as their durability says.
    /// After a crash, a store without a log is in the state of its last checkpoint.
    pub log: bool,
    /// When changes and reads outside of transactions return.
    pub durability: Durability,
    /// Whether reads outside of transactions, of tables and of snapshots, may return data of
    /// commits that are not durable yet, instead of waiting. Like [`Durability::Async`], for reads
    /// only.
    pub read_non_durable: bool,
    /// Whether to wait until each write of the log survives power loss. Otherwise commits survive
    /// the end of the process, but power loss may take the newest commits since the last
    /// checkpoint.
    pub log_flushed: bool,
    /// Bytes of log on the device after which a checkpoint begins. Bounds the time that recovery
    /// takes. Commits wait while the log is a quarter larger than this.
    pub checkpoint_bytes: u64,
    /// Size of the log's segments, in bytes; rounded up to what the page size needs.
    #[doc(hidden)]
    pub log_segment_bytes: u32,
    /// The longest run of pages of a large value. A value with more pages is stored in several
    /// runs, wherever pages are free. For tests.
    #[doc(hidden)]
    pub run_pages_max: u64,
    /// Receives the progress of recovery, if there is one.
    pub progress: RecoveryProgress,
    /// Whether to open the store as its last checkpoint has it, for reading only and without later
    /// commits. For tools that inspect a store that cannot or should not be recovered.
    pub at_checkpoint: bool,
    /// Whether to open the store beside a process that may write it: as its newest checkpoint has
    /// it, for reading only, and without excluding a writer. The members must be opened without a
    /// lock. Reads fail with `SnapshotLost` once the writer no longer keeps that checkpoint. See
    /// docs/design/readers.md.
    pub beside_writer: bool,
    /// Limit on the device space that older checkpoints may take because readers in other processes
    /// use them, in bytes. Above it the oldest one is given up, and its readers' reads fail with
    /// `SnapshotLost`.
    pub readers_bytes_max: u64,
    /// Whether to count the time of each part of the workers' loop:
    /// [`StoreStatistics::cycles`](crate::StoreStatistics). For measuring.
    #[doc(hidden)]
    pub cycles: bool,
    /// Whether eviction finds the parent of a page by the hint in its frame, instead of a descent
    /// from the root. For measuring what the hint saves.
    #[doc(hidden)]
    pub parent_hints: bool,
    /// How the workers run. Only simulation uses another runtime than threads.
    #[doc(hidden)]
    pub runtime: Runtime,
    /// The clock by which records of tables with a time to live expire.
    #[doc(hidden)]
    pub wall_clock: WallClock,
    /// A bug to plant, for the simulation to find.
    #[doc(hidden)]
    pub canary: Option<Canary>,
    /// How often a planted panic is skipped before it strikes.
    #[doc(hidden)]
    pub canary_passes: u64,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            memory_bytes: 256 << 20,
            prefault: false,
            huge_pages: false,
            workers: 0,
            depth: 512,
            reads: 0,
            batch: 32,
            linger_us: 1000,
            format: false,
            whole_when_closed: false,
            page_size: 4096,
            stripe_unit_bytes: 64 << 10,
            read_only: false,
            versions_bytes_max: 256 << 20,
            history_bytes_max: 1 << 30,
            transaction_bytes_max: 64 << 20,
            lock_timeout: None,
            encryption: None,
            log_place: LogPlace::Unsaid,
            log: true,
            durability: Durability::Sync,
            read_non_durable: false,
            log_flushed: true,
            checkpoint_bytes: 256 << 20,
            log_segment_bytes: 1 << 20,
            run_pages_max: u64::MAX,
            progress: RecoveryProgress::default(),
            at_checkpoint: false,
            beside_writer: false,
            readers_bytes_max: 1 << 30,
            cycles: false,
            parent_hints: true,
            runtime: Runtime::Threads,
            wall_clock: WallClock::System,
            canary: None,
            canary_passes: 0,
        }
    }
}

/// Receives the progress of recovery: the bytes of log that were replayed, and the bytes in all.
///
/// ```
/// use qpair_engine::{RecoveryProgress, StoreOptions};
///
/// let told = RecoveryProgress::new(|done, all| eprintln!("{done} of {all} bytes of log"));
/// let options = StoreOptions { progress: told, ..Default::default() };
/// # let _ = options;
/// ```
#[derive(Clone, Default)]
pub struct RecoveryProgress(Option<Arc<ProgressFn>>);

type ProgressFn = dyn Fn(u64, u64) + Send + Sync;

impl RecoveryProgress {
    /// Creates a receiver that calls `told` on a worker's thread. The call should be quick.
    pub fn new(told: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(told)))
    }

    pub(super) fn tell(&self, done: u64, all: u64) {
        if let Some(told) = &self.0 {
            of_program(|| told(done, all));
        }
    }
}

impl std::fmt::Debug for RecoveryProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RecoveryProgress").field(&self.0.is_some()).finish()
    }
}

/// Limit on the number of workers; more than any machine has cores.
const WORKERS_MAX: usize = 4096;

impl StoreOptions {
    pub(super) fn check(&self) -> Result<()> {
        let invalid = |what: String| Err(Error::new(ErrorKind::Invalid, what));
        if !self.page_size.is_power_of_two()
            || !(PAGE_SIZE_MIN..=PAGE_SIZE_MAX).contains(&self.page_size)
        {
            return invalid(format!(
                "a page size of {} bytes is not possible: it is a power of two from {PAGE_SIZE_MIN} to {PAGE_SIZE_MAX}",
                self.page_size
            ));
        }
        if self.stripe_unit_bytes == 0
            || !self.stripe_unit_bytes.is_multiple_of(self.page_size as u64)
        {
            return invalid(format!(
                "a stripe unit of {} bytes is not possible: it is a multiple of the page size, {} bytes",
                self.stripe_unit_bytes, self.page_size
            ));
        }
        if self.workers > WORKERS_MAX {
            return invalid(format!(
                "{} workers are not possible: a store has at least 1 and at most {WORKERS_MAX}, and one to a core is best",
                self.workers
            ));
        }
        if self.depth == 0 || self.batch == 0 {
            return invalid("the depth and the batch must be at least 1".to_owned());
        }
        Ok(())
    }

    pub(super) fn worker_count(&self) -> usize {
        match self.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            workers => workers,
        }
    }
}
