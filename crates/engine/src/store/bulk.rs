//! Sorted loads into an empty table: pages are built from the leaves up, filled completely, and
//! written once, many at a time.
//!
//! The records become visible only with [`BulkLoader::finish`], which puts the entries of the
//! topmost page into the root.

mod group;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use qpair_block::{Arena, Buffer, Request};
use qpair_format::large::Extents;
use qpair_format::page::{Node, NodeInit, NodeMut, Staged, seal, separator_len};
use qpair_format::{Error, ErrorKind, Result};

use group::Gathered;

use super::{StoreInner, Table, TaskTable};
use crate::canary::Canary;
use crate::checkpoint::{SpaceRetry, checkpoint_to_its_end};
use crate::incarnation::ChangeGuard;
use crate::log::{Durability, FeedBreak};
use crate::overflow::{self, check_sizes, needs_overflow};
use crate::shared::Shared;
use crate::task::{Reserved, Transfer, current, yield_now};
use crate::tree::Tree;
use crate::tx::{TransactionOptions, TxState, commit};

/// The number of bytes written at once.
const EXTENT_BYTES: usize = 256 << 10;
/// The number of extents in flight or being filled.
const EXTENTS: u32 = 12;
/// The number of entries of the index of expiry times that are put at once.
const ENTRIES: usize = 256;

struct Extent {
    buffer: Buffer,
    run: Rc<Reserved>,
    filled: usize,
}

/// Builds a table from records in key order. Made by [`TaskTable::bulk_loader`]. Dropping the
/// loader discards the load.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// let (loader, of) = (table.task(), table.clone());
/// let loaded = store.spawn(move || async move {
///     let mut loader = loader.bulk_loader().await?;
///     loader.push(b"a", b"1").await?;
///     loader.push(b"b", b"2").await?;
///     loader.finish().await
/// });
/// assert_eq!(loaded.join()??, 2);
/// assert_eq!(of.get(b"b")?.as_deref(), Some(&b"2"[..]));
/// # drop(of);
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BulkLoader {
    inner: Arc<StoreInner>,
    tree: Tree,
    /// The timestamp of its pages: no commit may change the table after it.
    timestamp: u64,
    arena: Arc<Arena>,
    pages_per_extent: usize,
    /// The extents of leaves and of inner pages that are being filled.
    extents: [Option<Extent>; 2],
    writing: VecDeque<Transfer>,
    /// All pages of the load; they are free again unless the load is finished.
    runs: Vec<Rc<Reserved>>,
    levels: Vec<Staged>,
    records: u64,
    /// The group of long keys that is being gathered.
    group: Option<Gathered>,
    /// Entries of the index of expiry times that are not in the index yet.
    entries: Vec<Vec<u8>>,
    /// Keeps these entries in the index until the records are in the table.
    loading: Option<Loading>,
    /// Set if a push failed, or was dropped, while pages were being written: the gathered records
    /// are incomplete.
    torn: bool,
    /// Dropped last; a close waits until then.
    _change: ChangeGuard,
}

/// A sorted load whose entries are in the index of expiry times before its records are in the
/// table.
struct Loading {
    shared: Arc<Shared>,
    tree: u32,
}

impl Loading {
    fn begin(shared: &Arc<Shared>, tree: u32) -> Self {
        shared.expiry.note_loading(tree, true);
        Self { shared: shared.clone(), tree }
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.shared.expiry.note_loading(self.tree, false);
    }
}

impl TaskTable {
    /// Begins a sorted load. The table must be empty, and stay empty until the load is finished.
    ///
    /// # Errors
    /// `Invalid` if the table is not empty; `ReadOnly`; `NoMemory`.
    pub async fn bulk_loader(&self) -> Result<BulkLoader> {
        // Records that have expired are in the way too, until they are removed.
        let stored = self.table().stored().task();
        if stored.range(..)?.limit(1).next().await?.is_some() {
            return Err(not_empty());
        }
        BulkLoader::new(self.table())
    }
}

fn not_empty() -> Error {
    Error::with_hint(
        ErrorKind::Invalid,
        "a sorted load needs an empty table",
        "load into a new table, or use an unsorted load",
    )
}

