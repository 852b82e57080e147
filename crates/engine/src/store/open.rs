//! Opening and making stores.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use qpair_block::{
    Arena, ArenaOptions, BlockDevice, ChannelOptions, DeviceInfo, IoChannel, WakeEvent,
    format_bytes, open_pair,
};
use qpair_format::log::LogGeometry;
use qpair_format::page::{PAGE_SIZE_MAX, PAGE_SIZE_MIN};
use qpair_format::superblock::{SUPERBLOCK_BYTES, StoreState, Superblock};
use qpair_format::{Error, ErrorKind, Remedy, Result};
use qpair_memory::FrameTable;

use super::chores::Chores;
use super::recover::Room;
use super::{Store, StoreInner, WorkerSet};
use crate::canary::{Canary, Planted};
use crate::incarnation::Incarnation;
use crate::log::Durability;
use crate::log_device::LogDevice;
use crate::panics::of_program;
use crate::pool::{Copies, Pool, frames_min};
use crate::shared::{LogOptions, Shared};
use crate::space::Space;
use crate::sync::WorkerHandle;
use crate::task::{Runtime, Worker, WorkerOptions, log_arena, stepped};
use crate::tx::{Tx, TxOptions};
use qpair_members::Attached;
use qpair_members::LogPlace;

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
    /// Limit on the writes that a transaction gathers before its commit, in bytes. The options of a
    /// transaction override it.
    pub transaction_bytes_max: usize,
    /// How long a change waits for a row that a transaction has locked, before it fails with
    /// `TimedOut`. `None`: without limit. The options of a transaction override it.
    pub lock_timeout: Option<Duration>,
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
            cycles: false,
            parent_hints: true,
            runtime: Runtime::Threads,
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

/// The stage in which opening failed.
enum Failed {
    Before(Error),
    /// Reading the last checkpoint, or recovery.
    TakingUp(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Before(error)
    }
}

/// Limit on the additional memory of a recovery, as a multiple of the configured memory.
const MORE_MEMORY_MAX: u64 = 1024;

/// Limit on the number of workers; more than any machine has cores.
const WORKERS_MAX: usize = 4096;

impl StoreOptions {
    fn check(&self) -> Result<()> {
        let invalid = |what: String| Err(Error::new(ErrorKind::Invalid, what));
        if !self.page_size.is_power_of_two()
            || !(PAGE_SIZE_MIN..=PAGE_SIZE_MAX).contains(&self.page_size)
        {
            return invalid(format!(
                "a page size of {} bytes: it is a power of two from {PAGE_SIZE_MIN} to {PAGE_SIZE_MAX}",
                self.page_size
            ));
        }
        if self.stripe_unit_bytes == 0
            || !self.stripe_unit_bytes.is_multiple_of(self.page_size as u64)
        {
            return invalid(format!(
                "a stripe unit of {} bytes: it is a multiple of the page size, {} bytes",
                self.stripe_unit_bytes, self.page_size
            ));
        }
        if self.workers > WORKERS_MAX {
            return invalid(format!(
                "{} workers: a store has at most {WORKERS_MAX}, and one to a core is best",
                self.workers
            ));
        }
        if self.depth == 0 || self.batch == 0 {
            return invalid("a depth or batch of 0".to_owned());
        }
        Ok(())
    }

    fn worker_count(&self) -> usize {
        match self.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            workers => workers,
        }
    }
}

