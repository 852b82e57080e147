//! Opening and making stores.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use qpair_block::{ArenaOptions, BlockDevice, DeviceInfo, WakeEvent, format_bytes};
use qpair_format::log::LogGeometry;
use qpair_format::page::TAG_BYTES;
use qpair_format::superblock::{SUPERBLOCK_BYTES, StoreState, Superblock};
use qpair_format::{Error, ErrorKind, Remedy, Result};
use qpair_members::Attached;
use qpair_members::LogPlace;
use qpair_memory::FrameTable;
use qpair_memory::locks::Mutex;

use super::recover::Room;
use super::workers::start_workers;
use super::{Store, StoreInner, StoreOptions};
use crate::canary::Planted;
use crate::incarnation::Incarnation;
use crate::log::Durability;
use crate::log_device::LogDevice;
use crate::pool::{Copies, Pool, frames_min};
use crate::readers::{KeptImages, Marks, Witness};
use crate::shared::{LogOptions, Shared};
use crate::space::Space;
use crate::sync::WorkerHandle;
use crate::task::Runtime;
use crate::tx::{Tx, TxOptions};

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
            || options.beside_writer
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
        let encryption = options.encryption.as_ref();
        let members = qpair_members::unlock(members, &superblock, encryption)?;
        let log_device = log_device
            .map(|attached| -> Result<Attached> {
                let device = qpair_members::unlock_log(attached.device, &superblock, encryption)?;
                Ok(Attached { device, ..attached })
            })
            .transpose()?;
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
        let is_encrypted = options.encryption.is_some();
        let geometry = log_geometry(device.info(), page_size, is_encrypted, options);
        let workers = options.worker_count() as u64;
        qpair_members::make_room(device.as_ref(), geometry.segment_bytes.into(), workers)?;
    }
    make_room_for_superblocks(members, unit)?;
    let mut superblock = new_superblock(members.len(), page_size, unit, created_s);
    // Set until the first checkpoint is durable: a crash before that leaves no store.
    superblock.unfinished = true;
    superblock.key_slot = options.encryption.as_ref().map(|key| key.new_slot()).transpose()?;
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
                .map_err(|error| Error::block(error, "reserving space for a new store"))?;
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
        compressed: false,
        expiring: false,
        long_keys: false,
        commit_parts: false,
        log: None,
        key_slot: None,
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
    let (page_size, page_bytes) = (superblock.page_size as usize, superblock.page_bytes());
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
    let frames = frames.with_tags(page_size - page_bytes);
    let pool = Pool::new(frames, workers).with_parent_hints(options.parent_hints);
    let mut space = Space::new(device.clone(), page_size, frame_count);
    space.run_pages_max = options.run_pages_max;
    space.page_bytes = page_bytes;
    let store_id = superblock.store_id;
    let log_info = log_device.as_ref().map_or(device.info(), |attached| attached.device.info());
    let geometry = log_geometry(log_info, page_size, page_bytes < page_size, options);
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
        recent_bytes_max: (options.memory_bytes / 16).clamp(16 << 10, 16 << 20) as usize,
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
    let locks = members[0].byte_locks();
    let marks = locks.map(|locks| Marks::new(locks, store_id));
    if options.beside_writer {
        let witness = Witness::new(marks, shared.device.clone(), (page_size, page_bytes), store_id);
        shared.witness = Some(Box::new(witness));
    } else if !read_only {
        shared.kept_images = KeptImages::new(marks, options.readers_bytes_max);
    }
    shared.planted = Planted::new(options.canary, options.canary_passes);
    shared.expiry.clock = options.wall_clock.clone();
    shared.expiry.removes = matches!(options.runtime, Runtime::Threads);
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
        encryption: options.encryption.clone(),
        image_fault: OnceLock::new(),
        tables: Mutex::default(),
        changing_tables: Mutex::default(),
        worker_set: Mutex::new(worker_set),
        closed: Mutex::default(),
        next_worker: AtomicUsize::new(0),
    })
}

fn log_geometry(
    device: &DeviceInfo,
    page_size: usize,
    is_encrypted: bool,
    options: &StoreOptions,
) -> LogGeometry {
    // A page is the unit of encryption.
    let (least, tag_bytes) = match is_encrypted {
        true => (page_size, TAG_BYTES as u32),
        false => (page_size.min(4096), 0),
    };
    let block_bytes = device.logical_block_bytes.max(least as u32);
    let least = page_size.max(4 * block_bytes as usize) as u32;
    let segment_bytes = options.log_segment_bytes.next_power_of_two().max(least);
    LogGeometry { block_bytes, segment_bytes, tag_bytes }
}
