//! The catalog: a tree whose records map table names to the ids of the tables' trees.

use std::ops::Bound;
use std::sync::{Arc, MutexGuard, PoisonError, TryLockError};

use qpair_block::Request;
use qpair_format::catalog::decode;
use qpair_format::log::Operation;
use qpair_format::page::{Node, NodeInit, NodeMut};
use qpair_format::place::page_of;
use qpair_format::{Error, ErrorKind, Result};
use qpair_memory::{Blocked, ExclusiveFrame};

use super::{Store, StoreInner, Table};
use crate::canary::Canary;
use crate::checkpoint::SpaceRetry;
use crate::pool::{Root, StallTimeout, state};
use crate::shared::Shared;
use crate::space::{BarrierGuard, Purpose};
use crate::task::{
    Context, Descent, JoinHandle, Need, Operation as Step, Transfer, Worker, astray, current,
    give_scratch, latch_free, refuse_on_worker, run, scratch_frame, spawn_to, verify,
};
use crate::tree::{
    Batch, Change, Direction, Lack, Merge, Merged, NoUndo, Prepare, Put, PutOutcome, Remove, Scan,
    Tree, make_room, merge_sparse,
};
use crate::tx::Reach;

/// The length of the longest table name, in bytes.
const TABLE_NAME_LEN_MAX: usize = 128;

impl Store {
    /// Opens a table, and makes it if there is none of this name. From then on one page of the
    /// table stays in memory, until the table is dropped or the store is closed. All of the store's
    /// memory except 32 pages for each worker, but at least half of it, may be taken by open
    /// tables: with memory for 4,000 pages and 4 workers, 3,872 tables.
    ///
    /// # Errors
    /// `NoMemory` if that many tables are open; `Invalid` for an empty name or one over 128 bytes
    /// (or over the length of the store's longest key), and on a worker if the call would have to
    /// make the table or to wait; `ReadOnly` if the table would have to be made in a store that
    /// refuses changes; and errors of the device.
    pub fn table(&self, name: &str) -> Result<Table> {
        match self.existing_table(name)? {
            Some(table) => Ok(table),
            None => self.make_table(name),
        }
    }

    /// Opens a table if there is one of this name.
    ///
    /// # Errors
    /// `Invalid` for an empty name or one over 128 bytes (or over the length of the store's longest
    /// key), and on a worker if the call would have to wait; errors of the device.
    pub fn existing_table(&self, name: &str) -> Result<Option<Table>> {
        self.check_table_name(name)?;
        if self.inner.shared.lifecycle.has_ended() {
            return Err(Error::closed());
        }
        if let Some(table) = self.opened_table(name) {
            return Ok(Some(table));
        }
        let _alone = self.inner.begin_changing_tables()?;
        if let Some(table) = self.opened_table(name) {
            return Ok(Some(table));
        }
        let catalog = Table::new(self.inner.clone(), self.inner.catalog()?);
        let Some(record) = catalog.get(name.as_bytes())? else { return Ok(None) };
        let id = decode(&record)?;
        let tree = self.inner.open_tree(id)?;
        Ok(Some(self.add_table(name, tree)))
    }

    /// Refuses a name that no table can have.
    pub(super) fn check_table_name(&self, name: &str) -> Result<()> {
        // The name is a key of the catalog.
        let longest = TABLE_NAME_LEN_MAX.min(self.key_len_max());
        if !name.is_empty() && name.len() <= longest {
            return Ok(());
        }
        let len = name.len();
        Err(Error::new(
            ErrorKind::Invalid,
            format!("a table name has {len} bytes; in this store it may have 1 to {longest}"),
        ))
    }

