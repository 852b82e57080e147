//! An incarnation of a store: its life from an opening to a close or crash, on its members and in
//! its logs.
//!
//! Invariants: nothing changes before the superblocks say, durably, that the store is open, so that
//! a later crash is noticed. No commit is made before every worker has a log and a checkpoint names
//! where these logs begin.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qpair_block::BlockDevice;
use qpair_format::large::Descriptor;
use qpair_format::superblock::{StoreState, Superblock};
use qpair_format::{Error, ErrorKind, Remedy, Result};
use qpair_memory::locks::Mutex;

use crate::canary::Canary;
use crate::checkpoint::{SpaceRetry, checkpoint, fit_before_changes, name_logs, on_every_worker};
use crate::shared::Shared;
use crate::space::BarrierGuard;
use crate::sync::AsyncMutex;
use crate::task::{OneshotSender, current, spawn_here};

/// Log space that a commit of usual size needs, in bytes.
const LOG_ROOM_BYTES: usize = 4096;

pub(crate) struct Incarnation {
    pub(crate) shared: Arc<Shared>,
    pub(crate) members: Vec<Arc<dyn BlockDevice>>,
    pub(crate) superblock: Mutex<Superblock>,
    /// The superblocks were read after a crash, and all members have the same one. Some may be in a
    /// volatile cache only, if a flush failed before the crash.
    superblocks_in_doubt: bool,
    /// Whether the superblocks say that there may be long keys.
    long_keys: AtomicBool,
    /// Wakes the tasks that free the pages of dropped tables. They wait until the store is marked
    /// open, since nothing may change before that.
    pub(crate) first_change: Mutex<Vec<OneshotSender<()>>>,
    /// Held by the task that begins the logs.
    starting: Arc<AsyncMutex>,
}

impl Incarnation {
    pub(crate) fn new(
        shared: Arc<Shared>,
        members: Vec<Arc<dyn BlockDevice>>,
        superblock: Superblock,
        superblocks_in_doubt: bool,
    ) -> Self {
        Self {
            shared,
            members,
            long_keys: superblock.long_keys.into(),
            superblock: Mutex::new(superblock),
            superblocks_in_doubt,
            first_change: Mutex::default(),
            starting: Arc::default(),
        }
    }

    /// Like [`Incarnation::begin_change`], for a change that allocates pages: a close waits until
    /// the guard is dropped.
    pub(crate) fn enter_change(&self) -> Result<ChangeGuard> {
        self.begin_change()?;
        self.shared.space.enter()?;
        Ok(ChangeGuard(self.shared.clone()))
    }

    /// Checks that the store accepts changes. The first change marks the store open on its members,
    /// durably, so that a later crash is noticed.
    pub(crate) fn begin_change(&self) -> Result<()> {
        self.shared.lifecycle.check_writable()?;
        if self.shared.lifecycle.is_marked_open() {
            return Ok(());
        }
        self.shared.lifecycle.check_process()?;
        let mut superblock = self.superblock.lock();
        if self.shared.lifecycle.is_closing() {
            return Err(Error::closed());
        }
        if self.shared.lifecycle.is_marked_open() {
            return Ok(());
        }
        if self.superblocks_in_doubt {
            // Otherwise the next crash might leave the new superblocks beside ones that are two
            // generations older.
            qpair_members::write_all(&self.members, &superblock).inspect_err(|error| {
                self.shared.fail(error.clone());
            })?;
        }
        // After a crash the state is `Open` already, but each incarnation still gets its own
        // generation: the log's blocks tell incarnations apart by it.
        let next = Superblock {
            state: StoreState::Open,
            generation: superblock.generation + 1,
            ..superblock.clone()
        };
        self.write_open_superblocks(&mut superblock, next)?;
        self.shared.lifecycle.mark_open();
        self.take_first_change().into_iter().for_each(|sender| sender.fill(Ok(())));
        Ok(())
    }