impl Store {
    /// Opens the store on these members, which must be in the order in which the store was made, or
    /// makes a new store there.
    ///
    /// # Errors
    /// `NotAStore`, `Version`, `Member`, `Unclean` or `Corrupt` if the members have no usable
    /// store; `NoMemory` if the memory is too small; `Limit` and `Unsupported` from the devices;
    /// `Invalid` for options out of range.
    #[doc(hidden)]
    pub fn open(members: Vec<Arc<dyn BlockDevice>>, options: &StoreOptions) -> Result<Self> {
        let (mut room, mut more_memory) = (Room::Enough, 0);
        loop {
            let given = options.memory_bytes;
            let with_more = StoreOptions { memory_bytes: given + more_memory, ..options.clone() };
            match Self::open_once(members.clone(), &with_more, room, more_memory) {
                // A recovery writes over no existing data before it is complete, so it can start
                // again.
                Err(Failed::TakingUp(error))
                    if error.kind() == ErrorKind::NoSpace && room == Room::Enough =>
                {
                    room = Room::Little;
                }
                // Recovery needs a page of memory for each table that the log changes. When they
                // were changed, there may have been more memory.
                Err(Failed::TakingUp(error))
                    if error.kind() == ErrorKind::NoMemory
                        && more_memory / MORE_MEMORY_MAX < given =>
                {
                    more_memory = (2 * more_memory).max(given);
                }
                Err(Failed::Before(error) | Failed::TakingUp(error)) => return Err(error),
                Ok(store) => return Ok(store),
            }
        }
    }

    fn open_once(
        members: Vec<Arc<dyn BlockDevice>>,
        options: &StoreOptions,
        room: Room,
        more_memory: u64,
    ) -> Result<Self, Failed> {
        options.check()?;
        if members.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "a store needs at least one member").into());
        }
        let read_only = options.read_only
            || options.at_checkpoint
            || members.iter().any(|member| member.info().read_only);
        let (superblock, generations, log_device) = match options.format {
            true => {
                let (superblock, log_device) = format(&members, options)?;
                (superblock, qpair_members::Generations::default(), log_device)
            }
            false => {
                let (mut superblock, generations) = qpair_members::read_all(&members)?;
                if generations.is_ahead() {
                    superblock.generation -= 1;
                }
                let name = &members[0].info().name;
                let log_device = options.log_place.settle(name, &mut superblock, read_only)?;
                (superblock, generations, log_device)
            }
        };
        let page_size = superblock.page_size as usize;
        for member in &members {
            let (name, size_bytes) = (&member.info().name, member.size_bytes());
            if size_bytes < SUPERBLOCK_BYTES + superblock.stripe_unit_bytes {
                let what =
                    format!("{name} was cut short: it has {size_bytes} bytes, too few for pages");
                return Err(Error::damaged(what).into());
            }
            let block = member.info().logical_block_bytes;
            if page_size < block as usize || page_size > member.info().transfer_bytes_max as usize {
                return Err(Error::with_remedy(
                    ErrorKind::Invalid,
                    format!(
                        "pages of {page_size} bytes do not fit {}, whose blocks have {block} bytes",
                        member.info().name
                    ),
                    "a store in files opens through the page cache, and so does a file with the bytes of a device: copy it from there into a store with larger pages",
                    Remedy::PageSize,
                )
                .into());
            }
        }
        let device = qpair_members::join(&members, superblock.stripe_unit_bytes)?;
        let superblocks_in_doubt = members.len() > 1
            && !options.format
            && superblock.state == StoreState::Open
            && !generations.is_ahead();
        let superblocks = (superblock, superblocks_in_doubt);
        let inner = Arc::new(start(members, device, log_device, superblocks, options, read_only)?);
        let begun = match options.format {
            true => inner.begin_new(options.whole_when_closed).map_err(Failed::from),
            false => {
                inner.take_up(options, &generations, room, more_memory).map_err(Failed::TakingUp)
            }
        };
        if let Err(failed) = begun {
            // Tasks of the recovery may still hold the store. Without this close it would end, and
            // release its devices, only when the tasks do.
            let _ = inner.close();
            return Err(failed);
        }
        Ok(Self { inner })
    }
}

