//! What all workers of a store share.

mod flushes;
mod large;
mod merging;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use qpair_block::{BlockDevice, DeviceInfo};
use qpair_format::image::Record;
use qpair_format::log::LogGeometry;
use qpair_format::place::page_of;
use qpair_format::{Error, ErrorKind, Result};

use crate::canary::Canary;
use crate::large::KnownLists;
use crate::log::{Durability, Durable, ExpectedRecords, OldLogs};
use crate::log_device::LogDevice;
use crate::metrics::Counters;
use crate::oracle::TimestampOracle;
use crate::pool::{Around, Checkpoints, Copies, Patience, Pool, Root, Tree};
use crate::space::{Gate, Purpose, Space};
use crate::sync::{AsyncMutex, Waiters, WorkerHandle};

use flushes::Flushes;
use merging::Merging;

/// Segments for each log: one that is being filled, one that its header names, and one to be named by that one's. Once a checkpoint
/// has passed, no log needs those before.
const SEGMENTS_MIN: usize = 3;

/// How a store keeps its log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogOptions {
    /// Whether there is one.
    pub(crate) enabled: bool,
    /// Whether a write of the log waits until it survives power loss.
    pub(crate) flushed: bool,
    /// Bytes of log after which a checkpoint begins.
    pub(crate) checkpoint_bytes: u64,
    pub(crate) geometry: LogGeometry,
    /// Of changes that are not part of a transaction.
    pub(crate) durability: Durability,
    /// Reads that are not part of a transaction wait until what they found is durable.
    pub(crate) reads_wait: bool,
}

impl LogOptions {
    /// Whether there is a log that no worker flushes: a power cut may bring any commit since the last checkpoint back.
    pub(crate) fn is_unflushed(&self) -> bool {
        self.enabled && !self.flushed
    }
}

/// What recovery did when the store was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Commits of the log that were made again.
    pub commits: u64,
    /// Unacknowledged commits in the log, which recovery left out.
    pub dropped: u64,
    /// Bytes of log that were read.
    pub bytes: u64,
    /// Memory that was taken beyond what was given, bytes, since the log had changes of very many tables.
    pub more_memory_bytes: u64,
}