    fn write_open_superblocks(&self, superblock: &mut Superblock, next: Superblock) -> Result<()> {
        // The log device comes last: until its superblock is written, it has nothing of this
        // incarnation.
        let written = qpair_members::write_all(&self.members, &next).and_then(|()| {
            let log_device = self.shared.wal.device.as_ref();
            log_device
                .map_or(Ok(()), |log_device| log_device.mark(next.generation, next.unfinished))
        });
        if let Err(error) = written {
            self.shared.fail(error.clone());
            return Err(error);
        }
        self.shared.lifecycle.generation.store(next.generation, Ordering::Release);
        *superblock = next;
        Ok(())
    }

    /// Marks the store closed and complete on its members.
    pub(crate) fn mark_clean(&self) -> Result<()> {
        let mut superblock = self.superblock.lock();
        let next = Superblock {
            state: StoreState::Clean,
            unfinished: false,
            renames: false,
            commit_parts: false,
            generation: superblock.generation + 1,
            ..superblock.clone()
        };
        qpair_members::write_all(&self.members, &next)?;
        // Another new store may take a log device only while the device's superblock says that its
        // store is being made. From here on this log device belongs to this store.
        if let Some(log_device) = self.shared.wal.device.as_ref().filter(|_| superblock.unfinished)
        {
            log_device.mark(next.generation, false)?;
        }
        *superblock = next;
        Ok(())
    }

    /// Sets the feature flag for values in several runs, before anything refers to such a value:
    /// older software would not find its pages.
    pub(crate) fn note_listed(&self, descriptor: Descriptor) -> Result<()> {
        if !descriptor.listed || self.shared.large.lists.may_be() {
            return Ok(());
        }
        self.note_feature(|superblock| &mut superblock.extents)?;
        self.shared.large.lists.expect();
        Ok(())
    }

    /// Sets the feature flag for renames, before a log has the rename of a table: older software
    /// would take it for the log's end.
    pub(crate) fn note_renames(&self) -> Result<()> {
        self.begin_change()?;
        if !self.shared.wal.options.enabled {
            return Ok(());
        }
        self.note_feature(|superblock| &mut superblock.renames)
    }

    /// Sets the feature flag for commits in parts, before a log has a part: older software would
    /// take it for the log's end.
    pub(crate) fn note_commit_parts(&self) -> Result<()> {
        if !self.shared.wal.options.enabled {
            return Ok(());
        }
        self.note_feature(|superblock| &mut superblock.commit_parts)
    }

    /// Sets the feature flag for compressed values, before there is a table with such values.
    pub(crate) fn note_compressed(&self) -> Result<()> {
        self.begin_change()?;
        self.note_feature(|superblock| &mut superblock.compressed)
    }

    /// Sets the feature flag for tables with a time to live, before there is such a table.
    pub(crate) fn note_expiring(&self) -> Result<()> {
        self.begin_change()?;
        self.note_feature(|superblock| &mut superblock.expiring)
    }

    /// Sets the feature flag for keys of more than 1,024 bytes, before a log or a tree has such a
    /// key: older software takes none, and its repair would drop them.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_long_key(&self) -> Result<()> {
        // Acquire: the superblocks are durable once this is set.
        if self.long_keys.load(Ordering::Acquire) {
            return Ok(());
        }
        self.begin_change()?;
        if !self.shared.planted.is(Canary::UnmarkedLongKeys) {
            self.note_feature(|superblock| &mut superblock.long_keys)?;
        }
        self.long_keys.store(true, Ordering::Release);
        Ok(())
    }

    fn note_feature(&self, of: impl Fn(&mut Superblock) -> &mut bool) -> Result<()> {
        let mut superblock = self.superblock.lock();
        if self.shared.lifecycle.is_closing() {
            return Err(Error::closed());
        }
        let mut next = superblock.clone();
        if std::mem::replace(of(&mut next), true) {
            return Ok(());
        }
        next.generation += 1;
        self.write_open_superblocks(&mut superblock, next)
    }

    pub(crate) fn take_first_change(&self) -> Vec<OneshotSender<()>> {
        std::mem::take(&mut *self.first_change.lock())
    }
}

