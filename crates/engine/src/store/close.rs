//! Closing a store: a last checkpoint, and the superblocks.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use qpair_format::{ErrorKind, Result};
use qpair_memory::FrameIndex;
use qpair_memory::locks::Mutex;

use super::{Store, StoreInner, WorkerSet};
use crate::checkpoint::{checkpoint, on_every_worker};
use crate::shared::Shared;
use crate::task::{Worker, current, refuse_on_worker, stepped};

/// Limit on the pages that a close moves, in bytes, so that the file can be truncated behind them.
const MOVED_BYTES_MAX: u64 = 256 << 20;

impl Store {
    /// Writes all changes to the device, marks the store clean, and ends its workers. On return
    /// everything survives power loss.
    ///
    /// The call waits for tasks: from here on their changes fail with `Closed`, and a task that
    /// never ends keeps this call from returning. A file is truncated behind the last page in use.
    /// To make it shorter, up to 256 MiB of pages that lie behind free space are moved. They are
    /// read if necessary, as after a recovery, where the file would otherwise be longer by half of
    /// the space in use.
    ///
    /// From here on, other clones of the store, and its tables, return `Closed`. The devices are
    /// released, and so can be opened again, when the last of these clones is dropped. Concurrent
    /// callers all wait and get the same outcome.
    ///
    /// # Errors
    /// The error of a write or flush that failed, now or earlier; the store is not marked clean
    /// then. `NotFound` if a file of the store was removed while it was open: all data in it is
    /// lost. `Invalid` on a worker: the store then closes when its last clone is dropped.
    pub fn close(self) -> Result<()> {
        if self.inner.stays_long() {
            // A file that stays too large costs only space; the store is closed correctly without
            // the compaction. Other errors occur again below.
            let _ = self.compact(&|_, _| ControlFlow::Continue(()));
        }
        self.inner.close()
    }

    /// Keeps a value that cannot be used without the store, and drops it when the store has been
    /// closed.
    #[doc(hidden)]
    pub fn keep_until_closed(&self, companion: impl Send + 'static) {
        self.inner.shared.lifecycle.keep(Box::new(companion));
    }
}

impl Drop for StoreInner {
    fn drop(&mut self) {
        if self.shared.lifecycle.check_process().is_err() {
            // The threads belong to another process.
            let worker_set = self.worker_set.get_mut();
            std::mem::forget(std::mem::replace(worker_set, WorkerSet::Gone));
            return;
        }
        if refuse_on_worker().is_ok() {
            // No caller can receive the error. The superblock still says open, which the next
            // opening reports.
            let _ = self.close();
            return;
        }
        // A task dropped the last handle. Its worker cannot wait for itself, so another thread
        // closes the store.
        let worker_set = self.worker_set.get_mut();
        let worker_set = std::mem::replace(worker_set, WorkerSet::Gone);
        let stepped = matches!(worker_set, WorkerSet::Stepped);
        if matches!(worker_set, WorkerSet::Gone) {
            return;
        }
        let rest = Arc::new(Mutex::new(Some(Self {
            shared: self.shared.clone(),
            tx: self.tx.clone(),
            incarnation: self.incarnation.clone(),
            encryption: self.encryption.clone(),
            catalog: self.catalog.clone(),
            image_fault: self.image_fault.clone(),
            tables: Mutex::default(),
            changing_tables: Mutex::default(),
            worker_set: Mutex::new(worker_set),
            closed: Mutex::default(),
            next_worker: AtomicUsize::new(0),
        })));
        let closing = rest.clone();
        let take = |rest: &Mutex<Option<Self>>| rest.lock().take();
        if stepped {
            stepped::close_later(Box::new(move || drop(take(&closing))));
            return;
        }
        let closer = std::thread::Builder::new().name("qpair-close".to_owned());
        if closer.spawn(move || drop(take(&closing))).is_err() {
            // Without a thread nothing closes the store: its superblock still says open, as after a
            // crash.
            std::mem::forget(take(&rest));
        }
    }
}

impl StoreInner {
    pub(super) fn close(&self) -> Result<()> {
        self.shared.check_caller()?;
        let mut closed = self.closed.lock();
        closed.get_or_insert_with(|| self.close_once()).clone()
    }

    /// Returns the outcome of the close; `None` if the store was not closed. Waits for a close
    /// under way.
    pub(crate) fn outcome_of_close(&self) -> Option<Result<()>> {
        self.closed.lock().clone()
    }

    /// Whether a close would leave the file much longer than the space in use, because pages near
    /// its end are not in memory, and these pages are few enough to be read and moved.
    fn stays_long(&self) -> bool {
        let shared = &self.shared;
        if shared.lifecycle.check_writable().is_err()
            || !shared.lifecycle.is_marked_open()
            || !shared.device.shrinks()
        {
            return false;
        }
        let Some((front, behind)) = shared.space.front_of_trees() else { return false };
        let frames = (0..shared.pool.frames.len()).map(FrameIndex);
        let in_memory = frames.filter(|frame| shared.pool.is_behind(*frame, front)).count() as u64;
        let described: u64 = shared.checkpointing.record().runs().map(|(_, pages)| pages).sum();
        behind > in_memory + described && behind * shared.page_size as u64 <= MOVED_BYTES_MAX
    }