/// The parts of an open store that every worker and every caller reach.
pub(crate) struct Shared {
    pub(crate) pool: Pool,
    pub(crate) space: Space,
    /// Gives commits their timestamps.
    pub(crate) oracle: TimestampOracle,
    /// The device behind the pages: page `n` is at `n * page_size`.
    pub(crate) device: Arc<dyn BlockDevice>,
    /// The device that the logs are on, if they have one of their own.
    pub(crate) log_device: Option<LogDevice>,
    pub(crate) page_size: usize,
    pub(crate) read_only: bool,
    pub(crate) store_id: [u8; 16],
    pub(crate) worker_handles: Vec<Arc<WorkerHandle>>,
    /// Logs of earlier lives of the store.
    pub(crate) old_logs: OldLogs,
    /// What ends with the store.
    companions: Mutex<Vec<Box<dyn std::any::Any + Send>>>,
    /// A bug planted for the simulation to find.
    pub(crate) canary: Option<Canary>,
    /// How often a planted panic is still passed.
    pub(crate) canary_passes: AtomicU64,
    /// Every change of the trees is between its entering and leaving.
    pub(crate) gate: Arc<Gate>,
    pub(crate) checkpoints: Checkpoints,
    /// Held by a task that makes a checkpoint or drops a table.
    pub(crate) checkpointing: Arc<AsyncMutex>,
    /// Where large values are that are in several runs of pages.
    pub(crate) lists: KnownLists,
    /// Large values that were replaced, and that no reader needs any more; held until a checkpoint, if the log is not flushed.
    large_held: Mutex<Vec<Box<[u8]>>>,
    /// Held by a task that flushes the device.
    pub(crate) flushing: Arc<AsyncMutex>,
    pub(crate) flushes: Flushes,
    /// Leaves that deletes left sparse are being merged.
    pub(crate) merging: Arc<Merging>,
    /// Held by a task that loads the root of a tree.
    pub(crate) opening: Arc<AsyncMutex>,
    /// Roots of all trees, by tree id; 0 is the catalog. Those that no name leads to are being dropped.
    roots: Mutex<BTreeMap<u32, Root>>,
    /// The id of the next table. None is used twice in a life of the store: handles of a dropped table, and records of it
    /// in the log, must not be taken for those of another.
    next_tree: AtomicU32,
    /// Whether any table was dropped since the store was opened.
    has_dropped: AtomicBool,
    /// Dropped tables of which pages are being given back.
    dropping: Mutex<Vec<u32>>,
    /// Roots of dropped trees that left since a checkpoint under way began, whose image lists them: their places in it.
    departed: Mutex<BTreeMap<u32, u64>>,
    /// Memory of checkpoints; none in a store that is only read.
    pub(crate) copies: Copies,
    /// The process that has the workers.
    process_id: AtomicU32,
    /// Generation of the labels, as all members have it.
    pub(crate) generation: AtomicU64,
    /// The newest durable checkpoint's.
    record: Mutex<Record>,
    /// For each worker: a commit between its stamp and its record, which no other may come between.
    pub(crate) stamping: Vec<Arc<AsyncMutex>>,
    /// How far the logs are durable.
    pub(crate) durable: Durable,
    pub(crate) log: LogOptions,
    /// Bytes of each segment of the logs, once that is settled.
    log_segment_bytes: OnceLock<u32>,
    /// Bytes of the logs since the last checkpoint's instant, with headers and rests of blocks; of records, in all.
    pub(crate) log_bytes: AtomicU64,
    pub(crate) log_bytes_total: AtomicU64,
    /// Tasks that wait for the logs to become short.
    pub(crate) log_room: Waiters,
    /// Workers with a commit for whose record room was made, and that is not appended.
    pub(crate) log_expected: ExpectedRecords,
    /// Writes of the logs, each of which made durable what had gathered.
    pub(crate) log_writes: AtomicU64,
    /// A checkpoint was asked for, and is not over.
    pub(crate) checkpoint_wanted: AtomicBool,
    pub(crate) counters: Counters,
    /// Segments of logs in the store's space that hold nothing any more, by their byte offsets.
    spare_segments: Mutex<Vec<u64>>,
    /// How often some of them became free pages because changes found no room.
    pub(crate) spare_given: AtomicU64,
    /// What recovery did, if there was one.
    pub(crate) recovered: OnceLock<Recovered>,
    /// The first write or flush that failed; final.
    failure: OnceLock<Error>,
    /// The engine has panicked; final.
    pub(crate) panicked: OnceLock<Error>,
    /// The workers have their logs, and a checkpoint says where those begin.
    logs_begun: AtomicBool,
    /// The members say that the store is being changed.
    marked_open: AtomicBool,
    /// No change may begin any more.
    closing: AtomicBool,
    /// The workers have ended: nothing is answered any more.
    ended: AtomicBool,
}

