//! Opening and making stores.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use qpair_block::{
    ArenaOptions, BlockDevice, ChannelOptions, IoChannel, Member, StripeDevice, WakeEvent,
};
use qpair_memory::FrameTable;

use super::superblock::{LABEL_BYTES, StoreState, Superblock};
use super::{Crew, Store, StoreInner, labels};
use crate::canary::Canary;
use crate::error::{Error, ErrorKind, Result};
use crate::page::{PAGE_SIZE_MAX, PAGE_SIZE_MIN};
use crate::pool::Pool;
use crate::shared::Shared;
use crate::space::Space;
use crate::task::{Remote, Runtime, Worker, WorkerOptions, stepped};
use crate::tx::{Tx, TxOptions};

/// How to open a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Memory for pages, bytes.
    pub memory_bytes: u64,
    /// Workers: threads, one to a core. 0: as many as there are cores.
    pub workers: usize,
    /// Requests a worker has in flight at most.
    pub depth: u32,
    /// Completions a busy worker likes to take at once.
    pub batch: u32,
    /// How long a busy worker waits for that many, microseconds.
    pub linger_us: u32,
    /// Make a new store on the members; what is on them is lost.
    pub format: bool,
    /// Page size of a new store, bytes: a power of two from 512 to 65,536.
    pub page_size: usize,
    /// Stripe unit of a new store, bytes: a multiple of the page size.
    pub stripe_unit_bytes: u64,
    /// Refuse changes.
    pub read_only: bool,
    /// Memory for older values that snapshots need, bytes, at most. When they outgrow it, the oldest snapshot is given up.
    pub versions_bytes_max: u64,
    /// What a transaction may gather to write before its commit, bytes, unless its own options say otherwise.
    pub transaction_bytes_max: usize,
    /// How the workers run; only simulation has them otherwise than as threads.
    #[doc(hidden)]
    pub runtime: Runtime,
    /// A bug to plant, for the simulation to find.
    #[doc(hidden)]
    pub canary: Option<Canary>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            memory_bytes: 256 << 20,
            workers: 0,
            depth: 512,
            batch: 32,
            linger_us: 1000,
            format: false,
            page_size: 4096,
            stripe_unit_bytes: 64 << 10,
            read_only: false,
            versions_bytes_max: 256 << 20,
            transaction_bytes_max: 64 << 20,
            runtime: Runtime::Threads,
            canary: None,
        }
    }
}

/// Fewest frames: each worker must be able to hold a way down the tree and make pages beside it.
fn frames_min(workers: usize) -> u64 {
    64.max(32 * workers as u64)
}

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
    /// Opens the store on these members, in the order in which it was made, or makes a new one there.
    ///
    /// # Errors
    /// `NotAStore`, `Version`, `Member`, `Unclean`, `Corrupt` for what is on the members; `NoMemory` if the
    /// memory is too small; `Limit` and `Unsupported` from the devices; `Invalid` for options out of range.
    pub fn open(members: Vec<Arc<dyn BlockDevice>>, options: &StoreOptions) -> Result<Self> {
        options.check()?;
        if members.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "a store has at least one member"));
        }
        let read_only = options.read_only || members.iter().any(|member| member.info().read_only);
        let label =
            if options.format { format(&members, options)? } else { labels::read_all(&members)? };
        if label.state == StoreState::Open {
            return Err(Error::with_hint(
                ErrorKind::Unclean,
                format!(
                    "{} was not closed cleanly: its pages may be older than one another",
                    members[0].info().name
                ),
                "restore it from its source; stores survive crashes once the write-ahead log exists",
            ));
        }
        let page_size = label.page_size as usize;
        for member in &members {
            let block = member.info().logical_block_bytes;
            if page_size < block as usize || page_size > member.info().transfer_bytes_max as usize {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    format!(
                        "pages of {page_size} bytes on {}, whose blocks have {block} bytes",
                        member.info().name
                    ),
                ));
            }
        }
        check_size(&label, &members)?;
        let stripe = members
            .iter()
            .map(|device| Member { device: device.clone(), start_bytes: LABEL_BYTES })
            .collect();
        let device: Arc<dyn BlockDevice> = Arc::new(
            StripeDevice::new(label.stripe_unit_bytes, stripe)
                .map_err(|error| Error::block(error, "joining the members"))?,
        );
        let mut inner = start(members, device, label, options, read_only)?;
        if let Err(error) = inner.load_free_list() {
            // Who only reads needs no free pages; `check` tells of it.
            if !read_only {
                return Err(error);
            }
            inner.free_list_fault = Some(error);
        }
        Ok(Self { inner: Arc::new(inner) })
    }
}