    fn close_once(&self) -> Result<()> {
        let worker_set = std::mem::replace(&mut *self.worker_set.lock(), WorkerSet::Gone);
        if matches!(worker_set, WorkerSet::Gone) {
            return Ok(());
        }
        self.shared.expiry.end();
        let outcome = self.settle();
        // Ends the drops of tables that would have continued with the first change, which never
        // came.
        drop(self.incarnation.take_first_change());
        self.shared.worker_handles.iter().for_each(|handle| handle.stop());
        match worker_set {
            WorkerSet::Threads(threads) => {
                for thread in threads {
                    // A worker that panicked has reported it; the superblock still says open then.
                    let _ = thread.join();
                }
            }
            WorkerSet::Stepped => stepped::finish(&self.shared),
            WorkerSet::Gone => {}
        }
        let outcome = outcome.and_then(|()| self.check_not_removed());
        self.shared.lifecycle.end();
        self.shared.lifecycle.end_companions();
        outcome
    }

    /// Makes a last checkpoint and marks the store clean.
    fn settle(&self) -> Result<()> {
        if let Some(failure) = self.shared.lifecycle.failure() {
            return Err(failure.clone());
        }
        // From here on commits are refused; those under way are completed.
        self.tx.close();
        let shared = self.shared.clone();
        self.block_on(move || async move {
            // If a commit failed, the checkpoint below returns the error.
            let _ = shared.oracle.wait_applied(shared.oracle.last()).await;
            shared.forest.merging.wait().await;
            Ok(())
        })?;
        self.shared.begin_closing();
        // `begin_change` holds this lock when it marks the store open, and first checks whether the
        // store is being closed.
        let unfinished = self.incarnation.superblock.lock().unfinished;
        if !self.shared.lifecycle.is_marked_open() {
            return if unfinished { self.incarnation.mark_clean() } else { Ok(()) };
        }
        self.shared.checkpointing.barrier.shut();
        let (shared, tx) = (self.shared.clone(), self.tx.clone());
        self.block_on(move || async move {
            shared.space.wait_until_left().await;
            // The pages of a large value that a commit replaced become free below. A crash that
            // loses this commit restores the value, so its pages must not be overwritten until the
            // commit is durable.
            if shared.wal.options.enabled && shared.wal.options.flushed {
                Worker::wait_durable(shared.last_timestamp()).await?;
            }
            tx.collect_all();
            // The file is cut behind what is in use.
            shared.kept_images.end(&shared.space);
            checkpoint(&shared, true).await?;
            move_to_the_front(&shared).await
        })?;
        // A file that stays too large costs only space; the store is closed correctly without this.
        let _ = self.shared.space.cut_end_off();
        self.incarnation.mark_clean()
    }
}

impl StoreInner {
    pub(crate) fn evictions(&self) -> u64 {
        self.shared.pool.evictions.load(Ordering::Relaxed)
    }
}

/// Moves pages near the end of a closed store to its front, if all of them are in memory and they
/// are not too many, so that the file can be truncated behind them. The logs used the front until
/// now.
async fn move_to_the_front(shared: &Arc<Shared>) -> Result<()> {
    if !shared.device.shrinks() {
        return Ok(());
    }
    on_every_worker(shared, || Box::pin(async { current(|worker| worker.end_log()) })).await?;
    shared.give_recycled_segments_but(0);
    let Some((front, behind)) = shared.space.front() else { return Ok(()) };
    let frames = || (0..shared.pool.frames.len()).map(FrameIndex);
    let in_memory = frames().filter(|frame| shared.pool.is_behind(*frame, front)).count() as u64;
    let described: u64 = shared.checkpointing.record().runs().map(|(_, pages)| pages).sum();
    if behind * shared.page_size as u64 > MOVED_BYTES_MAX || behind > in_memory + described {
        return Ok(());
    }
    shared.space.allocate_before(front);
    // Dirty pages are written to a new place. Inner pages are written with every checkpoint anyway.
    let moving = frames().filter(|frame| shared.pool.is_behind(*frame, front));
    moving.for_each(|frame| shared.pool.frames.set_dirty(frame, true));
    // Two checkpoints, since they alternate between two places for their descriptions.
    for _ in 0..2 {
        match checkpoint(shared, true).await {
            // The previous checkpoint stays in force.
            Err(error) if error.kind() == ErrorKind::NoSpace => return Ok(()),
            outcome => outcome?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use qpair_block::{RamDevice, RamOptions};
    use qpair_format::ErrorKind;
    use qpair_format::superblock::StoreState;

    use super::super::StoreOptions;
    use super::*;

    /// In a fork there are no workers. Calls that would wait for a worker fail at once, and nothing
    /// is written.
    #[test]
    fn a_fork_is_told_that_the_store_is_not_its_own() {
        let options =
            StoreOptions { format: true, workers: 1, memory_bytes: 4 << 20, ..Default::default() };
        let device = || Arc::new(RamDevice::new(RamOptions::default()).unwrap());
        let opened = device();
        let store = Store::open(vec![opened.clone()], &options).unwrap();
        let table = store.table("t").unwrap();
        table.put(b"k", b"v").unwrap();
        let mut transaction = store.begin();
        transaction.put(&table, b"k", b"w").unwrap();
        store.inner.shared.lifecycle.pretend_fork();
        for outcome in [
            table.put(b"k", b"w").map(|_| ()),
            table.delete(b"k").map(|_| ()),
            table.delete_range(..).map(|_| ()),
            transaction.commit().map(|_| ()),
            store.table("u").map(|_| ()),
            store.checkpoint(),
            store.spawn(|| async {}).join(),
            store.clone().close(),
        ] {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.to_string().contains("is a fork of it"), "{error}");
        }
        drop((store, table));
        // The store was not closed: its superblock still says open.
        let superblock = qpair_members::read(opened.as_ref()).unwrap();
        assert_eq!(superblock.state, StoreState::Open);
    }
}