/// Writes the superblocks of a new store, and of its log device.
fn format(
    members: &[Arc<dyn BlockDevice>],
    options: &StoreOptions,
) -> Result<(Superblock, Option<Attached>)> {
    let created_s = match &options.runtime {
        Runtime::Threads => {
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
        }
        Runtime::Stepped { clock, .. } => clock.now_ns() / 1_000_000_000,
    };
    let (page_size, unit) = (options.page_size, options.stripe_unit_bytes);
    if let LogPlace::Device(device) = &options.log_place {
        // A log device that is too small is refused before anything is written.
        let geometry = log_geometry(device.info(), page_size, options);
        let workers = options.worker_count() as u64;
        qpair_members::make_room(device.as_ref(), geometry.segment_bytes.into(), workers)?;
    }
    make_room_for_superblocks(members, unit)?;
    let mut superblock = new_superblock(members.len(), page_size, unit, created_s);
    // Set until the first checkpoint is durable: a crash before that leaves no store.
    superblock.unfinished = true;
    let log_device = options.log_place.make(&mut superblock)?;
    // The log device's superblock says that the store is being made. The next attempt may then take
    // the device, whatever mixture of superblocks a crash leaves.
    log_device.as_ref().map_or(Ok(()), Attached::write_new_superblock)?;
    write_new_superblocks(members, &superblock)?;
    Ok((superblock, log_device))
}

/// Returns the size that a smaller member is grown to before a store is made on it, in bytes: room
/// for superblocks and the first pages.
#[must_use]
pub fn new_member_bytes_min(stripe_unit_bytes: u64) -> u64 {
    SUPERBLOCK_BYTES.saturating_add(stripe_unit_bytes.max(1 << 20))
}

/// Makes members large enough for superblocks and the first pages.
pub(super) fn make_room_for_superblocks(
    members: &[Arc<dyn BlockDevice>],
    stripe_unit_bytes: u64,
) -> Result<()> {
    for member in members {
        let needed = new_member_bytes_min(stripe_unit_bytes);
        if member.size_bytes() < needed {
            member
                .grow(needed)
                .map_err(|error| Error::block(error, "making room for a new store"))?;
        }
    }
    Ok(())
}

pub(super) fn new_superblock(
    members: usize,
    page_size: usize,
    stripe_unit_bytes: u64,
    created_s: u64,
) -> Superblock {
    let mut store_id = [0; 16];
    fastrand::fill(&mut store_id);
    Superblock {
        store_id,
        member_index: 0,
        member_count: members as u32,
        stripe_unit_bytes,
        page_size: page_size as u32,
        state: StoreState::Clean,
        generation: 1,
        created_s,
        unfinished: false,
        extents: false,
        renames: false,
        log: None,
    }
}

/// Writes the superblocks of a new store to both slots, so that no superblock of an older store
/// remains.
pub(super) fn write_new_superblocks(
    members: &[Arc<dyn BlockDevice>],
    superblock: &Superblock,
) -> Result<()> {
    for generation in [0, 1] {
        qpair_members::write_all(members, &Superblock { generation, ..superblock.clone() })?;
    }
    Ok(())
}