impl Incarnation {
    /// Enters the commit barrier to change the trees, on a worker. The first call begins the logs.
    ///
    /// # Errors
    /// `ReadOnly`, `Closed`, `NoSpace`, and errors of the device.
    pub(crate) async fn begin_commit(self: &Arc<Self>) -> Result<BarrierGuard> {
        self.begin_change()?;
        if !self.shared.wal.has_begun() {
            // A task of its own, which runs to its end even if the committing task is dropped.
            let incarnation = self.clone();
            let begin = move || async move { incarnation.begin_logs(true, None).await };
            spawn_here(&self.shared, begin).await?.map_err(|error| self.or_fewer_workers(error))?;
        }
        // On a full device, deletes and changes that take no space continue with the log space that
        // a checkpoint frees.
        let bytes = LOG_ROOM_BYTES.min(self.shared.wal.geometry().room_bytes() as usize);
        SpaceRetry::tried(&self.shared, async || {
            current(|worker| worker.make_log_room(bytes)).unwrap_or(Ok(()))
        })
        .await?;
        self.shared.checkpointing.barrier.enter().await
    }

    /// Adds the hint to open with fewer workers to a `NoSpace` error: each worker needs space for
    /// its log and its frames.
    fn or_fewer_workers(&self, error: Error) -> Error {
        match self.shared.worker_handles.len() {
            workers if workers > 1 && error.kind() == ErrorKind::NoSpace => {
                let hint = format!(
                    "or open the store with fewer workers than {workers}: as many as when it was filled, or 1, can delete"
                );
                error.or_remedy(hint, Remedy::FewerWorkers)
            }
            _ => error,
        }
    }

    /// Begins a log on every worker and makes a checkpoint that says where the logs begin. With
    /// `behind`, the last checkpoint's record names the new logs instead. For `smaller`, see
    /// [`Shared::take_first_segments`].
    pub(crate) async fn begin_logs(&self, smaller: bool, behind: Option<Behind>) -> Result<()> {
        let _alone = self.starting.enter().await;
        if self.shared.wal.has_begun() {
            return Ok(());
        }
        if self.shared.wal.options.enabled {
            self.take_first_segments(smaller).await?;
            let incarnation = self.superblock.lock().generation;
            let begun = on_every_worker(&self.shared, move || {
                Box::pin(async move { current(|worker| worker.begin_log(incarnation)) })
            });
            begun.await?.into_iter().flatten().collect::<Result<()>>()?;
            match behind {
                Some(Behind { roots, logs }) => {
                    self.fit_pool().await?;
                    name_logs(&self.shared, roots, logs).await?;
                }
                None => checkpoint(&self.shared, false).await?,
            }
        }
        // Pages that recovery left in memory are clean now. If even the smallest pool has no room,
        // the next change returns the error.
        if let Err(error) = self.fit_pool().await
            && error.kind() != ErrorKind::NoSpace
        {
            return Err(error);
        }
        self.shared.wal.set_begun();
        Ok(())
    }

    /// Makes sure that changes may begin. Shrinks the pool where the device has no room for the
    /// reserve.
    ///
    /// # Errors
    /// `NoSpace` if even the smallest pool needs too large a reserve.
    async fn fit_pool(&self) -> Result<()> {
        while let Err(error) = self.shared.space.make_room_for_changes() {
            if !fit_before_changes(&self.shared).await? {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Calls [`Shared::take_first_segments`]. Shrinks the pool where the device has no room for the
    /// segments beside the reserve.
    async fn take_first_segments(&self, smaller: bool) -> Result<()> {
        loop {
            match self.shared.take_first_segments(smaller) {
                Err(error)
                    if error.kind() == ErrorKind::NoSpace
                        && fit_before_changes(&self.shared).await? => {}
                outcome => return outcome,
            }
        }
    }
}

/// The last checkpoint, when new logs begin after it without another checkpoint.
pub(crate) struct Behind {
    pub(crate) roots: BTreeMap<u32, u64>,
    /// The positions of the logs between the checkpoint and the new logs.
    pub(crate) logs: Vec<Vec<u8>>,
}

/// A change under way with allocated pages that nothing refers to yet.
pub(crate) struct ChangeGuard(Arc<Shared>);

impl Drop for ChangeGuard {
    fn drop(&mut self) {
        self.0.space.leave();
    }
}
