//! Writes of a transaction for which memory has no room: sorted runs on the device. See
//! docs/design/large-transactions.md.
//!
//! Invariants: of two writes to a key, that of the later run is the newer one, and those in memory
//! are newer than those in runs. A savepoint is a number of runs. A row whose write is in a run is
//! locked by its tag, so no part of the transaction has a reference to it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use qpair_block::format_bytes;
use qpair_format::{Error, ErrorKind, Result};
use qpair_memory::FrameIndex;

use super::state::{TxState, written};
use super::write_set::{Item, Segment, WriteMark};
use crate::canary::Canary;
use crate::checkpoint::SpaceRetry;
use crate::shared::Shared;
use crate::tree::Tree;
use crate::tx::history::{BeforeImageRef, Entered, RunWriter, SortedRun, find_in};
use crate::tx::versions::{BeforeImage, Row, RowRef};

/// The number of savepoints in memory up to which writes go to the device: each begins a run.
const SAVEPOINTS_MAX: usize = 64;
/// The memory that runs and tags may take, in bytes, if the transaction's limit is lower.
const MEMORY_BYTES: usize = 1 << 20;
/// The size of a tag in bytes.
const TAG_BYTES: usize = 4;

/// The writes of a transaction that are on the device.
#[derive(Default)]
pub(crate) struct Spilled {
    runs: Arc<[Arc<SortedRun>]>,
    /// The contents of each run.
    contents: Vec<Content>,
    /// The savepoints before the writes in memory: their numbers, ascending, and how many runs
    /// there were.
    savepoints: Vec<(u32, usize)>,
    /// The number of rows that are locked by tags.
    tags: usize,
}

/// The contents of a run.
struct Content {
    /// The trees with writes, and their roots.
    trees: BTreeMap<u32, FrameIndex>,
    /// An upper bound of the size of the writes of this run and those before it in a commit's
    /// record, in bytes.
    record_bytes: usize,
}

impl Spilled {
    /// Returns the tree with this number, which has writes.
    pub(in crate::tx) fn tree(&self, id: u32) -> Option<Tree> {
        let root = self.contents.iter().find_map(|content| content.trees.get(&id));
        root.map(|root| Tree::new(id, *root))
    }

    /// Returns the trees with writes; some of them more than once.
    pub(in crate::tx) fn trees(&self) -> impl Iterator<Item = Tree> + '_ {
        let trees = self.contents.iter().flat_map(|content| &content.trees);
        trees.map(|(id, root)| Tree::new(*id, *root))
    }

    /// Returns an upper bound of the size of the writes in a commit's record, in bytes.
    pub(in crate::tx) fn record_bytes(&self) -> usize {
        self.contents.last().map_or(0, |content| content.record_bytes)
    }

    /// Returns the memory for runs and tags, in bytes.
    fn memory_bytes(&self) -> usize {
        let runs: u64 = self.runs.iter().map(|run| run.memory_bytes()).sum();
        runs as usize + self.tags * TAG_BYTES
    }

    fn may_have(&self, tree: Tree, key: &[u8]) -> bool {
        self.runs.iter().any(|run| run.may_have(tree.id, key))
    }

    /// Returns the newest write to a key; `Absent` stands for a deletion.
    async fn find(&self, shared: &Shared, tree: Tree, key: &[u8]) -> Result<Option<BeforeImage>> {
        let found = find_in(&self.runs, shared, tree.id, key, 0).await?;
        Ok(found.map(|version| version.image))
    }

    /// Removes the runs after a savepoint; returns `false` if the savepoint is not there.
    fn rollback_to(&mut self, savepoint: &WriteMark) -> bool {
        let Ok(at) = self.savepoints.binary_search_by_key(&savepoint.number, |(number, _)| *number)
        else {
            return false;
        };
        let (_, runs) = self.savepoints[at];
        self.savepoints.truncate(at + 1);
        self.runs = self.runs[..runs].into();
        self.contents.truncate(runs);
        true
    }
}