/// A store whose file was cut short is refused as a whole.
fn check_size(label: &Superblock, members: &[Arc<dyn BlockDevice>]) -> Result<()> {
    let pages_bytes = label.high_water.saturating_mul(u64::from(label.page_size));
    let rows = pages_bytes.div_ceil(label.stripe_unit_bytes).div_ceil(members.len() as u64).max(1);
    let needed = rows.saturating_mul(label.stripe_unit_bytes).saturating_add(LABEL_BYTES);
    match members.iter().find(|member| member.size_bytes() < needed) {
        None => Ok(()),
        Some(member) => Err(Error::with_hint(
            ErrorKind::Corrupt,
            format!(
                "{} was cut short: it has {} bytes, the store needs {needed} there",
                member.info().name,
                member.size_bytes()
            ),
            "restore the store from its source",
        )),
    }
}

/// Writes the labels of a new store.
fn format(members: &[Arc<dyn BlockDevice>], options: &StoreOptions) -> Result<Superblock> {
    let mut store_id = [0; 16];
    fastrand::fill(&mut store_id);
    for member in members {
        let needed = LABEL_BYTES + options.stripe_unit_bytes.max(1 << 20);
        if member.size_bytes() < needed {
            member
                .grow(needed)
                .map_err(|error| Error::block(error, "making room for a new store"))?;
        }
    }
    let label = Superblock {
        store_id,
        member_index: 0,
        member_count: members.len() as u32,
        stripe_unit_bytes: options.stripe_unit_bytes,
        page_size: options.page_size as u32,
        state: StoreState::Clean,
        generation: 1,
        high_water: 0,
        free_list_page: 0,
        free_list_pages: 0,
        free_runs: 0,
        catalog_root: 0,
        created_s: match &options.runtime {
            Runtime::Threads => {
                SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
            }
            Runtime::Stepped { clock, .. } => clock.now_ns() / 1_000_000_000,
        },
    };
    // Both slots, so that no label of an older store stays.
    for generation in [0, 1] {
        labels::write_all(members, &Superblock { generation, ..label.clone() })?;
    }
    Ok(label)
}

