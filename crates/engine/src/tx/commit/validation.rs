//! Validating the reads of a serializable transaction: before its timestamp, and up to it.

use std::cell::Cell;

use qpair_format::{ErrorKind, Result};

use super::progress::{Phase, Progress};
use super::record::append;
use crate::canary::Canary;
use crate::tx::Tx;
use crate::tx::transaction::TxState;

/// The size of other commits' keys up to which they are looked through at the timestamp alone.
const FEW_BYTES: usize = 64 << 10;

/// Returns an error if a commit above `after` and below `before` changed what was read.
async fn validate(tx: &Tx, core: &mut TxState, after: u64, before: u64) -> Result<()> {
    let Some(snapshot) = core.snapshot else { return Ok(()) };
    if tx.shared.planted.is(Canary::UncheckedReads) {
        return Ok(());
    }
    let known = core.watch.as_ref().and_then(|watch| watch.changed(after, before));
    match known {
        Some(changed) => core.reads.validate_with(tx, &changed, after, before)?,
        None => core.reads.validate(tx, after, before).await?,
    }
    core.check_snapshot(snapshot)
}

impl Progress {
    /// Validates the reads of a serializable transaction before the timestamp is taken, unless few
    /// keys were changed since its snapshot. All later commits wait for a commit that has its
    /// timestamp, and this may read ranges of any length.
    pub(super) async fn validate_before(&mut self, tx: &Tx) -> Result<()> {
        let shared = &tx.shared;
        let core = &mut self.core;
        let Some(snapshot) = core.snapshot else { return Ok(()) };
        if core.watch.as_ref().is_some_and(|watch| watch.are_few(snapshot, FEW_BYTES)) {
            self.validated = Some(snapshot);
            return Ok(());
        }
        let since = shared.oracle.last();
        shared.oracle.wait_applied(since).await?;
        validate(tx, core, snapshot, since + 1).await.inspect_err(|error| {
            if error.kind() == ErrorKind::Conflict {
                shared.counters.of(core.slot).count_conflict();
            }
        })?;
        self.validated = Some(since);
        Ok(())
    }

    /// Validates the reads up to the timestamp.
    pub(super) async fn validate(&mut self, tx: &Tx) -> Result<()> {
        let shared = &tx.shared;
        // All earlier commits must be visible in the trees and the row table.
        shared.oracle.wait_applied(self.timestamp - 1).await?;
        let timestamp = self.timestamp;
        let core = &mut self.core;
        let outcome = match self.validated.take() {
            Some(since) => validate(tx, core, since, timestamp).await,
            None => Ok(()),
        };
        let outcome = outcome.and_then(|()| core.check_tables());
        // A large commit appends its record in parts, as it makes the changes.
        if !core.has_spilled() || outcome.is_err() {
            let appended = append(core, || Ok(timestamp), &Cell::new(outcome.is_err()));
            self.timestamping = None;
            if let Err(error) = appended {
                return Err(self.fail(shared, error));
            }
        }
        if let Err(error) = outcome {
            if error.kind() == ErrorKind::Conflict {
                shared.counters.of(core.slot).count_conflict();
            }
            shared.oracle.end_commit(timestamp);
            self.phase = Phase::Over;
            return Err(error);
        }
        self.phase = Phase::Apply;
        self.begin_windows();
        Ok(())
    }
}