/// Encodes a write for a run. Of writes to the same key, that with the smallest order is the
/// newest.
fn image_of<'a>(item: &Item<'a>, order: u64) -> BeforeImageRef<'a> {
    BeforeImageRef::of_record(item.tree.id, item.key, order, written(item))
}

impl TxState {
    /// Whether writes of the transaction are, or were, on the device.
    pub(in crate::tx) fn has_spilled(&self) -> bool {
        self.spilled.is_some()
    }

    /// Whether the transaction has writes.
    pub(in crate::tx) fn has_writes(&self) -> bool {
        !self.writes.is_empty() || self.runs().is_some()
    }

    /// Returns the runs on the device, if there are some.
    pub(in crate::tx) fn runs(&self) -> Option<&Arc<[Arc<SortedRun>]>> {
        self.spilled.as_ref().map(|spilled| &spilled.runs).filter(|runs| !runs.is_empty())
    }

    /// Whether a key may have a write on the device and none in memory.
    pub(super) fn may_have_spilled(&self, tree: Tree, key: &[u8]) -> bool {
        self.spilled.as_ref().is_some_and(|spilled| spilled.may_have(tree, key))
    }

    /// Returns the newest write to a key on the device, which counts if memory has none.
    pub(super) async fn find_spilled(&self, tree: Tree, key: &[u8]) -> Result<Option<BeforeImage>> {
        match &self.spilled {
            Some(spilled) if spilled.may_have(tree, key) => {
                Box::pin(spilled.find(self.shared(), tree, key)).await
            }
            _ => Ok(None),
        }
    }

    /// Returns the number of rows that the transaction has locked, in memory or by tags.
    pub(super) fn locked_rows(&self) -> usize {
        self.locks.len() + self.spilled.as_ref().map_or(0, |spilled| spilled.tags)
    }

