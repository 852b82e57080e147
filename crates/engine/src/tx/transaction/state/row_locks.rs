//! Locking rows, and conflicts with the commits that changed them.

use std::sync::atomic::Ordering;

use qpair_format::{Error, ErrorKind, Result};

use super::{Contended, TxState};
use crate::canary::Canary;
use crate::panics::{guarded, guarded_future};
use crate::task::check_here;
use crate::tree::Tree;
use crate::tx::locking;
use crate::tx::versions::{INLINE_KEY_BYTES, Locking, RowRef};

impl TxState {
    /// Takes a row's lock if that needs no waiting.
    pub(in crate::tx::transaction) fn try_lock(
        &mut self,
        tree: Tree,
        key: &[u8],
    ) -> Result<Option<RowRef>> {
        if self.recent.is(tree.id, key)
            && let Some(row) = self.recent.row
        {
            return Ok(Some(row));
        }
        let shared = &self.tx.shared;
        let locking = guarded(shared, || {
            shared.planted.strike(Canary::PanicInLock);
            self.tx.rows.lock(tree.id, key, self.id)
        });
        match locking {
            // The lock may be that of another key with the same tag.
            Locking::Had(row) if self.has_spilled() => {
                let newest = self.tx.rows.newest(row);
                self.locked(tree, key, row, newest).map(Some)
            }
            Locking::Had(row) => Ok(Some(row)),
            Locking::Taken(row, newest) => self.locked(tree, key, row, newest).map(Some),
            Locking::Busy(_) => Ok(None),
        }
    }

    /// Notes that a row's lock was taken.
    fn locked(&mut self, tree: Tree, key: &[u8], row: RowRef, newest: u64) -> Result<RowRef> {
        self.locks.push(row);
        self.long_keys_bytes += if key.len() > INLINE_KEY_BYTES { key.len() } else { 0 };
        self.info.locks.store(self.locked_rows() as u32, Ordering::Relaxed);
        self.recent.of(tree.id, key).row = Some(row);
        let Some(mut snapshot) = self.snapshot else { return Ok(row) };
        if newest > snapshot && !self.tx.shared.planted.is(Canary::LostUpdate) {
            match self.renew_snapshot(newest) {
                Some(renewed) => snapshot = renewed,
                None => return Err(self.conflict(tree, key, newest, snapshot)),
            }
        }
        // Undo versions that a lost snapshot needs may be gone.
        self.check_snapshot(snapshot)?;
        Ok(row)
    }

    /// Takes a newer snapshot that sees a commit, if everything that the transaction has read is
    /// locked, since no commit can have changed that. So a transaction that locks each row before
    /// it reads it never meets a conflict.
    fn renew_snapshot(&mut self, commit: u64) -> Option<u64> {
        let snapshot = self.snapshot.filter(|_| !self.needs_snapshot)?;
        // A lock is released when all commits up to its own are applied.
        if self.tx.shared.oracle.applied() < commit {
            return None;
        }
        // The new snapshot is entered before the old one is left, so that the versions that the
        // transaction needs are kept throughout.
        self.snapshot = None;
        let renewed = self.snapshot();
        self.tx.leave_snapshot(self.slot, snapshot);
        Some(renewed)
    }

    /// Returns the error for a locked row that was changed by a commit that the snapshot does not
    /// see. The transaction can then only roll back.
    fn conflict(&mut self, tree: Tree, key: &[u8], commit: u64, snapshot: u64) -> Error {
        let conflict = Error::with_hint(
            ErrorKind::Conflict,
            format!(
                "commit {commit} changed {}; {} reads snapshot {snapshot}, which is older",
                self.tx.names.place(tree.id, key),
                self.describe()
            ),
            "roll back and try again, as Store::transact does; to avoid this, lock the row before the first read",
        );
        self.doomed = Some(conflict.clone());
        self.contended = Some((tree, key.to_vec()));
        conflict
    }

    /// Whether the runs on the device may have commits that the snapshot does not see and memory no
    /// longer knows.
    pub(in crate::tx::transaction) fn is_behind_history(&self) -> bool {
        self.snapshot.is_some_and(|snapshot| self.tx.history.is_behind(snapshot))
    }

    /// Takes a row's lock, and waits for it. Before, writes may go to the device: the caller has no
    /// other row.
    pub(in crate::tx::transaction) async fn lock_row(
        &mut self,
        tree: Tree,
        key: &[u8],
    ) -> Result<RowRef> {
        self.make_room().await?;
        self.lock_row_too(tree, key).await
    }

    /// Like [`TxState::lock_row`], for a caller that has other rows, which stay where they are.
    pub(in crate::tx::transaction) async fn lock_row_too(
        &mut self,
        tree: Tree,
        key: &[u8],
    ) -> Result<RowRef> {
        let row = self.lock_newest(tree, key).await?;
        // The runs are checked after the row: a version that has left the row is in the runs.
        let Some(snapshot) = self.snapshot.filter(|_| self.is_behind_history()) else {
            return Ok(row);
        };
        let shared = self.tx.shared.clone();
        if shared.planted.is(Canary::LostUpdate) {
            return Ok(row);
        }
        let changed = self.tx.history.find(&shared, tree.id, key, snapshot).await?;
        // The version may have left memory meanwhile, if the snapshot was given up.
        self.check_snapshot(snapshot)?;
        match changed {
            Some(version) if self.renew_snapshot(version.timestamp).is_none() => {
                Err(self.conflict(tree, key, version.timestamp, snapshot))
            }
            _ => Ok(row),
        }
    }

    /// Like [`TxState::lock_row`], but checks the versions of the row table only.
    async fn lock_newest(&mut self, tree: Tree, key: &[u8]) -> Result<RowRef> {
        self.begin_turn().await;
        if let Some(row) = self.try_lock(tree, key)? {
            return Ok(row);
        }
        let outcome = {
            let shared = self.tx.shared.clone();
            check_here(&shared)?;
            let lock =
                locking::lock(&self.tx, &self.info, tree.id, key, self.id, self.lock_timeout);
            guarded_future(&shared, lock).await
        };
        match outcome {
            Ok((row, newest)) => self.locked(tree, key, row, newest),
            Err(error) => {
                if error.kind() == ErrorKind::Conflict {
                    self.doomed = Some(error.clone());
                    self.contended = Some((tree, key.to_vec()));
                }
                Err(error)
            }
        }
    }

    pub(crate) async fn lock(&mut self, tree: Tree, key: &[u8]) -> Result<()> {
        self.check_write(tree, key, &[])?;
        if tree.is_long(key) {
            let group_key = tree.group_key(key);
            return self.lock_row(tree.with_groups(), &group_key).await.map(|_| ());
        }
        self.lock_row(tree, key).await.map(|_| ())
    }

    /// Like [`TxState::lock`], as far as possible without waiting; returns `false` if it would have
    /// to wait.
    pub(crate) fn lock_inline(&mut self, tree: Tree, key: &[u8]) -> Result<bool> {
        self.check_write(tree, key, &[])?;
        if tree.is_long(key) || self.is_full() {
            return Ok(false);
        }
        Ok(self.try_lock(tree, key)?.is_some() && !self.is_behind_history())
    }

    /// Locks the rows on which earlier attempts met conflicts, in the given order.
    pub(crate) async fn lock_contended(&mut self, rows: &[Contended]) -> Result<()> {
        for (tree, key) in rows {
            self.lock_row(*tree, key).await?;
        }
        Ok(())
    }
}