/// Maps memory and starts the workers.
fn start(
    members: Vec<Arc<dyn BlockDevice>>,
    device: Arc<dyn BlockDevice>,
    log_device: Option<Attached>,
    (superblock, superblocks_in_doubt): (Superblock, bool),
    options: &StoreOptions,
    read_only: bool,
) -> Result<StoreInner> {
    let workers = options.worker_count();
    let page_size = superblock.page_size as usize;
    let frame_count = options.memory_bytes / page_size as u64;
    if frame_count < frames_min(workers) {
        return Err(Error::with_remedy(
            ErrorKind::NoMemory,
            format!(
                "{} of memory is too small for {workers} workers and pages of {page_size} bytes",
                format_bytes(options.memory_bytes)
            ),
            format!("give at least {}", format_bytes(frames_min(workers) * page_size as u64)),
            Remedy::Memory,
        ));
    }
    let frame_count = u32::try_from(frame_count).map_err(|_| {
        Error::with_hint(
            ErrorKind::Invalid,
            format!(
                "{} of memory are {frame_count} pages, more than a store can manage",
                format_bytes(options.memory_bytes)
            ),
            format!("give at most {}", format_bytes(u64::from(u32::MAX) * page_size as u64)),
        )
    })?;
    let arena_options =
        ArenaOptions { huge_pages_only: options.huge_pages, ..device.info().arena_options() };
    let frames = FrameTable::new(page_size, frame_count, arena_options).map_err(|error| {
        Error::with_hint(
            ErrorKind::NoMemory,
            format!("mapping {} of memory: {error}", format_bytes(options.memory_bytes)),
            match options.huge_pages {
                true => "reserve more huge pages, or open the store without asking for them",
                false => "give the store less memory",
            },
        )
    })?;
    let mut handles = Vec::with_capacity(workers);
    for _ in 0..workers {
        let wake = WakeEvent::new().map_err(|error| {
            Error::new(ErrorKind::Limit, format!("creating an eventfd: {error}"))
        })?;
        handles.push(Arc::new(WorkerHandle::new(Arc::new(wake))));
    }
    let pool = Pool::new(frames, workers).with_parent_hints(options.parent_hints);
    let mut space = Space::new(device.clone(), page_size, frame_count);
    space.run_pages_max = options.run_pages_max;
    let store_id = superblock.store_id;
    let log_info = log_device.as_ref().map_or(device.info(), |attached| attached.device.info());
    let geometry = log_geometry(log_info, page_size, options);
    let log_device = log_device
        .map(|at| LogDevice::new(at, geometry, workers as u64, options.checkpoint_bytes))
        .transpose()?;
    let log = LogOptions {
        enabled: options.log,
        flushed: options.log_flushed,
        checkpoint_bytes: options.checkpoint_bytes,
        geometry,
        durability: options.durability,
        reads_wait: options.durability != Durability::Async && !options.read_non_durable,
    };
    let tx_options = TxOptions {
        versions_bytes_max: options.versions_bytes_max,
        history_bytes_max: options.history_bytes_max,
        transaction_bytes_max: options.transaction_bytes_max,
        lock_timeout: options.lock_timeout,
    };
    // The first checkpoint of a new store does not close it: no superblocks follow.
    let generation = if options.format { 0 } else { superblock.generation };
    let mut shared = Shared::new(pool, space, device, page_size, handles, log);
    if !read_only {
        let device = shared.device.info();
        shared.checkpointing.copies = Copies::new(device, page_size, frame_count, workers)?;
    }
    shared.wal.device = log_device;
    shared.planted = Planted::new(options.canary, options.canary_passes);
    (shared.lifecycle.read_only, shared.lifecycle.store_id) = (read_only, store_id);
    shared.lifecycle.generation = generation.into();
    if superblock.extents {
        shared.large.lists.expect();
    }
    let shared = Arc::new(shared);
    let incarnation = Incarnation::new(shared.clone(), members, superblock, superblocks_in_doubt);
    let incarnation = Arc::new(incarnation);
    let tx = Arc::new(Tx::new(incarnation.clone(), tx_options));
    let worker_set = start_workers(&shared, &tx, options)?;
    Ok(StoreInner {
        shared,
        tx,
        incarnation,
        catalog: OnceLock::new(),
        image_fault: OnceLock::new(),
        tables: Mutex::default(),
        changing_tables: Mutex::default(),
        worker_set: Mutex::new(worker_set),
        closed: Mutex::default(),
        next_worker: AtomicUsize::new(0),
    })
}

fn log_geometry(device: &DeviceInfo, page_size: usize, options: &StoreOptions) -> LogGeometry {
    let block_bytes = device.logical_block_bytes.max(page_size.min(4096) as u32);
    let least = page_size.max(4 * block_bytes as usize) as u32;
    let segment_bytes = options.log_segment_bytes.next_power_of_two().max(least);
    LogGeometry { block_bytes, segment_bytes }
}