    /// Notes the size of the writes, in memory and on the device, for the list of transactions.
    pub(super) fn note_size(&self) {
        let on_device = self.spilled.as_ref().map_or(0, |spilled| spilled.record_bytes());
        let bytes = self.writes.size_bytes() + on_device;
        self.info.bytes.store(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the memory of the writes and of the locked rows, in bytes.
    pub(in crate::tx) fn memory_bytes(&self) -> usize {
        let of_lock = size_of::<Row>() + size_of::<RowRef>();
        self.writes.size_bytes() + self.locks.len() * of_lock + self.long_keys_bytes
    }

    /// Whether the writes and locked rows in memory have reached the transaction's limit.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        // Reads stay in memory. Next to many of them, a quarter of the limit is left for writes.
        let left = self.bytes_max.saturating_sub(self.reads.size_bytes()).max(self.bytes_max / 4);
        self.memory_bytes() > left
    }

    /// Moves the writes to the device, and lets the locked rows leave memory, if they have reached
    /// the transaction's limit. Nothing may have a reference to one of these rows.
    #[inline]
    pub(crate) async fn make_room(&mut self) -> Result<()> {
        if self.is_full() {
            return Box::pin(self.spill()).await;
        }
        Ok(())
    }

    /// Moves the last writes of a transaction that has others on the device there, too, before its
    /// commit.
    ///
    /// # Errors
    /// `NoSpace`, `Closed`, errors of the device.
    pub(in crate::tx) async fn spill_rest(&mut self) -> Result<()> {
        self.writes.forget_savepoints();
        self.spill_all().await
    }

    /// Moves all writes to the device.
    ///
    /// # Errors
    /// `TooLarge` if what stays in memory is too much; errors as [`TxState::spill_rest`]. The
    /// writes are then where they were.
    async fn spill(&mut self) -> Result<()> {
        let spilled = self.spilled.get_or_insert_default();
        let (memory_bytes, limit) = (spilled.memory_bytes(), self.bytes_max.max(MEMORY_BYTES));
        if memory_bytes > limit {
            return Err(Error::with_hint(
                ErrorKind::TooLarge,
                format!(
                    "the transaction has {} of writes on the device, and needs {} of memory to find them; the limit is {}",
                    format_bytes(spilled.record_bytes() as u64),
                    format_bytes(memory_bytes as u64),
                    format_bytes(limit as u64),
                ),
                "split the transaction, or raise the limit: write_set_bytes_max of its options, transaction_bytes_max of the store's",
            ));
        }
        let savepoints = self.writes.savepoints();
        if savepoints.len() > SAVEPOINTS_MAX {
            return Err(Error::with_hint(
                ErrorKind::TooLarge,
                format!(
                    "the transaction has {} of writes in memory, with {} savepoints; writes with more than {SAVEPOINTS_MAX} do not go to the device",
                    format_bytes(self.writes.size_bytes() as u64),
                    savepoints.len(),
                ),
                "take fewer savepoints, or raise the limit: write_set_bytes_max of its options, transaction_bytes_max of the store's",
            ));
        }
        self.spill_all().await
    }

    async fn spill_all(&mut self) -> Result<()> {
        let savepoints = self.writes.savepoints();
        let before = self.spilled.as_ref();
        let mut record_bytes = before.map_or(0, |spilled| spilled.record_bytes());
        let mut runs = before.map_or_else(Vec::new, |spilled| spilled.runs.to_vec());
        let mut marks = Vec::with_capacity(savepoints.len());
        let mut contents = Vec::new();
        let segments = self.writes.segments();
        for (index, segment) in segments.iter().enumerate() {
            if !segment.is_empty() {
                let mut trees = BTreeMap::new();
                for item in self.writes.items_of(segment) {
                    trees.insert(item.tree.id, item.tree.root);
                    record_bytes += item.record_bytes_max();
                }
                contents.push(Content { trees, record_bytes });
                let write = async || self.write_run(segment, runs.len()).await;
                runs.push(SpaceRetry::tried(self.shared(), write).await?);
            }
            marks.extend(savepoints.get(index).map(|number| (*number, runs.len())));
        }
        let Some(spilled) = &mut self.spilled else { return Ok(()) };
        spilled.contents.extend(contents);
        spilled.runs = runs.into();
        spilled.savepoints.extend(marks);
        self.writes.drain();
        self.replace_locks_by_tags();
        self.note_size();
        Ok(())
    }

    async fn write_run(&self, segment: &Segment, number: usize) -> Result<Arc<SortedRun>> {
        let _entered = Entered::new(self.shared()).ok_or_else(Error::closed)?;
        let order = match self.shared().planted.is(Canary::StaleSpilledWrite) {
            true => 1 + number as u64,
            false => u64::MAX - number as u64,
        };
        let bytes: usize =
            self.writes.items_of(segment).map(|item| image_of(&item, order).size_bytes()).sum();
        let mut writer = RunWriter::of_writes(&self.tx, bytes as u64);
        let mut outcome = Ok(());
        for item in self.writes.items_of(segment) {
            outcome = writer.push(&image_of(&item, order)).await;
            if outcome.is_err() {
                break;
            }
        }
        let run = writer.finish(outcome).await?;
        run.map(Arc::new).ok_or_else(|| Error::new(ErrorKind::Invalid, "a run has no writes"))
    }

    /// Lets the locked rows leave memory, as far as possible. Their locks stay.
    pub(in crate::tx) fn replace_locks_by_tags(&mut self) {
        if self.shared().planted.is(Canary::ForgottenTags) {
            self.locks.iter().for_each(|row| self.tx.rows.unlock(*row, self.id));
        }
        let tags = self.tx.rows.replace_by_tags(&mut self.locks, self.id);
        if let Some(spilled) = &mut self.spilled {
            spilled.tags += tags;
        }
        self.locks.clear();
        self.long_keys_bytes = 0;
        self.recent.forget_row();
    }

    /// Removes the writes since a savepoint; returns `false` if the savepoint is not there.
    pub(super) fn rollback_writes_to(&mut self, savepoint: &WriteMark) -> bool {
        if self.writes.rollback_to(savepoint) {
            return true;
        }
        let is_there = self.spilled.as_mut().is_some_and(|spilled| spilled.rollback_to(savepoint));
        if is_there {
            self.writes.drain();
        }
        is_there
    }
}
