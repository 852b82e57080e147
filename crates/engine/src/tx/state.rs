//! The state of a transaction: its reads, its locks and its writes. Used by the calls of tasks and
//! by those of other threads.
//!
//! Invariants: each key in the write set has its row locked. Once a snapshot is taken, no locked
//! row has a commit newer than the snapshot. If a row has, the transaction takes a newer snapshot,
//! provided that everything it has read is locked; otherwise it is doomed and can only roll back.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use qpair_format::large::Descriptor;
use qpair_format::{Error, ErrorKind, Result};

use super::Tx;
use super::buffers::Buffers;
use super::large::LargeValue;
use super::locks;
use super::options::{Isolation, TransactionOptions};
use super::prefetch_set::PrefetchSet;
use super::reading::{find_at, older_now, read_large, resolve};
use super::registry::{Info, describe};
use super::row::{INLINE_KEY_BYTES, Row};
use super::rows::{Locking, RowRef};
use super::serializable::ReadSet;
use super::slot_here;
use super::write_set::{Item, Write, WriteMark, WriteSet};
use crate::canary::Canary;
use crate::log::Durability;
use crate::overflow::check_sizes;
use crate::panics::{guarded, guarded_future};
use crate::shared::Shared;
use crate::task::{check_here, current, run_inline, take_turn};
use crate::tree::{Batch, CursorHint, Found, Get, Seen, Tree};

/// A row on which a transaction met a conflict.
pub(crate) type Contended = (Tree, Vec<u8>);

/// The key that was locked or read last, which is most often written next.
#[derive(Default)]
struct Recent {
    tree: u32,
    key: Vec<u8>,
    /// The key's row, if it is locked.
    row: Option<RowRef>,
    /// The position where the key was found.
    cursor_hint: Option<CursorHint>,
}

impl Recent {
    fn is(&self, tree: u32, key: &[u8]) -> bool {
        self.tree == tree && self.key == key
    }

    /// Changes the key, and clears the data about the previous one.
    fn of(&mut self, tree: u32, key: &[u8]) -> &mut Self {
        if !self.is(tree, key) {
            (self.tree, self.row, self.cursor_hint) = (tree, None, None);
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        self
    }
}

/// A point in a transaction to which it can be rolled back.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// let mut tx = store.begin();
/// tx.put(&table, b"kept", b"1")?;
/// let savepoint = tx.savepoint()?;
/// tx.put(&table, b"not kept", b"2")?;
/// tx.rollback_to(&savepoint)?;
/// tx.commit()?;
/// assert!(table.contains_key(b"kept")? && !table.contains_key(b"not kept")?);
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint {
    /// The store, and the transaction in it, that the savepoint belongs to.
    store: usize,
    owner: u64,
    writes: WriteMark,
    /// The number of large values that were written before the savepoint.
    large: u32,
}

/// A transaction, wherever it is used.
pub(crate) struct TxState {
    pub(crate) tx: Arc<Tx>,
    pub(super) isolation: Isolation,
    pub(super) durability: Durability,
    read_only: bool,
    bytes_max: usize,
    lock_timeout: Option<Duration>,
    name: Option<String>,
    pub(super) slot: usize,
    pub(crate) id: u64,
    pub(super) info: Arc<Info>,
    pub(super) snapshot: Option<u64>,
    /// Whether the transaction has read rows that it has not locked, and so needs the snapshot that
    /// it has.
    needs_snapshot: bool,
    /// The greatest timestamp that the transaction has read at.
    seen: u64,
    pub(super) writes: WriteSet,
    pub(super) reads: ReadSet,
    pub(super) locks: Vec<RowRef>,
    /// The size of the locked keys that are too long to lie in their rows, in bytes.
    long_keys_bytes: usize,
    /// Room for a commit to note where its writes go.
    pub(super) cursor_hints: Vec<CursorHint>,
    /// Room for a range.
    pub(crate) batches: (Batch, Batch),
    ahead: PrefetchSet,
    pub(super) large: Vec<LargeValue>,
    pub(super) doomed: Option<Error>,
    /// The row on which the transaction met a conflict.
    pub(crate) contended: Option<Contended>,
    recent: Recent,
    over: bool,
}

impl TxState {
    pub(crate) fn begin(tx: &Arc<Tx>, options: &TransactionOptions) -> Self {
        let slot = slot_here(&tx.shared);
        let started = tx.shared.oracle.applied();
        let (info, buffers) = {
            let mut open = tx.slots[slot].open();
            let info = open.registry.begin(slot as u32, options.name.as_deref(), started);
            (info, open.spare.take())
        };
        let Buffers { writes, locks, cursor_hints, key, batches, ahead } = buffers;
        Self {
            tx: tx.clone(),
            isolation: options.isolation,
            durability: options.durability,
            read_only: options.read_only,
            bytes_max: match options.write_set_bytes_max {
                0 => tx.transaction_bytes_max,
                bytes => bytes,
            },
            lock_timeout: options.lock_timeout.or(tx.lock_timeout),
            name: options.name.clone(),
            slot,
            id: info.id.load(Ordering::Relaxed),
            info,
            snapshot: None,
            needs_snapshot: false,
            seen: 0,
            writes,
            reads: ReadSet::default(),
            locks,
            long_keys_bytes: 0,
            cursor_hints,
            batches,
            ahead,
            large: Vec::new(),
            doomed: None,
            contended: None,
            recent: Recent { key, ..Recent::default() },
            over: false,
        }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.tx.shared
    }

