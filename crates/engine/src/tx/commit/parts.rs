//! The parts of a large commit, whose writes are on the device: one window of them after the other.

use std::cell::Cell;
use std::sync::Arc;

use qpair_format::{ErrorKind, Result};

use super::fetching::Fetching;
use super::progress::Progress;
use super::record::{append, append_part};
use super::windows::{SpilledCommit, Windows};
use crate::canary::Canary;
use crate::shared::Shared;
use crate::task::Worker;
use crate::tx::Tx;
use crate::tx::history::{SpilledImages, spill_images};
use crate::tx::transaction::Isolation;
use crate::tx::versions::Rows;

/// The share of the memory for older values that the before-images of a large commit may take, as a
/// divisor.
const IMAGES_PART: u64 = 8;

impl Progress {
    /// Whether the record is appended some time after the timestamp, so that the worker's other
    /// commits must wait.
    pub(super) fn record_is_later(&self) -> bool {
        self.core.isolation == Isolation::Serializable || self.core.has_spilled()
    }

    /// Begins with the first of the writes that are on the device, if there are some.
    pub(super) fn begin_windows(&mut self) {
        if let Some(runs) = self.core.runs() {
            let windows = Windows::new(runs, self.core.bytes_max);
            self.spilled = Some(Box::new(SpilledCommit::new(windows)));
            self.core.writes.clear();
            self.cursor_hints.clear();
        }
    }

    /// Whether there are writes after those in memory.
    pub(super) fn has_windows(&self) -> bool {
        self.spilled.as_ref().is_some_and(|of| !of.windows.is_over())
    }

    /// Replaces the writes in memory by the next ones on the device.
    pub(super) async fn next_window(
        &mut self,
        shared: &Shared,
        locked: Option<(&Rows, u64)>,
    ) -> Result<()> {
        if let (Some(of), Some(spilled)) = (&mut self.spilled, &self.core.spilled) {
            of.windows.next(shared, spilled, &mut self.core.writes, locked).await?;
        }
        // Positions are kept only for the writes of small commits.
        self.cursor_hints.clear();
        Ok(())
    }

    /// Begins with the next part of a large commit: appends the part's record.
    pub(super) async fn begin_part(&mut self, tx: &Arc<Tx>) -> Result<()> {
        let shared = &tx.shared;
        self.spill_images(tx).await?;
        Worker::let_parts_pass(shared).await;
        self.next_window(shared, Some((&tx.rows, self.core.id))).await?;
        (self.cursor, self.done, self.fetching) = ((0, 0), 0, Fetching::default());
        self.core.locks.extend(self.core.writes.iter().map(|item| item.row));
        if self.has_windows() {
            if shared.planted.is(Canary::UnloggedPart) {
                return Ok(());
            }
            return append_part(&self.core, self.timestamp);
        }
        append(&self.core, || Ok(self.timestamp), &Cell::new(false))?;
        self.timestamping = None;
        Ok(())
    }

    /// Moves the before-images that the commit has made so far to the device, if they take much
    /// memory.
    pub(super) async fn spill_images(&mut self, tx: &Arc<Tx>) -> Result<()> {
        let most = tx.versions_bytes_max / IMAGES_PART;
        let Some(of) = &mut self.spilled else { return Ok(()) };
        if self.kept_bytes <= most || of.keeps_images {
            return Ok(());
        }
        match spill_images(tx, &self.core.locks, self.timestamp).await {
            Ok(SpilledImages { run, mut moved, kept }) => {
                of.image_runs.extend(run);
                let of_row = self.kept_bytes / self.core.locks.len().max(1) as u64;
                self.kept_bytes = of_row * kept.len() as u64;
                tx.rows.replace_by_tags(&mut moved, self.core.id);
                self.core.locks = kept;
            }
            Err(error) if error.kind() == ErrorKind::Io => return Err(error),
            Err(_) => of.keeps_images = true,
        }
        Ok(())
    }
}
