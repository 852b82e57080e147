//! Snapshots: the store as it was at one point, for reading while it changes.

use std::sync::Arc;

use qpair_format::group::find;
use qpair_format::{Error, Result};

use super::reading::{older_now, read_at};
use crate::task::run_inline;
use crate::tree::{Found, Get, Tree};
use crate::tx::{Tx, slot_here};

/// A snapshot in use. Dropping the last clone ends the use.
#[derive(Clone)]
pub(crate) struct SnapshotCore(Arc<InUse>);

struct InUse {
    tx: Arc<Tx>,
    slot: usize,
    timestamp: u64,
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.tx.leave_snapshot(self.slot, self.timestamp);
    }
}

impl SnapshotCore {
    pub(crate) fn take(tx: &Arc<Tx>) -> Result<Self> {
        if tx.shared.oracle.is_closed() {
            return Err(Error::closed());
        }
        let slot = slot_here(&tx.shared);
        let timestamp = tx.enter_snapshot(slot);
        Ok(Self(Arc::new(InUse { tx: tx.clone(), slot, timestamp })))
    }

    pub(crate) fn timestamp(&self) -> u64 {
        self.0.timestamp
    }

    pub(crate) fn check(&self) -> Result<()> {
        let name = || format!("commit {}", self.0.timestamp);
        self.0.tx.check_snapshot(self.0.timestamp, name)
    }

    pub(crate) fn check_table(&self, tree: Tree) -> Result<()> {
        self.0.tx.shared.check_table(tree)
    }

    pub(crate) async fn get_into(
        &self,
        tree: Tree,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool> {
        if tree.is_long(key) {
            let mut group = Vec::new();
            let (groups, group_key) = (tree.with_groups(), tree.group_key(key));
            Box::pin(self.get_into(groups, &group_key, &mut group)).await?;
            let found = find(&group, tree.rest(key))?;
            value.extend_from_slice(found.unwrap_or_default());
            return Ok(found.is_some());
        }
        self.check_table(tree)?;
        let start = value.len();
        let found = read_at(&self.0.tx, tree, key, self.0.timestamp, value).await;
        let there = self.check().and_then(|()| self.check_table(tree));
        there.inspect_err(|_| value.truncate(start))?;
        self.0.tx.shared.value(tree, found?, value, start)
    }

    pub(crate) fn get_inline(&self, tree: Tree, key: &[u8]) -> Result<Option<Option<Vec<u8>>>> {
        if tree.is_long(key) {
            return Ok(None);
        }
        self.check_table(tree)?;
        let (shared, mut value) = (&self.0.tx.shared, Vec::new());
        let Some(found) = run_inline(shared, &mut Get::new(tree, key, &mut value)) else {
            return Ok(None);
        };
        if !shared
            .wal
            .may_give(shared.wal.options.reads_wait, found.timestamp.min(self.0.timestamp))
        {
            return Ok(None);
        }
        let found = older_now(&self.0.tx, tree, key, self.0.timestamp, found, 0, &mut value);
        self.check()?;
        self.check_table(tree)?;
        Ok(match found {
            Some(Found::Value) => Some(shared.value(tree, true, &mut value, 0)?.then_some(value)),
            Some(Found::Nothing) => Some(None),
            Some(Found::Overflow) | None => None,
        })
    }
}