    /// Lets other tasks run if this one has used up its budget, but only before the transaction's
    /// first lock and snapshot: a locked row makes others wait, and a snapshot keeps older values.
    pub(super) async fn begin_turn(&self) {
        if self.snapshot.is_none() && self.locks.is_empty() {
            take_turn().await;
        }
    }

    /// Describes the transaction for an error message.
    pub(super) fn describe(&self) -> String {
        describe(self.id, self.name.as_deref())
    }

    pub(crate) fn check(&self, tree: Tree) -> Result<()> {
        if let Some(doomed) = &self.doomed {
            return Err(doomed.clone());
        }
        self.shared().check_table(tree)
    }

    /// Returns an error if a table with writes of this transaction was dropped since.
    pub(super) fn check_tables(&self) -> Result<()> {
        if !self.shared().forest.has_dropped() {
            return Ok(());
        }
        self.writes.iter().try_for_each(|item| self.shared().check_table(item.tree))
    }

    pub(super) fn check_write(&self, tree: Tree, key: &[u8], value: &[u8]) -> Result<()> {
        self.check(tree)?;
        if self.read_only {
            return Err(Error::new(
                ErrorKind::ReadOnly,
                format!("{} is read-only", self.describe()),
            ));
        }
        self.shared().lifecycle.check_writable()?;
        check_sizes(self.shared(), key, value)
    }

    /// Returns the snapshot, and takes it if there is none yet.
    pub(super) fn snapshot(&mut self) -> u64 {
        match self.snapshot {
            Some(snapshot) => snapshot,
            None => {
                let snapshot = self.tx.enter_snapshot(self.slot);
                self.info.snapshot.store(snapshot + 1, Ordering::Relaxed);
                self.snapshot = Some(snapshot);
                snapshot
            }
        }
    }

    pub(super) fn check_snapshot(&mut self, snapshot: u64) -> Result<()> {
        let lost = self.tx.check_snapshot(snapshot, || self.describe());
        lost.inspect_err(|error| self.doomed = Some(error.clone()))
    }

    /// Takes a row's lock if that needs no waiting.
    pub(super) fn try_lock(&mut self, tree: Tree, key: &[u8]) -> Result<Option<RowRef>> {
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
            Locking::Had(row) => Ok(Some(row)),
            Locking::Taken(row, newest) => self.locked(tree, key, row, newest).map(Some),
            Locking::Busy(_) => Ok(None),
        }
    }