    /// Returns a table that was opened before and is not being dropped.
    fn opened_table(&self, name: &str) -> Option<Table> {
        let tables = self.inner.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, tree) = tables.iter().find(|(of, _)| of == name)?;
        self.inner.shared.check_table(*tree).ok().map(|()| Table::new(self.inner.clone(), *tree))
    }

    fn add_table(&self, name: &str, tree: Tree) -> Table {
        self.inner.tx.names.add(tree.id, name);
        let mut tables = self.inner.tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables.push((name.to_owned(), tree));
        Table::new(self.inner.clone(), tree)
    }

    /// Returns the names of all tables, in order. Waits while another thread makes, renames or
    /// drops a table.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn table_names(&self) -> Result<Vec<String>> {
        // A rename changes two records: a scan between the changes could see both names, or
        // neither.
        let _alone = self.inner.begin_changing_tables()?;
        let catalog = Table::new(self.inner.clone(), self.inner.catalog()?);
        catalog
            .range(..)?
            .map(|entry| Ok(String::from_utf8_lossy(&entry?.0).into_owned()))
            .collect()
    }

    /// Removes a table and all its records. On return the removal is durable; the table's pages
    /// become free in the background. From then on handles of the table return `NotFound`, and
    /// snapshots do not see the table either.
    ///
    /// # Errors
    /// `NotFound` if there is no such table; `ReadOnly`; `Invalid` on a worker; and errors of the
    /// device.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        refuse_on_worker()?;
        let none = || no_table(name);
        self.existing_table(name)?.ok_or_else(none)?;
        let alone = self.inner.begin_changing_tables()?;
        // Another thread may have dropped the table meanwhile.
        let tree = self.opened_table(name).ok_or_else(none)?.tree();
        if self.inner.shared.planted.is(Canary::EmptyBeforeDrop) {
            self.inner.reclaim(tree, None);
        }
        let (inner, key) = (self.inner.clone(), name.to_owned());
        let outcome = self.inner.block_on(move || async move {
            let timestamp = SpaceRetry::tried(&inner.shared, async || {
                let mut inside = inner.incarnation.begin_commit().await?;
                let operation = Operation::DropTable { tree: tree.id };
                inner.define(&mut inside, operation, &[(&*key, None)], Some(tree)).await
            })
            .await?;
            Worker::wait_durable(timestamp).await
        });
        if self.inner.shared.check_table(tree).is_err() {
            // The table is gone for every caller, but perhaps not durably: in that case the store
            // is read-only.
            let mut tables = self.inner.tables.lock().unwrap_or_else(PoisonError::into_inner);
            tables.retain(|(_, known)| known.id != tree.id);
            drop(tables);
            self.inner.tx.names.remove(tree.id);
        }
        outcome?;
        drop(alone);
        if !self.inner.shared.planted.is(Canary::EmptyBeforeDrop) {
            self.inner.reclaim(tree, None);
        }
        Ok(())
    }

    /// Returns the number of dropped tables whose pages are not all free yet. For tables that were
    /// dropped before the store was opened, freeing continues with the first change.
    #[doc(hidden)]
    #[must_use]
    pub fn tables_being_dropped(&self) -> usize {
        self.inner.shared.forest.dropping()
    }

    fn make_table(&self, name: &str) -> Result<Table> {
        refuse_on_worker()?;
        let _alone = self.inner.begin_changing_tables()?;
        if let Some(table) = self.opened_table(name) {
            return Ok(table);
        }
        let id = self.inner.shared.forest.new_tree_id();
        let (inner, key) = (self.inner.clone(), name.to_owned());
        let tree = self.inner.block_on(move || async move {
            let (tree, timestamp) = SpaceRetry::tried(&inner.shared, async || {
                let mut inside = inner.incarnation.begin_commit().await?;
                let tree = make_tree(&inner.shared, id).await?;
                let operation = Operation::CreateTable { tree: id, name: &key };
                let defined =
                    inner.define(&mut inside, operation, &[(&*key, Some(id))], None).await;
                defined
                    .map(|timestamp| (tree, timestamp))
                    .inspect_err(|_| drop_root(&inner.shared, tree))
            })
            .await?;
            Worker::wait_durable(timestamp).await?;
            Ok(tree)
        })?;
        Ok(self.add_table(name, tree))
    }
}

pub(super) fn no_table(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no table {name}"))
}