impl Shared {
    pub(crate) fn new(
        pool: Pool,
        space: Space,
        device: Arc<dyn BlockDevice>,
        page_size: usize,
        worker_handles: Vec<Arc<WorkerHandle>>,
        log: LogOptions,
    ) -> Self {
        Self {
            gate: space.gate(),
            stamping: worker_handles.iter().map(|_| Arc::default()).collect(),
            durable: Durable::new(worker_handles.len()),
            log,
            log_segment_bytes: OnceLock::new(),
            log_device: None,
            log_bytes: AtomicU64::new(0),
            log_bytes_total: AtomicU64::new(0),
            log_room: Waiters::default(),
            log_expected: ExpectedRecords::default(),
            log_writes: AtomicU64::new(0),
            checkpoint_wanted: AtomicBool::new(false),
            counters: Counters::new(worker_handles.len()),
            spare_segments: Mutex::default(),
            spare_given: AtomicU64::new(0),
            old_logs: OldLogs::default(),
            companions: Mutex::default(),
            pool,
            space,
            oracle: TimestampOracle::new(0),
            device,
            page_size,
            read_only: false,
            store_id: [0; 16],
            worker_handles,
            canary: None,
            canary_passes: AtomicU64::new(0),
            checkpoints: Checkpoints::default(),
            checkpointing: Arc::default(),
            lists: KnownLists::default(),
            large_held: Mutex::default(),
            flushing: Arc::default(),
            flushes: Flushes::default(),
            merging: Arc::default(),
            opening: Arc::default(),
            next_tree: AtomicU32::new(1),
            has_dropped: AtomicBool::new(false),
            dropping: Mutex::default(),
            departed: Mutex::default(),
            roots: Mutex::default(),
            copies: Copies::default(),
            process_id: AtomicU32::new(std::process::id()),
            generation: AtomicU64::new(0),
            record: Mutex::default(),
            recovered: OnceLock::new(),
            failure: OnceLock::new(),
            panicked: OnceLock::new(),
            logs_begun: AtomicBool::new(false),
            marked_open: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// Refuses what a fork of the process that opened the store asks of it.
    pub(crate) fn check_process(&self) -> Result<()> {
        let (opened, own) = (self.process_id.load(Ordering::Relaxed), std::process::id());
        if opened == own {
            return Ok(());
        }
        Err(Error::with_hint(
            ErrorKind::Invalid,
            format!(
                "process {opened} opened the store and process {own} is a fork of it: a fork does not have the threads of the store's workers"
            ),
            "open stores after the fork, in the process that uses them",
        ))
    }

    /// Makes this process a fork of the one that opened the store, as far as can be told.
    #[cfg(test)]
    pub(crate) fn pretend_fork(&self) {
        self.process_id.store(0, Ordering::Relaxed);
    }

    /// Whether this bug is planted.
    pub(crate) fn has_canary(&self, canary: Canary) -> bool {
        self.canary == Some(canary)
    }

    /// Where pages get new places from, and what they are for.
    pub(crate) fn places(&self) -> (&Space, &Checkpoints) {
        (&self.space, &self.checkpoints)
    }

    /// What the pool has to know of the store to let pages go.
    pub(crate) fn around(&self) -> Around<'_> {
        let Self { space, checkpoints, roots, failure, .. } = self;
        Around { space, checkpoints, roots, failure }
    }

    /// Roots of all trees.
    pub(crate) fn roots(&self) -> MutexGuard<'_, BTreeMap<u32, Root>> {
        self.roots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An id that no tree has, nor had since the store was opened.
    pub(crate) fn new_tree_id(&self) -> u32 {
        self.next_tree.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes that there is a tree with this id.
    pub(crate) fn skip_tree_id(&self, id: u32) {
        self.next_tree.fetch_max(id.saturating_add(1), Ordering::Relaxed);
    }

    /// A table is about to go: to be called before the stamp of its drop is taken, so that a commit with a later one sees it.
    pub(crate) fn note_dropped(&self, tree: Tree) {
        tree.note_dropped(&self.pool, true);
        self.has_dropped.store(true, Ordering::Release);
    }

    /// The table does not go after all.
    pub(crate) fn forget_dropped(&self, tree: Tree) {
        tree.note_dropped(&self.pool, false);
    }

    /// A dropped tree's root is about to leave; `false` if it has left already. The caller is inside the gate and has the root latched.
    pub(crate) fn forget_root(&self, tree: Tree) -> bool {
        let mut roots = self.roots();
        if roots.remove(&tree.id).is_none() {
            return false;
        }
        if self.checkpoints.epoch().saving {
            let place = self.pool.frames.page_id(tree.root);
            self.departed.lock().unwrap_or_else(PoisonError::into_inner).insert(tree.id, place);
        }
        true
    }

    /// All trees and their roots at the instant of a checkpoint: the gate is closed.
    pub(crate) fn begin_image_of_roots(&self) -> BTreeMap<u32, Root> {
        let roots = self.roots();
        self.departed.lock().unwrap_or_else(PoisonError::into_inner).clear();
        roots.clone()
    }

    /// Where the image has the roots that there were at its instant. All pages are saved, and [`Checkpoints`] says still that they are
    /// being saved.
    pub(crate) fn places_of_roots(&self, at_instant: BTreeMap<u32, Root>) -> BTreeMap<u32, u64> {
        // A task that releases a root holds this lock; until then the root stays in its frame.
        let now = self.roots();
        let departed = self.departed.lock().unwrap_or_else(PoisonError::into_inner);
        let place = |(tree, root)| match root {
            Root::Closed(page_id) => (tree, page_id),
            Root::Open(frame) => match departed.get(&tree) {
                Some(page_id) if !now.contains_key(&tree) => (tree, *page_id),
                // A root leaves its place only for an image: where it is now is where this one has it.
                _ => (tree, self.pool.frames.page_id(frame)),
            },
        };
        at_instant.into_iter().map(place).collect()
    }

    /// A dropped table's pages are being given back, or all were.
    pub(crate) fn note_dropping(&self, tree: u32, begun: bool) {
        let mut dropping = self.dropping.lock().unwrap_or_else(PoisonError::into_inner);
        dropping.retain(|other| *other != tree);
        if begun {
            dropping.push(tree);
        }
    }

    /// Tables whose pages are being given back.
    pub(crate) fn dropping(&self) -> usize {
        self.dropping.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether any table was dropped since the store was opened.
    pub(crate) fn has_dropped(&self) -> bool {
        self.has_dropped.load(Ordering::Acquire)
    }

    /// Refuses the use of a table that was dropped. A reader asks after its read: the table may be half empty by then.
    #[inline(always)]
    pub(crate) fn check_table(&self, tree: Tree) -> Result<()> {
        if tree.is_open(&self.pool) { Ok(()) } else { Err(Error::table_dropped()) }
    }

    /// The newest durable checkpoint's record.
    pub(crate) fn record(&self) -> Record {
        *self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a newer one; the one before.
    pub(crate) fn replace_record(&self, record: Record) -> Record {
        std::mem::replace(&mut *self.record.lock().unwrap_or_else(PoisonError::into_inner), record)
    }

    /// The stamp of the last commit that is in the trees in full.
    pub(crate) fn last_stamp(&self) -> u64 {
        self.oracle.applied()
    }

    /// A stamp that no commit to come is below.
    pub(crate) fn next_stamp(&self) -> u64 {
        self.last_stamp() + 1
    }

    /// Whether the logs have an eighth more than a checkpoint begins at: one is under way, and slower than they grow. Commits that have begun
    /// have another eighth.
    pub(crate) fn are_logs_long(&self) -> bool {
        let most = self.log.checkpoint_bytes;
        self.log_bytes.load(Ordering::Relaxed).saturating_sub(most) > most / 8
    }

    /// Sizes of the logs: what the options say, until the logs begin.
    pub(crate) fn log_geometry(&self) -> LogGeometry {
        let segment_bytes = self.log_segment_bytes.get().copied();
        let options = self.log.geometry;
        LogGeometry { segment_bytes: segment_bytes.unwrap_or(options.segment_bytes), ..options }
    }

    /// Takes the segments that logs in the store's space never go without. With them each log can go on once a checkpoint has passed,
    /// however full the device is, and however its free pages lie. `smaller`: where there is no room for segments as large as the options
    /// say, they are smaller in this life of the store.
    ///
    /// # Errors
    /// `NoSpace`; none is taken then.
    pub(crate) fn take_first_segments(&self, smaller: bool) -> Result<()> {
        if self.log_device.is_some() || self.log_segment_bytes.get().is_some() {
            return Ok(());
        }
        let LogGeometry { block_bytes, segment_bytes } = self.log.geometry;
        let least = (block_bytes * LogGeometry::SEGMENT_BLOCKS_MIN).max(self.page_size as u32);
        let mut bytes = segment_bytes;
        loop {
            let smallest = bytes / 2 < least;
            // A store that may not have smaller ones gets them after a checkpoint, whose room is not taken.
            let all = smaller && smallest;
            match self.take_segments(SEGMENTS_MIN * self.worker_handles.len(), bytes.into(), all) {
                Err(error) if error.kind() == ErrorKind::NoSpace && smaller && !smallest => {
                    bytes /= 2;
                }
                Err(error) => return Err(error),
                Ok(segments) => {
                    self.spare_segments().extend(segments);
                    let _ = self.log_segment_bytes.set(bytes);
                    return Ok(());
                }
            }
        }
    }

    /// So many segments of this size, or none. Unless `all`, as much room is left as others get that is new, and beside the logs.
    fn take_segments(&self, count: usize, bytes: u64, all: bool) -> Result<Vec<u64>> {
        let pages = bytes / self.page_size as u64;
        let purpose = if all { Purpose::FirstLog } else { Purpose::Log };
        let mut segments = Vec::with_capacity(count);
        for _ in 0..count {
            let taken = self.space.allocate_detached(pages, purpose);
            let outcome = taken.and_then(|first| {
                segments.push(self.offset_bytes(first));
                if all { Ok(()) } else { self.space.keep_beside_logs() }
            });
            if let Err(refused) = outcome {
                for offset_bytes in segments {
                    self.space.free_log(offset_bytes / self.page_size as u64, pages);
                }
                return Err(refused);
            }
        }
        Ok(segments)
    }

    /// Another segment for a log: one that a checkpoint made obsolete, or what is free.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(crate) fn new_segment(&self) -> Result<u64> {
        if let Some(log_device) = &self.log_device {
            return log_device.allocate();
        }
        if let Some(offset_bytes) = self.spare_segments().pop() {
            return Ok(offset_bytes);
        }
        let pages = u64::from(self.log_geometry().segment_bytes) / self.page_size as u64;
        let first = self.space.allocate_detached(pages, Purpose::Log)?;
        Ok(self.offset_bytes(first))
    }

    /// Where the bytes that logs can lie in end, as an address of the workers' channels.
    pub(crate) fn log_end_address(&self) -> u64 {
        self.log_device.as_ref().map_or_else(|| self.device.size_bytes(), LogDevice::end_address)
    }

    /// Largest request for a log, bytes.
    pub(crate) fn log_transfer_bytes_max(&self) -> u32 {
        self.log_info().transfer_bytes_max
    }

    /// The device that the logs are on.
    pub(crate) fn log_info(&self) -> &DeviceInfo {
        self.log_device.as_ref().map_or(self.device.info(), |of| of.device.info())
    }

    pub(crate) fn spare_segments(&self) -> MutexGuard<'_, Vec<u64>> {
        self.spare_segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps segments for the logs to go on in; those that are too many become free pages.
    pub(crate) fn keep_spare_segments(&self, segments: Vec<u64>) {
        if let Some(log_device) = &self.log_device {
            return log_device.give(segments);
        }
        let segment_bytes = u64::from(self.log_geometry().segment_bytes);
        let most =
            (self.log.checkpoint_bytes / segment_bytes) as usize + 2 * self.worker_handles.len();
        let mut spare = self.spare_segments();
        spare.extend(segments);
        let page_size = self.page_size as u64;
        while spare.len() > most
            && let Some(offset_bytes) = spare.pop()
        {
            self.space.free_log(offset_bytes / page_size, segment_bytes / page_size);
        }
    }

    /// Makes free pages of the segments that are spare, but for one for each log to go on in; whether there were any.
    pub(crate) fn give_spare_segments(&self) -> bool {
        self.give_spare_segments_but(self.worker_handles.len())
    }

    /// The same, but for so many.
    pub(crate) fn give_spare_segments_but(&self, keep: usize) -> bool {
        let mut spare = self.spare_segments();
        if self.log_device.is_some() || spare.len() <= keep {
            return false;
        }
        let page_size = self.page_size as u64;
        let pages = u64::from(self.log_geometry().segment_bytes) / page_size;
        for offset_bytes in spare.drain(keep..) {
            self.space.free_log(offset_bytes / page_size, pages);
        }
        self.spare_given.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Keeps the cause of a failed write or flush: from now on the store is read-only. Tasks that wait for commits or pages get the failure:
    /// sleeping workers look for it in their next turn.
    pub(crate) fn fail(&self, error: Error) {
        if self.failure.set(error).is_ok() {
            self.worker_handles.iter().for_each(|handle| handle.wake_up());
            self.log_room.wake_all();
        }
    }

    /// Whether a commit that has its stamp, and was told this, tries again: it found no frame, and the device is well. Its pages have
    /// places; if those were not enough, there are more for them from here on. It does not try again where no frame will ever come.
    pub(crate) fn waits_on(&self, error: &Error, patience: &mut Patience) -> bool {
        if error.kind() != ErrorKind::NoMemory || self.failure().is_some() {
            return false;
        }
        self.space.note_starved();
        let evictions = self.pool.evictions.load(Ordering::Relaxed);
        patience.waits_on(Instant::now(), evictions, self.space.has_image())
    }

    /// Whether what was found at this stamp may be given to a program. `waits`: it has not asked for what is not durable.
    #[inline]
    pub(crate) fn may_give(&self, waits: bool, stamp: u64) -> bool {
        !waits || !self.log.enabled || self.durable.has(stamp)
    }

    /// Closes the gate and waits until no commit is inside.
    ///
    /// # Errors
    /// Why the store failed, if the gate was opened for that meanwhile.
    pub(crate) async fn close_gate(&self) -> Result<()> {
        match self.gate.close().await {
            true => Ok(()),
            false => Err(self.failure().cloned().unwrap_or_else(Error::closed)),
        }
    }

    /// The cause that made the store read-only, if one did.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    /// Whether the store may be changed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if let Some(panicked) = self.panicked() {
            return Err(panicked.clone());
        }
        if let Some(failure) = self.failure() {
            return Err(Error::with_hint(
                ErrorKind::ReadOnly,
                format!("the store is read-only because a write failed: {failure}"),
                "repair the device, then open the store again: it recovers every acknowledged commit",
            ));
        }
        if self.read_only {
            return Err(Error::new(ErrorKind::ReadOnly, "the store was opened for reading only"));
        }
        Ok(())
    }

    pub(crate) fn is_marked_open(&self) -> bool {
        // Acquire: pairs with `mark_open`, so that changes come after the labels were written.
        self.marked_open.load(Ordering::Acquire)
    }

    pub(crate) fn mark_open(&self) {
        self.marked_open.store(true, Ordering::Release);
    }

    #[inline(always)]
    pub(crate) fn logs_begun(&self) -> bool {
        self.logs_begun.load(Ordering::Acquire)
    }

    pub(crate) fn set_logs_begun(&self) {
        self.logs_begun.store(true, Ordering::Release);
    }

    /// A checkpoint is durable that needs no log of an earlier life: gives back what those are in.
    pub(crate) fn give_back_old_logs(&self) {
        if let Some(runs) = self.old_logs.take_obsolete() {
            runs.into_iter().for_each(|(first, pages)| self.space.free(first, pages));
            self.log_device.iter().for_each(LogDevice::release_claims);
        }
    }

    /// Keeps something until the store is closed.
    pub(crate) fn keep(&self, companion: Box<dyn std::any::Any + Send>) {
        self.companions.lock().unwrap_or_else(PoisonError::into_inner).push(companion);
    }

    /// Lets go of what was kept until the store is closed.
    pub(crate) fn end_companions(&self) {
        let companions =
            std::mem::take(&mut *self.companions.lock().unwrap_or_else(PoisonError::into_inner));
        drop(companions);
    }

    /// Lets no change begin from now on. Those under way go on until they ask [`Shared::is_closing`].
    pub(crate) fn begin_closing(&self) {
        self.closing.store(true, Ordering::Release);
        self.space.begin_closing();
    }

    #[inline(always)]
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Refuses every call from now on: the workers have ended.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    #[inline(always)]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Where a page is on the device, bytes.
    pub(crate) fn offset_bytes(&self, place: u64) -> u64 {
        page_of(place) * self.page_size as u64
    }
}