    /// Notes that a row's lock was taken.
    fn locked(&mut self, tree: Tree, key: &[u8], row: RowRef, newest: u64) -> Result<RowRef> {
        self.locks.push(row);
        self.long_keys_bytes += if key.len() > INLINE_KEY_BYTES { key.len() } else { 0 };
        self.info.locks.store(self.locks.len() as u32, Ordering::Relaxed);
        self.recent.of(tree.id, key).row = Some(row);
        self.check_locks()?;
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

    /// Returns the memory of the locked rows without writes, except the row that is about to be
    /// written, in bytes.
    fn locks_bytes(&self) -> usize {
        let idle = self.locks.len().saturating_sub(self.writes.len() + 1);
        idle * (size_of::<Row>() + size_of::<RowRef>()) + self.long_keys_bytes
    }

    /// Returns an error if the transaction's locks, reads and writes exceed its limit.
    fn check_locks(&self) -> Result<()> {
        let bytes = self.locks_bytes() + self.writes.size_bytes() + self.reads.size_bytes();
        if bytes <= self.bytes_max {
            return Ok(());
        }
        Err(Error::with_hint(
            ErrorKind::TooLarge,
            format!(
                "a transaction with {} locked rows and {} writes exceeds its limit of {} bytes",
                self.locks.len(),
                self.writes.len(),
                self.bytes_max
            ),
            "split the transaction, or raise the limit: write_set_bytes_max of its options, transaction_bytes_max of the store's",
        ))
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

    /// Notes that the transaction reads rows that it has not locked.
    pub(super) fn needs_snapshot(&mut self) {
        self.needs_snapshot = true;
    }

    /// Notes a read of a key. Its row is locked if it was locked just before; otherwise it counts
    /// as not locked.
    fn note_unlocked(&mut self, tree: Tree, key: &[u8]) {
        if !(self.recent.is(tree.id, key) && self.recent.row.is_some()) {
            self.needs_snapshot();
        }
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
    pub(super) fn is_behind_history(&self) -> bool {
        self.snapshot.is_some_and(|snapshot| self.tx.history.is_behind(snapshot))
    }

    /// Takes a row's lock, and waits for it.
    pub(super) async fn lock_row(&mut self, tree: Tree, key: &[u8]) -> Result<RowRef> {
        let row = self.lock_newest(tree, key).await?;
        // Checked after the row: a version that is gone from there is in the runs.
        let Some(snapshot) = self.snapshot.filter(|_| self.is_behind_history()) else {
            return Ok(row);
        };
        let shared = self.tx.shared.clone();
        if shared.planted.is(Canary::LostUpdate) {
            return Ok(row);
        }
        let changed = self.tx.history.find(&shared, tree.id, key, snapshot).await?;
        // The version may be gone from memory meanwhile, if the snapshot was given up.
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
            let lock = locks::lock(&self.tx, &self.info, tree.id, key, self.id, self.lock_timeout);
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
        self.lock_row(tree, key).await.map(|_| ())
    }

    /// Like [`TxState::lock`], as far as possible without waiting; returns `false` if it would have
    /// to wait.
    pub(crate) fn lock_inline(&mut self, tree: Tree, key: &[u8]) -> Result<bool> {
        self.check_write(tree, key, &[])?;
        Ok(self.try_lock(tree, key)?.is_some() && !self.is_behind_history())
    }

    /// Locks the rows on which earlier attempts met conflicts, in the given order.
    pub(crate) async fn lock_contended(&mut self, rows: &[Contended]) -> Result<()> {
        for (tree, key) in rows {
            self.lock_row(*tree, key).await?;
        }
        Ok(())
    }

    pub(crate) async fn get_into(
        &mut self,
        tree: Tree,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool> {
        self.check(tree)?;
        if let Some(own) = self.writes.get(tree.id, key) {
            return match own.write {
                Write::Delete => Ok(false),
                Write::Inline(bytes) => {
                    value.extend_from_slice(bytes);
                    Ok(true)
                }
                Write::Large(descriptor) => {
                    let descriptor = Descriptor::decode(descriptor, self.shared().page_size)?;
                    read_large(self.shared(), descriptor, value).await
                }
            };
        }
        self.begin_turn().await;
        self.note_unlocked(tree, key);
        let snapshot = self.snapshot();
        self.note_read(tree, key)?;
        let start = value.len();
        let cursor_hint = self.ahead.take(tree.id, key);
        let seen = find_at(&self.tx, tree, key, snapshot, value, cursor_hint, false).await?;
        self.note_seen(tree, key, &seen);
        let found = resolve(&self.tx.shared, seen.found, start, value).await;
        self.check_snapshot(snapshot)?;
        self.shared().check_table(tree)?;
        found
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
            // Another store's frames are not these.
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
        self.check(tree)?;
        if let Some(own) = self.writes.get(tree.id, key) {
            return Ok(match own.write {
                Write::Delete => Some(false),
                Write::Inline(bytes) => {
                    value.extend_from_slice(bytes);
                    Some(true)
                }
                Write::Large(_) => None,
            });
        }
        self.note_unlocked(tree, key);
        self.note_read(tree, key)?;
        let start = value.len();
        match self.find_inline(tree, key, value)? {
            None | Some(Found::Overflow) => {
                value.truncate(start);
                Ok(None)
            }
            Some(found) => Ok(Some(found == Found::Value)),
        }
    }

    /// Looks up a key at the transaction's snapshot, without its own writes, and appends the value;
    /// returns `None` if that would have to wait.
    pub(super) fn find_inline(
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

    pub(super) fn note_seen(&mut self, tree: Tree, key: &[u8], seen: &Seen) {
        self.recent.of(tree.id, key).cursor_hint = Some(seen.cursor_hint);
        self.note_timestamp(seen.timestamp);
    }

    /// Notes the timestamp of a leaf that was read. The data at the snapshot is not newer than
    /// that, nor than the snapshot.
    pub(super) fn note_timestamp(&mut self, timestamp: u64) {
        self.seen = self.seen.max(timestamp.min(self.snapshot.unwrap_or(u64::MAX)));
    }

    /// Returns the greatest timestamp that the transaction has read at, and whether that must be
    /// durable before the program may see the data.
    pub(crate) fn seen(&self) -> (bool, u64) {
        (self.durability != Durability::Async, self.seen)
    }

    fn note_read(&mut self, tree: Tree, key: &[u8]) -> Result<()> {
        if self.isolation == Isolation::Serializable && !self.read_only {
            self.reads.key(tree, key, self.bytes_max.saturating_sub(self.writes.size_bytes()))?;
        }
        Ok(())
    }

    pub(super) fn note_range(
        &mut self,
        tree: Tree,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> Result<()> {
        if self.isolation == Isolation::Serializable && !self.read_only {
            let room = self.bytes_max.saturating_sub(self.writes.size_bytes());
            self.reads.range(tree, from, to, room)?;
        }
        Ok(())
    }

    pub(super) fn enter(
        &mut self,
        tree: Tree,
        key: &[u8],
        row: RowRef,
        write: Write<'_>,
    ) -> Result<()> {
        let others = self.reads.size_bytes() + self.locks_bytes();
        let bytes_max = self.bytes_max.saturating_sub(others);
        let cursor_hint = self.recent.cursor_hint.filter(|_| self.recent.is(tree.id, key));
        self.writes.put(tree, key, (row, cursor_hint), write, bytes_max)?;
        self.info.bytes.store(self.writes.size_bytes() as u64, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn savepoint(&mut self) -> Savepoint {
        let (store, large) = (self.store_number(), self.large.len() as u32);
        Savepoint { store, owner: self.id, writes: self.writes.mark(), large }
    }

    /// Returns a number that identifies the store, since ids of transactions are unique only within
    /// a store.
    fn store_number(&self) -> usize {
        Arc::as_ptr(&self.tx).addr()
    }

    pub(crate) fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        if let Some(doomed) = &self.doomed {
            return Err(doomed.clone());
        }
        if (savepoint.store, savepoint.owner) != (self.store_number(), self.id)
            || !self.writes.rollback_to(&savepoint.writes)
        {
            return Err(Error::new(
                ErrorKind::Invalid,
                "the transaction does not have this savepoint, or has dropped it",
            ));
        }
        // Earlier writes refer only to large values that were written before the savepoint.
        self.large.truncate(savepoint.large as usize);
        self.info.bytes.store(self.writes.size_bytes() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the transaction: releases its snapshot and its locks, and removes it from the list of
    /// open transactions.
    pub(super) fn end(&mut self) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let tx = &self.tx;
        guarded(&self.tx.shared, || {
            {
                let mut open = tx.slots[self.slot].open();
                if let Some(snapshot) = self.snapshot {
                    open.snapshots.leave(snapshot);
                }
                open.registry.end(self.id);
            }
            for row in &self.locks {
                tx.rows.unlock(*row, self.id);
            }
        });
    }
}

impl Drop for TxState {
    fn drop(&mut self) {
        if !self.over {
            let counters = self.tx.shared.counters.of(self.slot);
            counters.count_rollback();
            let doomed = self.doomed.as_ref().is_some_and(|e| e.kind() == ErrorKind::Conflict);
            if doomed || self.contended.is_some() {
                counters.count_conflict();
            }
        }
        self.end();
        let buffers = Buffers {
            writes: std::mem::take(&mut self.writes),
            locks: std::mem::take(&mut self.locks),
            cursor_hints: std::mem::take(&mut self.cursor_hints),
            key: std::mem::take(&mut self.recent.key),
            batches: std::mem::take(&mut self.batches),
            ahead: std::mem::take(&mut self.ahead),
        };
        self.tx.slots[self.slot].open().spare.give(buffers);
    }
}

/// Returns the bytes of a write, and whether they are a descriptor; `None` for a deletion.
pub(super) fn written<'a>(item: &Item<'a>) -> Option<(&'a [u8], bool)> {
    match item.write {
        Write::Inline(value) => Some((value, false)),
        Write::Large(descriptor) => Some((descriptor, true)),
        Write::Delete => None,
    }
}