impl StoreInner {
    /// Waits until no other thread makes, renames, drops or first opens a table. On a worker it
    /// fails instead of waiting, since the other thread may be waiting for that worker.
    pub(super) fn begin_changing_tables(&self) -> Result<MutexGuard<'_, ()>> {
        match self.changing_tables.try_lock() {
            Ok(alone) => Ok(alone),
            Err(TryLockError::Poisoned(alone)) => Ok(alone.into_inner()),
            Err(TryLockError::WouldBlock) => {
                refuse_on_worker()?;
                Ok(self.changing_tables.lock().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }

    /// Returns the catalog's tree, or the error if a store opened for reading has lost its catalog.
    pub(super) fn catalog(&self) -> Result<Tree> {
        match self.catalog.get() {
            Some(catalog) => catalog.clone(),
            None => Err(Error::new(ErrorKind::Invalid, "the catalog is not open yet")),
        }
    }

    /// Commits a change of the catalog: for each of these names, puts its record with the id of a
    /// tree, or removes it. At most one of the names needs room. `dropped` is the tree that has no
    /// name from then on.
    pub(super) async fn define(
        &self,
        inside: &mut BarrierGuard,
        operation: Operation<'_>,
        names: &[(&str, Option<u32>)],
        dropped: Option<Tree>,
    ) -> Result<u64> {
        let (shared, catalog) = (&self.shared, self.catalog()?);
        // Everything that can be refused is refused before the timestamp is taken. After that only
        // the store can fail.
        let mut reach = Reach::default();
        for (name, id) in names {
            let value_len = id.map(|_| size_of::<u32>());
            let leaf = loop {
                match run(shared, Prepare::new(catalog, name.as_bytes(), value_len)).await? {
                    Ok(prepared) => break prepared.cursor_hint.leaf,
                    Err(Lack { needed_bytes, .. }) => {
                        let purpose = Purpose::New;
                        make_room(shared, catalog, name.as_bytes(), needed_bytes, purpose).await?;
                    }
                }
            };
            reach.add(&shared.pool, catalog, leaf, false);
        }
        let mut reservation = reach.reservation();
        // The leaf of a removed record may be merged with a neighbour.
        reservation.changed += u64::from(names.iter().any(|(_, id)| id.is_none()));
        shared.space.reserve_places(inside, reservation)?;
        let bytes_max = 256 + operation.encoded_bytes();
        // Log records are in the order of timestamps; a serializable commit may have its timestamp
        // already, but not its record.
        let timestamping = &shared.wal.timestamping[current(|worker| worker.number).unwrap_or(0)];
        if timestamping.is_held() {
            drop(timestamping.enter().await);
        }
        let begin = || {
            dropped.inspect(|tree| shared.note_dropped(*tree));
            let begun = shared.oracle.begin_commit();
            begun.inspect_err(|_| {
                dropped.inspect(|tree| shared.forget_dropped(*tree));
            })
        };
        let timestamp = current(|worker| {
            worker.append_commit(bytes_max, begin, |record| record.push(operation))
        })
        .unwrap_or_else(|| Err(Error::closed()))?;
        for (name, id) in names {
            let (mut outcome, mut stall_timeout) =
                (self.put_name(name, *id, timestamp).await, StallTimeout::default());
            while outcome.as_ref().is_err_and(|error| shared.waits_on(error, &mut stall_timeout)) {
                outcome = self.put_name(name, *id, timestamp).await;
            }
            if let Err(error) = outcome {
                // The log already has the change.
                shared.fail(error.clone());
                shared.oracle.fail(error.clone());
                return Err(error);
            }
        }
        shared.oracle.end_commit(timestamp);
        shared.oracle.wait_applied(timestamp).await?;
        Ok(timestamp)
    }

    /// Puts the record of a table's name into the catalog, or removes it if `tree` is `None`.
    pub(super) async fn put_name(
        &self,
        name: &str,
        tree: Option<u32>,
        timestamp: u64,
    ) -> Result<()> {
        let (catalog, shared) = (self.catalog()?, &self.shared);
        let change = Change { timestamp, undo: NoUndo };
        let Some(id) = tree else {
            let removed = run(shared, Remove::new(catalog, name.as_bytes(), change)).await?;
            if removed.sparse.is_some() {
                merge_sparse(shared, catalog, name.as_bytes()).await?;
            }
            return Ok(());
        };
        let record = id.to_le_bytes();
        loop {
            match run(shared, Put::new(catalog, name.as_bytes(), &record, false, change)).await? {
                PutOutcome::Done { .. } => return Ok(()),
                PutOutcome::Full { needed_bytes } => {
                    make_room(shared, catalog, name.as_bytes(), needed_bytes, Purpose::New).await?;
                }
            }
        }
    }

    /// Frees the pages of a dropped tree in a task, which begins when `when` is done.
    pub(super) fn reclaim(self: &Arc<Self>, tree: Tree, when: Option<JoinHandle<()>>) {
        // The task holds no handle of the store, so that dropping the last handle closes it at
        // once.
        let shared = self.shared.clone();
        shared.forest.note_dropping(tree.id, true);
        drop(spawn_to(&self.shared, 0, move || async move {
            if let Some(when) = when
                && when.await.is_err()
            {
                return;
            }
            // If this fails, the tree is found again when the store is opened.
            let _ = empty(&shared, tree).await;
        }));
    }

    /// Loads the root of a tree, which stays in memory from then on.
    pub(crate) fn open_tree(&self, id: u32) -> Result<Tree> {
        let shared = self.shared.clone();
        self.block_on(move || async move { open_tree(&shared, id).await })
    }

    pub(crate) fn make_tree(&self, id: u32) -> Result<Tree> {
        let shared = self.shared.clone();
        self.block_on(move || async move { make_tree(&shared, id).await })
    }
}

/// The number of records removed between two looks at the barrier.
const EMPTY_BATCH: usize = 256;

/// Removes all records of a dropped tree, and then its root. Ends early when the barrier is shut.
async fn empty(shared: &Arc<Shared>, tree: Tree) -> Result<()> {
    let (mut from, to) = (Bound::Unbounded, Bound::Unbounded);
    let mut batch = Batch::default();
    // Whether pages were removed since the first leaf was last looked at.
    let mut fewer = false;
    {
        // From here on, commits that may prepare or merge leaves of the tree have ended, and later
        // ones see that it was dropped.
        let _alone = shared.checkpointing.alone.enter().await;
        shared.close_barrier().await?;
        shared.checkpointing.barrier.open();
    }
    loop {
        let _inside = shared.checkpointing.barrier.enter().await?;
        run(shared, Scan::new(tree, Direction::Forward, &from, &to, &mut batch)).await?;
        if batch.len() == 0 {
            if merge_levels(shared, tree, &from).await? {
                fewer = true;
                continue;
            }
            // An empty leaf stays while its neighbour is full, since a merged page would have a
            // shorter common prefix. It can be merged once the neighbour is empty too.
            match (batch.next.take(), &from) {
                (Some(next), _) => from = next,
                (None, Bound::Unbounded) => {
                    return run(shared, DropRoot { tree, descent: Descent::default() }).await;
                }
                (None, _) if !std::mem::take(&mut fewer) => {
                    let what = format!("tree {} has empty pages that cannot be merged", tree.id);
                    return Err(Error::new(ErrorKind::Corrupt, what));
                }
                (None, _) => from = Bound::Unbounded,
            }
            continue;
        }
        fewer = true;
        let change = Change { timestamp: shared.oracle.applied(), undo: NoUndo };
        for index in 0..batch.len().min(EMPTY_BATCH) {
            let key = batch.entry(index).0.to_vec();
            let removed = run(shared, Remove::new(tree, &key, change)).await?;
            if !removed.found {
                // No other task removes records: the tree does not lead to the leaf that has the
                // key.
                return Err(astray());
            }
            if removed.sparse.is_some() {
                merge_sparse(shared, tree, &key).await?;
            }
        }
    }
}

/// Merges, on each level, the page that covers the beginning of a range with a neighbour, where
/// possible; returns whether any page was merged.
async fn merge_levels(shared: &Shared, tree: Tree, from: &Bound<Vec<u8>>) -> Result<bool> {
    /// A limit above the number of levels of any tree.
    const LEVELS: u8 = 32;
    let key = match from {
        Bound::Unbounded => Vec::new(),
        Bound::Included(key) => key.clone(),
        Bound::Excluded(key) => [key, &[0][..]].concat(),
    };
    let mut merged = false;
    for level in 0..LEVELS {
        merged |= run(shared, Merge::new(tree, &key, level)).await? != Merged::Nothing;
    }
    Ok(merged)
}

/// Frees the root of an empty tree, and its frame. Operations with a handle of the tree notice when
/// they reach it.
struct DropRoot {
    tree: Tree,
    descent: Descent,
}

impl Step for DropRoot {
    type Output = ();

    fn step(&mut self, context: Context<'_>) -> Result<(), Need> {
        let Some(worker) = context.worker else { return Err(Need::Worker) };
        let (shared, root) = (context.shared, self.tree.root);
        let page = shared.pool.frames.try_exclusive(root).map_err(|blocked| match blocked {
            Blocked::InFlight => Need::Io(root),
            Blocked::Contended => Need::Retry,
        })?;
        let node = Node::new(page.bytes());
        if !node.is_leaf() || node.count() > 0 {
            // Pages below the root would be lost.
            return Err(Need::Sound);
        }
        // The image under way lists the tree, so it needs the root's old content.
        context.begin_change(&page)?;
        if shared.forget_root(self.tree) {
            give_root(shared, self.tree, page);
            worker.give_frame(root);
        }
        shared.forest.note_dropping(self.tree.id, false);
        Ok(())
    }

    fn descent(&mut self) -> &mut Descent {
        &mut self.descent
    }
}

/// Frees the root of a tree that was just made and that nothing refers to.
fn drop_root(shared: &Shared, tree: Tree) {
    shared.forest.roots().remove(&tree.id);
    give_root(shared, tree, latch_free(shared, tree.root));
    give_scratch(tree.root);
}

/// Frees the page of a tree's root, and the frame, which the caller has latched.
fn give_root(shared: &Shared, tree: Tree, page: ExclusiveFrame<'_>) {
    let place = shared.pool.frames.page_id(tree.root);
    tree.leave(&shared.pool);
    shared.pool.release_frame(page);
    shared.space.free(page_of(place), 1);
}

/// Returns `NoMemory` if another root in memory would leave too few frames to work with.
fn check_room_for_root(shared: &Shared) -> Result<()> {
    let (frames, workers) = (shared.pool.active() as usize, shared.worker_handles.len());
    let most = tables_open_max(frames, workers);
    let roots = shared.forest.roots();
    let is_open = |root: &&Root| matches!(root, Root::Open(_));
    if roots.len() < most || roots.values().filter(is_open).count() < most {
        return Ok(());
    }
    Err(Error::with_hint(
        ErrorKind::NoMemory,
        format!(
            "{most} tables are open, the limit with {frames} pages of memory and {workers} workers: each open table pins one frame"
        ),
        "give the store more memory; a table that was opened has its frame until the store is closed",
    ))
}

/// Returns the number of tables that can be open at the same time, the catalog among them. The
/// remaining frames suffice for each worker's path down a tree.
fn tables_open_max(frames: usize, workers: usize) -> usize {
    frames - (32 * workers).min(frames / 2)
}

/// Makes an empty tree, on a worker.
pub(super) async fn make_tree(shared: &Arc<Shared>, id: u32) -> Result<Tree> {
    check_room_for_root(shared)?;
    let frame = scratch_frame().await?;
    let page_id = match shared.space.allocate(1, Purpose::New) {
        Ok(page_id) => page_id,
        Err(error) => {
            give_scratch(frame);
            return Err(error);
        }
    };
    let frames = &shared.pool.frames;
    let mut page = latch_free(shared, frame);
    NodeMut::new(page.bytes_mut()).init(NodeInit {
        level: 0,
        tree_id: id,
        page_id,
        lower: &[],
        upper: None,
    });
    frames.set_page_id(frame, page_id);
    frames.set_dirty(frame, true);
    frames.set_epoch(frame, shared.checkpointing.epochs.epoch().number);
    frames.set_state(frame, state::PINNED);
    let tree = Tree { id, root: frame };
    tree.settle(&shared.pool);
    drop(page);
    shared.forest.roots().insert(id, Root::Open(frame));
    Ok(tree)
}

/// Loads the root of a tree, which stays in memory from then on; on a worker.
pub(super) async fn open_tree(shared: &Arc<Shared>, id: u32) -> Result<Tree> {
    let _alone = shared.forest.opening.enter().await;
    let root = shared.forest.roots().get(&id).copied();
    let root_place = match root {
        Some(Root::Open(root)) => return Ok(Tree { id, root }),
        Some(Root::Closed(place)) => place,
        None => {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!("the checkpoint has no root of tree {id}"),
            ));
        }
    };
    let page_id = page_of(root_place);
    if page_id >= shared.space.capacity() {
        return Err(Error::new(
            ErrorKind::Corrupt,
            format!("a tree's root is at page {page_id}, past the store's end"),
        ));
    }
    check_room_for_root(shared)?;
    let frame = scratch_frame().await?;
    let frames = &shared.pool.frames;
    let page = latch_free(shared, frame);
    frames.set_page_id(frame, root_place);
    let buffer = page.begin_read();
    let request = Request::read(shared.offset_bytes(root_place), buffer.len() as u32, buffer, 0);
    let completion = Transfer::submit(request).done().await?;
    let Some(buffer) = completion.buffer else {
        return Err(Error::new(ErrorKind::Io, "a read came back without its memory"));
    };
    let page = frames.end_read(buffer);
    let node = Node::new(page.bytes());
    let fault = match completion.result {
        Err(error) => Some(Error::io(error, format!("reading page {page_id}"))),
        Ok(()) => verify(page.as_slice(), root_place).or_else(|| {
            let is_root = node.tree_id() == id && node.fault().is_none();
            let what = || format!("page {page_id} is not the root of tree {id}");
            (!is_root).then(|| Error::new(ErrorKind::Corrupt, what()))
        }),
    };
    frames.set_state(frame, if fault.is_none() { state::PINNED } else { state::SCRATCH });
    frames.set_dirty(frame, false);
    frames.set_epoch(frame, shared.checkpointing.epochs.epoch().number);
    let tree = Tree { id, root: frame };
    if fault.is_none() {
        tree.settle(&shared.pool);
        shared.forest.roots().insert(id, Root::Open(frame));
    }
    shared.pool.end_read(page);
    match fault {
        None => Ok(tree),
        Some(error) => {
            give_scratch(frame);
            Err(error)
        }
    }
}