fn start_workers(shared: &Arc<Shared>, tx: &Arc<Tx>, options: &StoreOptions) -> Result<WorkerSet> {
    let depth = options.depth.min(shared.device.info().depth_max).max(1);
    let worker_options = WorkerOptions {
        depth,
        reads: match &options.runtime {
            // Throughput differs between runs with the same seed.
            Runtime::Stepped { .. } if options.reads == 0 => depth,
            _ => options.reads,
        },
        batch: options.batch.min(depth),
        linger: Duration::from_micros(u64::from(options.linger_us)),
        cycles: options.cycles,
        clock: match &options.runtime {
            Runtime::Stepped { clock, .. } => Some(clock.clone()),
            Runtime::Threads => None,
        },
        upkeep: Arc::new(Chores { tx: tx.clone() }),
    };
    match &options.runtime {
        Runtime::Threads => {
            start_threads(shared, worker_options, options.prefault).map(WorkerSet::Threads)
        }
        Runtime::Stepped { seed, clock } => {
            let workers: Result<Vec<_>> = shared
                .worker_handles
                .iter()
                .map(|handle| {
                    let (channel, log) = open_channel(shared, handle, &worker_options)?;
                    Ok(Worker::new(
                        shared.clone(),
                        handle.clone(),
                        worker_options.clone(),
                        channel,
                        log,
                    ))
                })
                .collect();
            stepped::enlist(shared, workers?, *seed, clock.clone());
            Ok(WorkerSet::Stepped)
        }
    }
}

/// Opens a worker's channel, on the thread that will use it, and allocates memory for the worker's
/// log.
fn open_channel(
    shared: &Shared,
    handle: &WorkerHandle,
    options: &WorkerOptions,
) -> Result<(Box<dyn IoChannel>, Arc<Arena>)> {
    let log = log_arena(shared.log_info(), shared.wal.options.geometry.block_bytes)?;
    let mut channel_options = ChannelOptions {
        depth: options.depth,
        arenas: vec![shared.pool.frames.arena().clone(), log.clone()],
        wake: Some(handle.wake.clone()),
    };
    let channel = match &shared.wal.device {
        None => shared.device.open_channel(&channel_options),
        Some(log_device) => {
            let device = log_device.device.as_ref();
            channel_options.arenas.truncate(1);
            let depth = options.depth.min(device.info().depth_max).max(1);
            let log_options = ChannelOptions { depth, arenas: vec![log.clone()], wake: None };
            open_pair((shared.device.as_ref(), &channel_options), (device, &log_options))
        }
    };
    channel
        .map(|channel| (channel, log))
        .map_err(|error| Error::block(error, "opening a worker's channel"))
}

fn prefault_part(shared: &Shared, worker: usize) -> Result<()> {
    let pool = &shared.pool;
    pool.prefault(worker, shared.worker_handles.len()).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidInput => Error::with_hint(
            ErrorKind::Unsupported,
            format!("prefaulting memory: {error}"),
            "prefault needs Linux 5.14 or later; open the store without it",
        ),
        _ => Error::with_hint(
            ErrorKind::NoMemory,
            format!(
                "prefaulting {} of memory: {error}",
                format_bytes(pool.frames.arena().mapped_bytes() as u64)
            ),
            "give the store less memory",
        ),
    })
}

fn start_threads(
    shared: &Arc<Shared>,
    worker_options: WorkerOptions,
    prefault: bool,
) -> Result<Vec<std::thread::JoinHandle<qpair_block::ChannelStatistics>>> {
    let (started, starting) = mpsc::channel();
    let mut threads = Vec::new();
    for (index, handle) in shared.worker_handles.iter().enumerate() {
        let (shared, handle, report) = (shared.clone(), handle.clone(), started.clone());
        let worker_options = worker_options.clone();
        let thread =
            std::thread::Builder::new().name(format!("qpair-worker-{index}")).spawn(move || {
                let ready = match prefault {
                    true => prefault_part(&shared, index),
                    false => Ok(()),
                };
                match ready.and_then(|()| open_channel(&shared, &handle, &worker_options)) {
                    Ok((channel, log)) => {
                        let _ = report.send(Ok(()));
                        drop(report);
                        Worker::run(shared, handle, worker_options, channel, log)
                    }
                    Err(error) => {
                        let _ = report.send(Err(error));
                        qpair_block::ChannelStatistics::default()
                    }
                }
            });
        match thread {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                let _ = started.send(Err(Error::thread(&error, "starting a worker")));
            }
        }
    }
    drop(started);
    let outcome: Result<()> = starting.iter().take(shared.worker_handles.len()).collect();
    if let Err(error) = outcome {
        shared.worker_handles.iter().for_each(|handle| handle.stop());
        for thread in threads {
            let _ = thread.join();
        }
        return Err(error);
    }
    Ok(threads)
}
