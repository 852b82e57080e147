//! Validating the reads of a serializable transaction: before its timestamp, and up to it.

use std::cell::Cell;

use qpair_format::{ErrorKind, Result};

use super::progress::{Phase, Progress};
use super::record::append;
use crate::canary::Canary;
use crate::tx::Tx;

impl Progress {
    /// Validates the reads of a serializable transaction before the timestamp is taken. All later
    /// commits wait for a commit that has its timestamp, and this may read ranges of any length.
    pub(super) async fn validate_before(&mut self, tx: &Tx) -> Result<()> {
        let shared = &tx.shared;
        let core = &mut self.core;
        let Some(snapshot) = core.snapshot else { return Ok(()) };
        let validating = tx.recent.begin(&shared.oracle);
        shared.oracle.wait_applied(validating.since).await?;
        if !shared.planted.is(Canary::UncheckedReads) {
            let validated = core.reads.validate(tx, snapshot, validating.since + 1).await;
            validated.and_then(|()| core.check_snapshot(snapshot)).inspect_err(|error| {
                if error.kind() == ErrorKind::Conflict {
                    shared.counters.of(core.slot).count_conflict();
                }
            })?;
        }
        self.validated = Some(validating);
        Ok(())
    }

    /// Validates the reads again, up to the timestamp.
    pub(super) async fn validate(&mut self, tx: &Tx) -> Result<()> {
        let shared = &tx.shared;
        // All earlier commits must be visible in the trees and the row table.
        shared.oracle.wait_applied(self.timestamp - 1).await?;
        let timestamp = self.timestamp;
        let validated = self.validated.take();
        let core = &mut self.core;
        let outcome = match (core.snapshot, validated) {
            (Some(snapshot), Some(validated)) if !shared.planted.is(Canary::UncheckedReads) => {
                let since = validated.since;
                let same = match validated.changed(timestamp) {
                    Some(changed) => core.reads.validate_with(tx, &changed, since, timestamp),
                    None => core.reads.validate(tx, since, timestamp).await,
                };
                same.and_then(|()| core.check_snapshot(snapshot))
            }
            _ => Ok(()),
        };
        let outcome = outcome.and_then(|()| core.check_tables());
        let appended = append(core, || Ok(timestamp), &Cell::new(outcome.is_err()));
        self.timestamping = None;
        if let Err(error) = appended {
            return Err(self.fail(shared, error));
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
        Ok(())
    }
}
