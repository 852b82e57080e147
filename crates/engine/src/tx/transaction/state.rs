//! The state of a transaction: its reads, its locks and its writes. The calls of tasks and the
//! calls of other threads use it.
//!
//! Invariants: each key in the write set has its row locked. Once a snapshot is taken, no locked
//! row has a commit newer than the snapshot. If a row has, the transaction takes a newer snapshot,
//! provided that everything it has read is locked; otherwise it is doomed and can only roll back.

mod lookup;
mod row_locks;
mod savepoint;

pub use savepoint::Savepoint;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use qpair_format::{Error, ErrorKind, Result};

use super::buffers::Buffers;
use super::large::LargeValue;
use super::options::{Isolation, TransactionOptions};
use super::prefetch_set::PrefetchSet;
use super::recent_commits::Watch;
use super::serializable::ReadSet;
use super::spilled::Spilled;
use super::write_set::{Item, Write, WriteSet};
use crate::log::Durability;
use crate::overflow::check_sizes;
use crate::panics::guarded;
use crate::shared::Shared;
use crate::task::take_turn;
use crate::tree::{Batch, CursorHint, Tree};
use crate::tx::locking::{self, Info};
use crate::tx::versions::RowRef;
use crate::tx::{Tx, slot_here};

/// A row on which a transaction met a conflict.
pub(crate) type Contended = (Tree, Vec<u8>);

/// The key that was locked or read last, which is most often written next.
#[derive(Default)]
pub(super) struct Recent {
    tree: u32,
    key: Vec<u8>,
    /// The key's row, if it is locked.
    row: Option<RowRef>,
    /// The position where the key was found.
    cursor_hint: Option<CursorHint>,
}

impl Recent {
    /// Forgets the row, which leaves memory.
    pub(super) fn forget_row(&mut self) {
        self.row = None;
    }

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

/// A transaction, wherever it is used.
pub(crate) struct TxState {
    pub(crate) tx: Arc<Tx>,
    pub(in crate::tx) isolation: Isolation,
    pub(in crate::tx) durability: Durability,
    read_only: bool,
    pub(in crate::tx) bytes_max: usize,
    lock_timeout: Option<Duration>,
    name: Option<String>,
    pub(in crate::tx) slot: usize,
    pub(crate) id: u64,
    pub(in crate::tx) info: Arc<Info>,
    pub(in crate::tx) snapshot: Option<u64>,
    /// Whether the transaction has read rows that it has not locked, and so needs the snapshot that
    /// it has.
    needs_snapshot: bool,
    /// The greatest timestamp that the transaction has read at.
    seen: u64,
    pub(in crate::tx) writes: WriteSet,
    /// The writes for which memory had no room; `None` if it has had room for all.
    pub(in crate::tx) spilled: Option<Box<Spilled>>,
    pub(in crate::tx) reads: ReadSet,
    /// The commits after the snapshot, for the validation of the reads.
    pub(in crate::tx) watch: Option<Watch>,
    /// The rows that were locked since writes went to the device last; the others are locked by
    /// their tags.
    pub(in crate::tx) locks: Vec<RowRef>,
    /// The size of the locked keys that are too long to lie in their rows, in bytes.
    pub(super) long_keys_bytes: usize,
    /// A buffer in which a commit notes the positions of its writes.
    pub(in crate::tx) cursor_hints: Vec<CursorHint>,
    /// Buffers for the batches of a range.
    pub(crate) batches: (Batch, Batch),
    ahead: PrefetchSet,
    pub(in crate::tx) large: Vec<LargeValue>,
    pub(in crate::tx) doomed: Option<Error>,
    /// The row on which the transaction met a conflict.
    pub(crate) contended: Option<Contended>,
    pub(super) recent: Recent,
    over: bool,
}

impl TxState {
    pub(crate) fn begin(tx: &Arc<Tx>, options: &TransactionOptions) -> Self {
        let slot = slot_here(&tx.shared);
        let started = tx.shared.oracle.applied();
        let (info, buffers) = {
            let mut open = tx.slots[slot].open.lock();
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
            spilled: None,
            reads: ReadSet::default(),
            watch: None,
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

    pub(in crate::tx) fn shared(&self) -> &Arc<Shared> {
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
        locking::describe(self.id, self.name.as_deref())
    }

    pub(crate) fn check(&self, tree: Tree) -> Result<()> {
        if let Some(doomed) = &self.doomed {
            return Err(doomed.clone());
        }
        self.shared().check_table(tree)
    }

    /// Returns an error if a table with writes of this transaction was dropped since.
    pub(in crate::tx) fn check_tables(&self) -> Result<()> {
        if !self.shared().forest.has_dropped() {
            return Ok(());
        }
        let spilled = self.spilled.iter().flat_map(|spilled| spilled.trees());
        let mut trees = self.writes.iter().map(|item| item.tree).chain(spilled);
        trees.try_for_each(|tree| self.shared().check_table(tree))
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
        check_sizes(self.shared(), tree, key, value)
    }

    /// Returns the timestamp of the snapshot. The first call takes the snapshot.
    #[inline]
    pub(super) fn snapshot(&mut self) -> u64 {
        match self.snapshot {
            Some(snapshot) => snapshot,
            None => {
                if self.isolation == Isolation::Serializable && !self.read_only {
                    self.watch_commits();
                }
                let snapshot = self.tx.enter_snapshot(self.slot);
                self.info.snapshot.store(snapshot + 1, Ordering::Relaxed);
                self.snapshot = Some(snapshot);
                snapshot
            }
        }
    }

    /// Keeps the keys of the commits from here on, for the validation. Apart from the snapshot, so
    /// that other transactions have none of this in their way.
    #[cold]
    fn watch_commits(&mut self) {
        self.watch = Some(self.tx.recent.watch(&self.tx.shared.oracle));
    }

    pub(in crate::tx) fn check_snapshot(&mut self, snapshot: u64) -> Result<()> {
        let lost = self.tx.check_snapshot(snapshot, || self.describe());
        lost.inspect_err(|error| self.doomed = Some(error.clone()))
    }

    pub(super) fn enter(
        &mut self,
        tree: Tree,
        key: &[u8],
        row: RowRef,
        write: Write<'_>,
    ) -> Result<()> {
        let cursor_hint = self.recent.cursor_hint.filter(|_| self.recent.is(tree.id, key));
        self.writes.put(tree, key, (row, cursor_hint), write)?;
        self.note_size();
        Ok(())
    }

    /// Ends the transaction: releases its snapshot and its locks, and removes it from the list of
    /// open transactions.
    pub(in crate::tx) fn end(&mut self) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        self.watch = None;
        let tx = &self.tx;
        guarded(&self.tx.shared, || {
            {
                let mut open = tx.slots[self.slot].open.lock();
                if let Some(snapshot) = self.snapshot {
                    open.snapshots.leave(snapshot);
                }
                open.registry.end(self.id);
            }
            for row in &self.locks {
                tx.rows.unlock(*row, self.id);
            }
            if self.spilled.is_some() {
                tx.rows.release_tags(self.id);
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
        self.tx.slots[self.slot].open.lock().spare.give(buffers);
    }
}

/// Returns the bytes of a write, and whether they are a descriptor; `None` for a deletion.
pub(in crate::tx) fn written<'a>(item: &Item<'a>) -> Option<(&'a [u8], bool)> {
    match item.write {
        Write::Inline(value) => Some((value, false)),
        Write::Large(descriptor) => Some((descriptor, true)),
        Write::Delete => None,
    }
}