impl BulkLoader {
    fn new(table: &Table) -> Result<Self> {
        let inner = table.inner().clone();
        let change = inner.incarnation.enter_change()?;
        let page_size = inner.shared.page_size;
        let most = inner.shared.device.info().transfer_bytes_max as usize;
        let extent_bytes = EXTENT_BYTES.min(most).max(page_size);
        let extent_bytes = 1 << extent_bytes.ilog2();
        let arena = Arena::new(extent_bytes, EXTENTS, inner.shared.device.info().arena_options())
            .map_err(|error| {
            Error::new(ErrorKind::NoMemory, format!("mapping memory for a sorted load: {error}"))
        })?;
        Ok(Self {
            tree: table.tree(),
            timestamp: inner.shared.oracle.applied(),
            arena,
            pages_per_extent: extent_bytes / page_size,
            extents: [None, None],
            writing: VecDeque::new(),
            runs: Vec::new(),
            levels: vec![Staged::default()],
            records: 0,
            group: None,
            entries: Vec::new(),
            loading: None,
            torn: false,
            inner,
            _change: change,
        })
    }

    /// Adds the next record, whose key must be greater than all before it.
    ///
    /// # Errors
    /// `Invalid` if the key is not greater than the previous one; otherwise as [`Table::put`]. A
    /// refused record (`Invalid`, `KeyTooLong`, `ValueTooLong`) changes nothing. After other
    /// errors, or if the future is dropped before it completes, the load cannot be finished.
    pub async fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.check_whole()?;
        check_sizes(&self.inner.shared, self.tree, key, value)?;
        let last = self.group.as_ref().map(|of| of.last_key.as_slice());
        if last.or(self.levels[0].last_key()).is_some_and(|last| last >= key) {
            return Err(Error::with_hint(
                ErrorKind::Invalid,
                format!(
                    "record {} of a sorted load has a key that is not greater than the key before it",
                    self.records + 1
                ),
                "sort the records by key, bytewise, and drop duplicates; or use an unsorted load",
            ));
        }
        if !self.tree.is_long(key) {
            self.end_group().await?;
            return self.push_whole(key, value).await;
        }
        self.gather(key, value).await
    }

    /// Adds a record whose key is whole in the pages, or a group.
    async fn push_whole(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let page_bytes = self.inner.shared.page_bytes;
        let value = &*self.inner.shared.stored(self.tree, value)?;
        if key.len() > self.inner.shared.whole_key_len_max {
            self.inner.incarnation.note_long_key()?;
        }
        if let Some((index, entry)) = self.inner.shared.expiry_entry(self.tree, key, value)? {
            self.entries.push(entry);
            if self.entries.len() >= ENTRIES {
                self.write_entries(index).await?;
            }
        }
        let large = needs_overflow(&self.inner.shared, key, value);
        let leaf = &mut self.levels[0];
        if !large && leaf.fits(0, key, Some(value.len()), page_bytes) {
            self.records += 1;
            leaf.push(0, key, value, false);
            return Ok(());
        }
        self.torn = true;
        if large {
            let (descriptor, reserved) = overflow::write(&self.inner.shared, value).await?;
            self.runs.push(reserved);
            self.inner.incarnation.note_listed(descriptor)?;
            self.add(key, &descriptor.encode(), true).await?;
        } else {
            self.add(key, value, false).await?;
        }
        self.torn = false;
        Ok(())
    }

    /// Puts the gathered entries into the index of expiry times. An entry does no harm if its
    /// record does not come.
    async fn write_entries(&mut self, index: Tree) -> Result<()> {
        if self.entries.is_empty() {
            return Ok(());
        }
        self.torn = true;
        if self.loading.is_none() {
            self.loading = Some(Loading::begin(&self.inner.shared, self.tree.id));
        }
        let durability = Durability::Async;
        let options = TransactionOptions { durability, ..TransactionOptions::default() };
        let mut core = TxState::begin(&self.inner.tx, &options);
        for entry in self.entries.drain(..) {
            core.put(index, &entry, &[]).await?;
        }
        commit(core).await?;
        self.torn = false;
        Ok(())
    }

    fn check_whole(&self) -> Result<()> {
        if !self.torn {
            return Ok(());
        }
        Err(Error::with_hint(
            ErrorKind::Invalid,
            format!("record {} of a sorted load was only partly written", self.records.max(1)),
            "a push that fails or is dropped ends the load; begin a new one",
        ))
    }

    async fn add(&mut self, key: &[u8], value: &[u8], overflow: bool) -> Result<()> {
        let page_bytes = self.inner.shared.page_bytes;
        self.records += 1;
        if !self.levels[0].fits(0, key, Some(value.len()), page_bytes) {
            let last = self.levels[0].last_key().unwrap_or_default();
            let mut fence = key[..separator_len(last, key)].to_vec();
            if !self.levels[0].fits_below(0, Some(&fence), page_bytes) {
                // The next key is so unlike the others that a short fence would cost them their
                // prefix: the last key's direct successor keeps it.
                fence = [last, &[0]].concat();
            }
            self.emit(0, &fence).await?;
            self.levels[0].restart(&fence);
            // Updates the size of the empty page.
            self.levels[0].fits(0, key, Some(value.len()), page_bytes);
        }
        self.levels[0].push(0, key, value, overflow);
        Ok(())
    }

    /// Writes the page gathered on a level, with `upper` as its upper fence, and adds it to the
    /// level above.
    async fn emit(&mut self, level: u8, upper: &[u8]) -> Result<()> {
        let place = self.write_page(level, Some(upper)).await?;
        self.levels[usize::from(level)].emitted = true;
        self.add_child(level + 1, upper, place).await
    }

    /// Adds a written page to the level above; writes pages further up as they fill.
    async fn add_child(&mut self, level: u8, fence: &[u8], place: u64) -> Result<()> {
        let page_bytes = self.inner.shared.page_bytes;
        let (mut level, mut fence, mut place) = (level, fence.to_vec(), place);
        loop {
            if self.levels.len() == usize::from(level) {
                self.levels.push(Staged::default());
            }
            let above = &mut self.levels[usize::from(level)];
            if above.fits(level, &fence, Some(0), page_bytes) {
                above.push(level, &fence, &place.to_le_bytes(), false);
                return Ok(());
            }
            let bound = above.last_key().unwrap_or_default().to_vec();
            let closed = self.write_page(level, Some(&bound)).await?;
            let above = &mut self.levels[usize::from(level)];
            above.emitted = true;
            above.restart(&bound);
            above.fits(level, &fence, Some(0), page_bytes);
            above.push(level, &fence, &place.to_le_bytes(), false);
            (fence, place) = (bound, closed);
            level += 1;
        }
    }

    /// Builds the page gathered on a level in its extent; returns the page's place.
    async fn write_page(&mut self, level: u8, upper: Option<&[u8]>) -> Result<u64> {
        // A long load gets the error when the store fails, not only at its end.
        self.inner.shared.lifecycle.check_writable()?;
        let kind = usize::from(level > 0);
        let (page_size, page_bytes) = (self.inner.shared.page_size, self.inner.shared.page_bytes);
        if self.extents[kind].is_none() {
            let (shared, pages) = (&self.inner.shared, self.pages_per_extent as u64);
            let first_page =
                SpaceRetry::tried(shared, async || shared.space.reserve_more_unlinked(pages))
                    .await?;
            let run = Rc::new(Reserved::of(Extents::Run(first_page..first_page + pages)));
            self.runs.push(run.clone());
            let buffer = loop {
                match self.arena.lease() {
                    Some(buffer) => break buffer,
                    None => self.finish_write().await?,
                }
            };
            self.extents[kind] = Some(Extent { buffer, run, filled: 0 });
        }
        let Some(extent) = &mut self.extents[kind] else {
            return Err(Error::new(ErrorKind::Invalid, "a new extent is missing"));
        };
        let page_id = extent.run.page_id() + extent.filled as u64;
        let place = self.inner.shared.checkpointing.epochs.versions.moved(page_id);
        let offset = extent.filled * page_size;
        let staged = &self.levels[usize::from(level)];
        let mut node = NodeMut::new(extent.buffer.part_mut(offset, page_bytes));
        let tree_id = self.tree.id;
        node.init(NodeInit { level, tree_id, page_id: place, lower: &staged.lower, upper });
        staged.fill(level, &mut node);
        node.set_timestamp(self.timestamp);
        seal(&mut extent.buffer, offset, page_bytes);
        extent.filled += 1;
        if extent.filled == self.pages_per_extent {
            self.write_extent(kind);
        }
        Ok(place)
    }

    /// Writes an extent to the device, and frees its pages that were not used.
    fn write_extent(&mut self, kind: usize) {
        let Some(Extent { buffer, run, filled }) = self.extents[kind].take() else { return };
        let shared = &self.inner.shared;
        let len_bytes = (filled * shared.page_size) as u32;
        if filled < self.pages_per_extent {
            run.shrink(shared, filled as u64);
        }
        let offset_bytes = shared.offset_bytes(run.page_id());
        let request = Request::write(offset_bytes, len_bytes, buffer, 0);
        self.writing.push_back(Transfer::submit_to(run, request));
    }

    async fn finish_write(&mut self) -> Result<()> {
        let Some(transfer) = self.writing.pop_front() else { return Ok(()) };
        let completion = transfer.done().await?;
        completion.result.map_err(|error| {
            let error = Error::io(error, "writing pages of a sorted load");
            self.inner.shared.fail(error.clone());
            error
        })
    }

    /// Writes the remaining pages, makes the records visible, and makes a checkpoint, since the
    /// records are in no log. On return the records survive power loss. Returns their number.
    ///
    /// # Errors
    /// `Invalid` if another caller put records into the table meanwhile, or a push did not
    /// complete; errors of the device. The table is then unchanged, unless the checkpoint failed:
    /// then the records are visible, and a crash may lose them.
    pub async fn finish(mut self) -> Result<u64> {
        match self.complete().await {
            Ok(()) if self.inner.shared.planted.is(Canary::LoadWithoutCheckpoint) => {
                Ok(self.records)
            }
            Ok(()) => {
                let shared = self.inner.shared.clone();
                let before = shared.checkpointing.epochs.completed.load(Ordering::Relaxed);
                checkpoint_to_its_end(&shared).await?;
                if shared.checkpointing.epochs.completed.load(Ordering::Relaxed) == before {
                    // The store is being closed: its last checkpoint will have the records, if it
                    // succeeds.
                    return Err(Error::closed());
                }
                Ok(self.records)
            }
            Err(error) => {
                self.abandon().await;
                Err(error)
            }
        }
    }

    async fn complete(&mut self) -> Result<()> {
        self.check_whole()?;
        self.end_group().await?;
        if let Some(index) = self.inner.shared.expiry.index() {
            self.write_entries(index).await?;
        }
        let mut level = 0;
        // Each level with a written page gets a level above it; the first one without is the root's
        // contents.
        loop {
            while !self.levels[usize::from(level)].fits_below(
                level,
                None,
                self.inner.shared.page_bytes,
            ) {
                let (fence, second) = self.levels[usize::from(level)].halve(level);
                self.emit(level, &fence).await?;
                self.levels[usize::from(level)] = second;
            }
            if !self.levels[usize::from(level)].emitted {
                break;
            }
            self.emit_last(level).await?;
            level += 1;
        }
        for kind in 0..self.extents.len() {
            self.write_extent(kind);
        }
        while !self.writing.is_empty() {
            self.finish_write().await?;
        }
        self.install(level).await
    }

    /// Writes a level's rightmost page and adds it to the level above.
    async fn emit_last(&mut self, level: u8) -> Result<()> {
        let place = self.write_page(level, None).await?;
        let above = &mut self.levels[usize::from(level) + 1];
        // The rightmost child has no fence above it; as the last entry its key is never written.
        above.push(level + 1, &[], &place.to_le_bytes(), false);
        Ok(())
    }

    /// Puts the topmost level's entries into the root.
    async fn install(&mut self, level: u8) -> Result<()> {
        let shared = self.inner.shared.clone();
        let frames = &shared.pool.frames;
        let _inside = self.inner.incarnation.begin_commit().await?;
        loop {
            shared.check_table(self.tree)?;
            let Ok(mut root) = frames.try_exclusive(self.tree.root) else {
                yield_now().await;
                continue;
            };
            let now = Node::new(root.bytes());
            if !now.is_leaf() || now.count() > 0 || now.timestamp() > self.timestamp {
                return Err(not_empty());
            }
            let page_id = now.place();
            if !begin_change(&root) {
                drop(root);
                yield_now().await;
                continue;
            }
            // The records are in no log, so a backup that follows the log lacks them.
            shared.wal.feed.break_off(FeedBreak::SortedLoad);
            let mut node = NodeMut::new(root.bytes_mut());
            node.init(NodeInit { level, tree_id: self.tree.id, page_id, lower: &[], upper: None });
            self.levels[usize::from(level)].fill(level, &mut node);
            node.set_timestamp(self.timestamp);
            frames.set_dirty(self.tree.root, true);
            for run in self.runs.drain(..) {
                run.keep(&shared);
            }
            return Ok(());
        }
    }

    /// Discards the load. On return its pages are free, and the table is empty as before.
    pub async fn abandon(mut self) {
        while !self.writing.is_empty() {
            // The pages are freed whether or not they were written.
            let _ = self.finish_write().await;
        }
    }
}

/// Saves the root for a checkpoint under way before it is changed; returns `false` if the caller
/// must try again.
fn begin_change(root: &qpair_memory::ExclusiveFrame<'_>) -> bool {
    current(|worker| worker.context().begin_change(root).is_ok()).unwrap_or(false)
}
