//! An incarnation of a store: what it has between an opening and a close or crash, on its members and in its logs.
//!
//! What always holds: nothing changes before the superblocks say, durably, that the store is open, so that a crash from there on shows; and no
//! commit is made before every worker has a log, and a checkpoint names where it begins.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use qpair_block::BlockDevice;
use qpair_format::large::Descriptor;
use qpair_format::superblock::{StoreState, Superblock};
use qpair_format::{Error, ErrorKind, Result};

use crate::checkpoint::{SpaceRetry, checkpoint, fit_before_changes, name_logs, on_every_worker};
use crate::shared::Shared;
use crate::space::BarrierGuard;
use crate::sync::AsyncMutex;
use crate::task::{OneshotSender, current, spawn_here};

/// Room in the log that a commit of usual size needs, bytes.
const LOG_ROOM_BYTES: usize = 4096;

/// An incarnation of a store.
pub(crate) struct Incarnation {
    pub(crate) shared: Arc<Shared>,
    pub(crate) members: Vec<Arc<dyn BlockDevice>>,
    /// The superblock as it is on the members now.
    pub(crate) superblock: Mutex<Superblock>,
    /// The superblocks were read after a crash, and of all members the same: some may be in a cache only, if a flush failed before it.
    superblocks_in_doubt: bool,
    /// Tasks that free the pages of dropped tables wait for these until the store is marked open: before, nothing may change.
    pub(crate) first_change: Mutex<Vec<OneshotSender<()>>>,
    /// Held by a task that begins the logs.
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
            superblock: Mutex::new(superblock),
            superblocks_in_doubt,
            first_change: Mutex::default(),
            starting: Arc::default(),
        }
    }

    /// [`Incarnation::begin_change`] for one that allocates pages: a close waits until the guard is dropped.
    pub(crate) fn enter_change(&self) -> Result<ChangeGuard> {
        self.begin_change()?;
        self.shared.space.enter()?;
        Ok(ChangeGuard(self.shared.clone()))
    }

    /// Refuses changes to a store that does not take them; before the first change, marks the store open on its
    /// members, durably, so that a crash from here on shows.
    pub(crate) fn begin_change(&self) -> Result<()> {
        self.shared.lifecycle.check_writable()?;
        if self.shared.lifecycle.is_marked_open() {
            return Ok(());
        }
        self.shared.lifecycle.check_process()?;
        let mut superblock = self.superblock.lock().unwrap_or_else(PoisonError::into_inner);
        if self.shared.lifecycle.is_closing() {
            return Err(Error::closed());
        }
        if self.shared.lifecycle.is_marked_open() {
            return Ok(());
        }
        if self.superblocks_in_doubt {
            // Else the next crash might find the new ones beside such that are older by two.
            qpair_members::write_all(&self.members, &superblock).inspect_err(|error| {
                self.shared.fail(error.clone());
            })?;
        }
        // After a crash it says open already. Each incarnation has a generation of its own all the same: the log's blocks tell
        // incarnations apart by it.
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
        // The log device follows: until its superblock is written, nothing of this incarnation is there.
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

    /// Says on the members that the store is closed, and whole.
    pub(crate) fn mark_clean(&self) -> Result<()> {
        let mut superblock = self.superblock.lock().unwrap_or_else(PoisonError::into_inner);
        let next = Superblock {
            state: StoreState::Clean,
            unfinished: false,
            renames: false,
            generation: superblock.generation + 1,
            ..superblock.clone()
        };
        qpair_members::write_all(&self.members, &next)?;
        // Only a log device that says that the store is being made may be made another store's: from here on this one has an owner.
        if let Some(log_device) = self.shared.wal.device.as_ref().filter(|_| superblock.unfinished)
        {
            log_device.mark(next.generation, false)?;
        }
        *superblock = next;
        Ok(())
    }

    /// Before anything refers to a value in several runs, the superblocks say that there may be some: older software would not find its pages.
    pub(crate) fn note_listed(&self, descriptor: Descriptor) -> Result<()> {
        if !descriptor.listed || self.shared.large.lists.may_be() {
            return Ok(());
        }
        self.note_feature(|superblock| &mut superblock.extents)?;
        self.shared.large.lists.expect();
        Ok(())
    }

    /// Before a log has the rename of a table, the superblocks say that one may: to older software the log would end there.
    pub(crate) fn note_renames(&self) -> Result<()> {
        self.begin_change()?;
        if !self.shared.wal.options.enabled {
            return Ok(());
        }
        self.note_feature(|superblock| &mut superblock.renames)
    }

    /// The superblocks say from now on that the store has a feature.
    fn note_feature(&self, of: impl Fn(&mut Superblock) -> &mut bool) -> Result<()> {
        let mut superblock = self.superblock.lock().unwrap_or_else(PoisonError::into_inner);
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
        std::mem::take(&mut *self.first_change.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Incarnation {
    /// Enters the barrier to change the trees, on a worker. The first time, the logs begin.
    ///
    /// # Errors
    /// `ReadOnly`, `Closed`, `NoSpace`, and what the device says.
    pub(crate) async fn begin_commit(self: &Arc<Self>) -> Result<BarrierGuard> {
        self.begin_change()?;
        if !self.shared.wal.has_begun() {
            // Runs to its end even if the committing task is dropped.
            let incarnation = self.clone();
            let begin = move || async move { incarnation.begin_logs(true, None).await };
            spawn_here(&self.shared, begin).await?.map_err(|error| self.or_fewer_workers(error))?;
        }
        // A full device: with the log that a checkpoint makes obsolete, changes that take no space, and deletes, go on.
        let bytes = LOG_ROOM_BYTES.min(self.shared.wal.geometry().room_bytes() as usize);
        SpaceRetry::tried(&self.shared, async || {
            current(|worker| worker.make_log_room(bytes)).unwrap_or(Ok(()))
        })
        .await?;
        self.shared.checkpointing.barrier.enter().await
    }

    /// Each worker has a log and frames of its own, so fewer of them need less space.
    fn or_fewer_workers(&self, error: Error) -> Error {
        match self.shared.worker_handles.len() {
            workers if workers > 1 && error.kind() == ErrorKind::NoSpace => error.or_hint(format!(
                "or open the store with fewer workers than {workers}: as many as when it was filled, or 1, can delete"
            )),
            _ => error,
        }
    }

    /// Begins a log on every worker, and makes the checkpoint that says where they begin; or the last one says so, if that is
    /// what `behind` tells of. `smaller`: as [`Shared::take_first_segments`].
    pub(crate) async fn begin_logs(&self, smaller: bool, behind: Option<Behind>) -> Result<()> {
        let _alone = self.starting.enter().await;
        if self.shared.wal.has_begun() {
            return Ok(());
        }
        if self.shared.wal.options.enabled {
            self.take_first_segments(smaller).await?;
            let incarnation =
                self.superblock.lock().unwrap_or_else(PoisonError::into_inner).generation;
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
        // What recovery left in memory is clean now. Where even the smallest pool has no room, a change says so.
        if let Err(error) = self.fit_pool().await
            && error.kind() != ErrorKind::NoSpace
        {
            return Err(error);
        }
        self.shared.wal.set_begun();
        Ok(())
    }

    /// Makes sure that changes may begin; a device without room for the reserve has a smaller pool.
    ///
    /// # Errors
    /// `NoSpace` if the smallest is not small enough.
    async fn fit_pool(&self) -> Result<()> {
        while let Err(error) = self.shared.space.make_room_for_changes() {
            if !fit_before_changes(&self.shared).await? {
                return Err(error);
            }
        }
        Ok(())
    }

    /// [`Shared::take_first_segments`]; a device without room for them beside the reserve has a smaller pool.
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

/// The last checkpoint, behind which new logs begin.
pub(crate) struct Behind {
    /// The roots of its image.
    pub(crate) roots: BTreeMap<u32, u64>,
    /// Places in the logs that come between it and the new ones.
    pub(crate) logs: Vec<Vec<u8>>,
}

/// A change under way that has pages nothing refers to yet.
pub(crate) struct ChangeGuard(Arc<Shared>);

impl Drop for ChangeGuard {
    fn drop(&mut self) {
        self.0.space.leave();
    }
}