/// Maps memory, starts the workers, and opens the catalog.
fn start(
    members: Vec<Arc<dyn BlockDevice>>,
    device: Arc<dyn BlockDevice>,
    label: Superblock,
    options: &StoreOptions,
    read_only: bool,
) -> Result<StoreInner> {
    let workers = options.worker_count();
    let page_size = label.page_size as usize;
    let frame_count = options.memory_bytes / page_size as u64;
    if frame_count < frames_min(workers) {
        return Err(Error::with_hint(
            ErrorKind::NoMemory,
            format!(
                "{} bytes of memory are too small for {workers} workers and pages of {page_size} bytes",
                options.memory_bytes
            ),
            format!("give at least {} bytes", frames_min(workers) * page_size as u64),
        ));
    }
    let frame_count = u32::try_from(frame_count).map_err(|_| {
        Error::new(
            ErrorKind::Invalid,
            format!("{frame_count} frames are more than a pool can have"),
        )
    })?;
    let frames =
        FrameTable::new(page_size, frame_count, ArenaOptions::default()).map_err(|error| {
            Error::new(
                ErrorKind::NoMemory,
                format!("mapping {} bytes of memory: {error}", options.memory_bytes),
            )
        })?;
    let mut remotes = Vec::with_capacity(workers);
    for _ in 0..workers {
        let wake = WakeEvent::new()
            .map_err(|error| Error::new(ErrorKind::Limit, format!("making an eventfd: {error}")))?;
        remotes.push(Arc::new(Remote::new(Arc::new(wake))));
    }
    let pool = Pool::new(frames, workers);
    let space = Space::new(device.clone(), page_size, label.high_water);
    // The generation grows with each opening for changes: no page has a stamp above the start.
    let tx = Tx::new(
        workers,
        TxOptions {
            start: label.generation << 40,
            versions_bytes_max: options.versions_bytes_max,
            transaction_bytes_max: options.transaction_bytes_max,
        },
    );
    let mut shared = Shared::new(pool, space, tx, device, page_size, read_only, remotes);
    shared.canary = options.canary;
    let shared = Arc::new(shared);
    let crew = start_workers(&shared, options)?;
    let new = label.high_water == 0;
    let catalog_root = label.catalog_root;
    let mut inner = StoreInner {
        shared,
        members,
        label: Mutex::new(label),
        catalog: Err(Error::new(ErrorKind::Invalid, "the catalog is not open yet")),
        free_list_fault: None,
        tables: Mutex::default(),
        crew: Mutex::new(crew),
        next_worker: AtomicUsize::new(0),
    };
    // If this fails, `inner` is dropped, which stops the workers.
    let catalog = match new && !read_only {
        true => inner.make_tree(0).map(|(_, tree)| tree),
        false => inner.open_tree(0, catalog_root),
    };
    // What is damaged can still be checked by who only reads.
    if !read_only && let Err(error) = catalog {
        return Err(error);
    }
    inner.catalog = catalog;
    Ok(inner)
}

fn start_workers(shared: &Arc<Shared>, options: &StoreOptions) -> Result<Crew> {
    let depth = options.depth.min(shared.device.info().depth_max).max(1);
    let worker_options = WorkerOptions {
        depth,
        batch: options.batch.min(depth),
        linger: Duration::from_micros(u64::from(options.linger_us)),
    };
    match &options.runtime {
        Runtime::Threads => start_threads(shared, worker_options).map(Crew::Threads),
        Runtime::Stepped { seed, clock } => {
            let workers: Result<Vec<_>> = shared
                .remotes
                .iter()
                .map(|remote| {
                    let channel = open_channel(shared, remote, worker_options)?;
                    Ok(Worker::new(shared.clone(), remote.clone(), worker_options, channel))
                })
                .collect();
            stepped::enlist(shared, workers?, *seed, clock.clone());
            Ok(Crew::Stepped)
        }
    }
}

/// Opens a worker's channel, on the thread that will use it.
fn open_channel(
    shared: &Shared,
    remote: &Remote,
    options: WorkerOptions,
) -> Result<Box<dyn IoChannel>> {
    let channel_options = ChannelOptions {
        depth: options.depth,
        arenas: vec![shared.pool.frames.arena().clone()],
        wake: Some(remote.wake.clone()),
    };
    shared
        .device
        .open_channel(&channel_options)
        .map_err(|error| Error::block(error, "opening a worker's channel"))
}

fn start_threads(
    shared: &Arc<Shared>,
    worker_options: WorkerOptions,
) -> Result<Vec<std::thread::JoinHandle<qpair_block::ChannelStatistics>>> {
    let (started, starting) = mpsc::channel();
    let mut threads = Vec::new();
    for (index, remote) in shared.remotes.iter().enumerate() {
        let (shared, remote, report) = (shared.clone(), remote.clone(), started.clone());
        let thread =
            std::thread::Builder::new().name(format!("qpair-worker-{index}")).spawn(move || {
                match open_channel(&shared, &remote, worker_options) {
                    Ok(channel) => {
                        let _ = report.send(Ok(()));
                        drop(report);
                        Worker::run(shared, remote, worker_options, channel)
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
                let _ = started
                    .send(Err(Error::new(ErrorKind::Limit, format!("starting a worker: {error}"))));
            }
        }
    }
    drop(started);
    let outcome: Result<()> = starting.iter().take(shared.remotes.len()).collect();
    if let Err(error) = outcome {
        shared.remotes.iter().for_each(|remote| remote.stop());
        for thread in threads {
            let _ = thread.join();
        }
        return Err(error);
    }
    Ok(threads)
}
