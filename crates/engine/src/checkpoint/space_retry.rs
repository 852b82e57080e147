//! The out-of-space retry: a change that finds no space lets a checkpoint free some, and tries
//! again, as long as that may help.
//!
//! - A change that waits here has changed nothing, has no timestamp, and is not inside the barrier.
//!   A checkpoint therefore never waits for it.
//! - The retries end. A change tries again only if a checkpoint was completed since its last try,
//!   if recycled segments of the logs became free pages (each change frees them once after each
//!   checkpoint), or if a commit is about to append the record that room was made for. A checkpoint
//!   is begun here only for three reasons: something was appended to a log since the last one's
//!   instant; pages are held back for the last image that the last checkpoint made for this change
//!   did not leave held back already; or, once for each change, to take back segments that the logs
//!   do not need.
//! - Images that are kept for readers in other processes are given up first. Only a checkpoint
//!   keeps further ones.
//! - As a last resort the pool is fitted to the device: fewer frames need a smaller reserve. That
//!   ends too: each time there are fewer frames by an eighth, down to a minimum.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use qpair_format::{Error, ErrorKind, Result};

use super::checkpoint_since;
use super::fit::use_fewer_frames;
use crate::log_device::LogDevice;
use crate::shared::Shared;
use crate::task::current;

/// The maximum number of tries of a change that finds no frame because pages cannot leave memory,
/// each followed by a checkpoint.
const SQUEEZED_MAX: u32 = 3;

#[derive(Debug, Default)]
pub(crate) struct SpaceRetry {
    /// The number of checkpoints that were completed when the last try began.
    completed: u64,
    /// The number of times that recycled segments had become free pages when the last try began.
    given: u64,
    /// The number of checkpoints that were completed when this change last freed recycled segments.
    gave_after: Option<u64>,
    /// The number of checkpoints that were completed when this change last waited for merges.
    merged_after: Option<u64>,
    /// Whether a checkpoint was made only because this change found the log device full.
    forced: bool,
    /// The number of pages that were not in use after the last checkpoint that was made for this
    /// change.
    unused: Option<u64>,
    squeezed: u32,
}

/// Returns the error of a change that finds no frame, because pages find no place to go to.
pub(crate) fn no_place() -> Error {
    Error::with_hint(
        ErrorKind::NoSpace,
        "no page can be evicted: the device has no free page",
        "make room on the device",
    )
}

impl SpaceRetry {
    fn note_try(&mut self, shared: &Shared) {
        self.completed = shared.checkpointing.epochs.completed.load(Ordering::Relaxed);
        self.given = shared.wal.recycled_given.load(Ordering::Relaxed);
    }

    /// Handles a try that found no space: makes a checkpoint if that may free some. Returns whether
    /// to try again. The barrier must not be entered.
    ///
    /// # Errors
    /// As [`checkpoint`].
    async fn comes(&mut self) -> Result<bool> {
        let Some((shared, upkeep)) = current(|worker| (worker.shared_arc(), worker.upkeep()))
        else {
            return Ok(false);
        };
        if shared.wal.recycled_given.load(Ordering::Relaxed) != self.given
            || self.gave_after.replace(self.completed) != Some(self.completed)
                && shared.give_recycled_segments()
        {
            return Ok(true);
        }
        if shared.forest.merging.is_busy()
            && self.merged_after.replace(self.completed) != Some(self.completed)
        {
            // Merges of sparse leaves free pages.
            shared.forest.merging.wait().await;
            return Ok(true);
        }
        let is_log_full = || shared.wal.device.as_ref().is_some_and(LogDevice::is_full);
        // Readers in other processes and old snapshots never make a change fail. If it is the log
        // device that is full, giving them up frees nothing there, so none is given up.
        if !is_log_full() {
            if shared.kept_images.give_up(&shared.space) {
                return Ok(true);
            }
            // The snapshots keep their values if these take less space than the change lacks.
            if upkeep.give_older_values_up(shared.space.short()) {
                return Ok(true);
            }
            if let Some(moved) = upkeep.older_values_moved() {
                // Values that are being written have pages, and are given up once they are written.
                moved.await;
                return Ok(true);
            }
        }
        if self.came(&shared) {
            return Ok(true);
        }
        if shared.checkpointing.alone.is_held() {
            // A checkpoint is under way, and may free the space needed.
            drop(shared.checkpointing.alone.enter().await);
            if self.came(&shared) {
                return Ok(true);
            }
        }
        let is_log_full = is_log_full();
        // Pages held for images or for a backup do not help a full log device.
        let frees_pages = !is_log_full
            && shared.space.retained() > 0
            // Pages that moved since the last checkpoint were already free at the try after it.
            && self.unused.is_none_or(|unused| shared.space.unused() > unused);
        // Replaced values become free with the next checkpoint.
        let frees_values = !is_log_full && shared.large.count_held() > 0;
        if frees_pages || frees_values || shared.wal.bytes.load(Ordering::Relaxed) > 0 {
            checkpoint_since(&shared, self.completed).await?;
            self.unused = Some(shared.space.unused());
            return Ok(true);
        }
        if is_log_full && shared.wal.expected.is_any() {
            // The log space of that commit is behind the checkpoint's mark once its record is
            // appended.
            shared.wal.expected.wait().await;
            return Ok(true);
        }
        if is_log_full && !std::mem::replace(&mut self.forced, true) {
            return checkpoint_since(&shared, self.completed).await.map(|()| true);
        }
        if !is_log_full && use_fewer_frames(&shared).await? {
            self.unused = Some(shared.space.unused());
            return Ok(true);
        }
        Ok(is_log_full && upkeep.give_older_values_up(0))
    }

    /// Makes a change, and tries again as long as that may help. A change that finds no space, or
    /// no frame, must have changed nothing, or have made the store read-only.
    ///
    /// # Errors
    /// `ReadOnly` once a write or a flush failed: no task is given pages then, because a checkpoint
    /// that failed may count after all. The error of the change; the errors of [`checkpoint`].
    pub(crate) async fn tried<T>(
        shared: &Shared,
        mut change: impl AsyncFnMut() -> Result<T>,
    ) -> Result<T> {
        let mut space_retry = Self::default();
        loop {
            shared.lifecycle.check_writable()?;
            space_retry.note_try(shared);
            let error = match change().await {
                Err(error) if error.kind() == ErrorKind::NoSpace => error,
                Err(error)
                    if error.kind() == ErrorKind::NoMemory
                        && space_retry.may_find_frames(shared) =>
                {
                    no_place()
                }
                outcome => return outcome,
            };
            if !space_retry.comes().await? {
                return Err(error);
            }
        }
    }

    /// Notes a try that found no frame. Returns whether the cause was a lack of places on the
    /// device, so that another try may find a frame.
    fn may_find_frames(&mut self, shared: &Shared) -> bool {
        self.squeezed += 1;
        self.squeezed <= SQUEEZED_MAX
            && shared.space.is_squeezed()
            && shared.lifecycle.failure().is_none()
    }

    fn came(&self, shared: &Arc<Shared>) -> bool {
        shared.checkpointing.epochs.completed.load(Ordering::Relaxed) != self.completed
    }
}
