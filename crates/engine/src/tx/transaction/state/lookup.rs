//! Lookups of single keys, and the notes of what was read.

use std::ops::Bound;

use qpair_format::Result;
use qpair_format::large::Descriptor;

use super::TxState;
use crate::log::Durability;
use crate::task::{check_here, current, run_inline};
use crate::tree::{Found, Get, Seen, Tree};
use crate::tx::transaction::options::Isolation;
use crate::tx::transaction::reading::{find_at, older_now, put_older, read_large, resolve};
use crate::tx::transaction::write_set::Write;

impl TxState {
    /// Notes that the transaction reads rows that it has not locked.
    pub(in crate::tx::transaction) fn needs_snapshot(&mut self) {
        self.needs_snapshot = true;
    }

    /// Notes a read of a key. Its row is locked if it was locked just before; otherwise it counts
    /// as not locked.
    fn note_unlocked(&mut self, tree: Tree, key: &[u8]) {
        if !(self.recent.is(tree.id, key) && self.recent.row.is_some()) {
            self.needs_snapshot();
        }
    }

    pub(crate) async fn get_into(
        &mut self,
        tree: Tree,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool> {
        if tree.is_long(key) {
            return Box::pin(self.get_long(tree, key, value)).await;
        }
        self.check(tree)?;
        let start = value.len();
        if let Some(own) = self.writes.get(tree.id, key) {
            let found = match own.write {
                Write::Delete => Ok(false),
                Write::Inline(bytes) => {
                    value.extend_from_slice(bytes);
                    Ok(true)
                }
                Write::Large(descriptor) => {
                    let descriptor = Descriptor::decode(descriptor, self.shared().page_bytes)?;
                    read_large(self.shared(), descriptor, value).await
                }
            };
            return self.shared().value(tree, found?, value, start);
        }
        if let Some(own) = self.find_spilled(tree, key).await? {
            let found = put_older(&own, start, value);
            let found = resolve(self.shared(), found, start, value).await;
            return self.shared().value(tree, found?, value, start);
        }
        self.begin_turn().await;
        self.note_unlocked(tree, key);
        let snapshot = self.snapshot();
        self.note_read(tree, key)?;
        let cursor_hint = self.ahead.take(tree.id, key);
        let seen = find_at(&self.tx, tree, key, snapshot, value, cursor_hint, false).await?;
        self.note_seen(tree, key, &seen);
        let found = resolve(&self.tx.shared, seen.found, start, value).await;
        self.check_snapshot(snapshot)?;
        self.shared().check_table(tree)?;
        self.shared().value(tree, found?, value, start)
    }

    /// Prefetches the memory that lookups of these keys will touch into the processor's caches, all
    /// at the same time.
    pub(crate) fn prefetch_cached<'k>(
        &mut self,
        keys: impl IntoIterator<Item = Result<(Tree, &'k [u8])>>,
    ) -> Result<()> {
        self.ahead.clear();
        for key in keys {
            let (tree, key) = key?;
            self.check(tree)?;
            self.ahead.push(tree, key);
        }
        let (ahead, shared) = (&mut self.ahead, &self.tx.shared);
        current(|worker| {
            // The frames of another store are not this store's frames.
            if std::ptr::eq(worker.shared(), &**shared) {
                ahead.fetch(worker.context());
            }
        });
        Ok(())
    }

    /// Like [`TxState::prefetch_cached`], but first reads pages that are not in memory from the
    /// device.
    pub(crate) async fn prefetch<'k>(
        &mut self,
        keys: impl IntoIterator<Item = Result<(Tree, &'k [u8])>>,
    ) -> Result<()> {
        check_here(self.shared())?;
        self.prefetch_cached(keys)?;
        if self.ahead.is_complete() {
            return Ok(());
        }
        self.ahead.read_missing(&self.tx.shared).await?;
        current(|worker| {
            // The records that were found first have left the caches while the other pages were
            // read.
            self.ahead.fetch_again(worker.context());
            self.ahead.fetch(worker.context());
        });
        Ok(())
    }

    /// Like [`TxState::get_into`], as far as possible without waiting; returns `None`, and appends
    /// nothing, if it would have to wait.
    pub(crate) fn get_inline(
        &mut self,
        tree: Tree,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<Option<bool>> {
        if tree.is_long(key) {
            return Ok(None);
        }
        self.check(tree)?;
        let start = value.len();
        if let Some(own) = self.writes.get(tree.id, key) {
            return Ok(match own.write {
                Write::Delete => Some(false),
                Write::Inline(bytes) => {
                    value.extend_from_slice(bytes);
                    Some(self.shared().value(tree, true, value, start)?)
                }
                Write::Large(_) => None,
            });
        }
        if self.may_have_spilled(tree, key) {
            return Ok(None);
        }
        self.note_unlocked(tree, key);
        self.note_read(tree, key)?;
        match self.find_inline(tree, key, value)? {
            None | Some(Found::Overflow) => {
                value.truncate(start);
                Ok(None)
            }
            Some(found) => self.shared().value(tree, found == Found::Value, value, start).map(Some),
        }
    }

    /// Looks up a key at the transaction's snapshot, without its own writes, and appends the value;
    /// returns `None` if that would have to wait.
    pub(in crate::tx::transaction) fn find_inline(
        &mut self,
        tree: Tree,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<Option<Found>> {
        let (snapshot, start) = (self.snapshot(), value.len());
        let Some(seen) = run_inline(self.shared(), &mut Get::new(tree, key, value)) else {
            return Ok(None);
        };
        self.note_seen(tree, key, &seen);
        let found = older_now(&self.tx, tree, key, snapshot, seen, start, value);
        self.check_snapshot(snapshot)?;
        self.shared().check_table(tree)?;
        Ok(found)
    }

    pub(in crate::tx::transaction) fn note_seen(&mut self, tree: Tree, key: &[u8], seen: &Seen) {
        self.recent.of(tree.id, key).cursor_hint = Some(seen.cursor_hint);
        self.note_timestamp(seen.timestamp);
    }

    /// Notes the timestamp of a leaf that was read. The data at the snapshot is not newer than
    /// that, nor than the snapshot.
    pub(in crate::tx::transaction) fn note_timestamp(&mut self, timestamp: u64) {
        self.seen = self.seen.max(timestamp.min(self.snapshot.unwrap_or(u64::MAX)));
    }

    /// Returns the greatest timestamp that the transaction has read at, and whether that must be
    /// durable before the program may see the data.
    pub(crate) fn seen(&self) -> (bool, u64) {
        (self.durability != Durability::Async, self.seen)
    }

    fn note_read(&mut self, tree: Tree, key: &[u8]) -> Result<()> {
        if self.isolation == Isolation::Serializable && !self.read_only {
            self.reads.key(tree, key, self.bytes_max)?;
        }
        Ok(())
    }

    pub(in crate::tx::transaction) fn note_range(
        &mut self,
        tree: Tree,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> Result<()> {
        if self.isolation == Isolation::Serializable && !self.read_only {
            self.reads.range(tree, from, to, self.bytes_max)?;
        }
        Ok(())
    }
}
