//! The catalog: a tree whose records map table names to the ids of the tables' trees.

use std::sync::{Arc, MutexGuard};

use qpair_format::catalog::decode;
use qpair_format::expiry::INDEX_TABLE;
use qpair_format::log::Operation;
use qpair_format::values::Compression;
use qpair_format::{Error, ErrorKind, Result};

use super::dropped::empty;
use super::roots::{drop_root, make_tree, open_tree};
use super::{Store, StoreInner, Table, TableOptions};
use crate::canary::Canary;
use crate::checkpoint::SpaceRetry;
use crate::pool::StallTimeout;
use crate::space::{BarrierGuard, Purpose};
use crate::task::{JoinHandle, Worker, current, refuse_on_worker, run, spawn_to};
use crate::tree::{
    Change, Lack, NoUndo, Prepare, Put, PutOutcome, Remove, Tree, make_room, merge_sparse,
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
    /// (fewer with pages of 512 bytes), and on a worker if the call would have to
    /// make the table or to wait; `ReadOnly` if the table would have to be made in a store that
    /// refuses changes; and errors of the device.
    pub fn table(&self, name: &str) -> Result<Table> {
        match self.existing_table(name)? {
            Some(table) => Ok(table),
            None => self.make_table(name, &TableOptions::default()),
        }
    }

    /// Opens a table if there is one of this name.
    ///
    /// # Errors
    /// `Invalid` for an empty name or one over 128 bytes (fewer with pages of 512
    /// bytes), and on a worker if the call would have to wait; errors of the device.
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
        self.open_table(name)
    }

    /// Opens a table that was not opened before, if there is one of this name.
    fn open_table(&self, name: &str) -> Result<Option<Table>> {
        let Some(tree) = self.inner.open_named(name)? else { return Ok(None) };
        Ok(Some(self.add_table(name, tree)))
    }

    /// Refuses a name that no table can have.
    pub(super) fn check_table_name(&self, name: &str) -> Result<()> {
        // The name is a key of the catalog.
        let longest = TABLE_NAME_LEN_MAX.min(self.inner.shared.whole_key_len_max);
        if name == INDEX_TABLE {
            let what = "the name \"\\0expiry\" is that of the index of expiry times";
            return Err(Error::with_hint(ErrorKind::Invalid, what, "choose another name"));
        }
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
        let tables = self.inner.tables.lock();
        let (_, tree) = tables.iter().find(|(of, _)| of == name)?;
        let tree = tree.coded(self.inner.shared.page_bytes);
        self.inner.shared.check_table(tree).ok().map(|()| Table::new(self.inner.clone(), tree))
    }

    fn add_table(&self, name: &str, tree: Tree) -> Table {
        self.inner.tx.names.add(tree.id, name);
        let mut tables = self.inner.tables.lock();
        tables.push((name.to_owned(), tree));
        Table::new(self.inner.clone(), tree.coded(self.inner.shared.page_bytes))
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
        let is_shown =
            |name: &Result<String>| name.as_ref().map_or(true, |name| name != INDEX_TABLE);
        catalog
            .range(..)?
            .map(|entry| Ok(String::from_utf8_lossy(&entry?.0).into_owned()))
            .filter(is_shown)
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
            let mut tables = self.inner.tables.lock();
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

    pub(super) fn make_table(&self, name: &str, options: &TableOptions) -> Result<Table> {
        refuse_on_worker()?;
        let _alone = self.inner.begin_changing_tables()?;
        if let Some(table) = self.opened_table(name) {
            return Ok(table);
        }
        let codec = options.codec();
        if codec.compression() != Compression::None {
            self.inner.incarnation.note_compressed()?;
        }
        let id = self.inner.shared.forest.new_tree_id(codec);
        let Some(ttl_ms) = options.ttl_ms() else {
            return Ok(self.add_table(name, self.inner.create(name, id)?));
        };
        self.inner.begin_expiry()?;
        let tree = self.inner.defined(id, ttl_ms, || self.inner.create(name, id))?;
        Ok(self.add_table(name, tree))
    }
}

pub(super) fn no_table(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no table {name}"))
}

impl StoreInner {
    /// Opens the tree of this name, if there is one. The caller keeps other threads from changing
    /// tables.
    pub(super) fn open_named(self: &Arc<Self>, name: &str) -> Result<Option<Tree>> {
        let catalog = Table::new(self.clone(), self.catalog()?);
        let Some(record) = catalog.get(name.as_bytes())? else { return Ok(None) };
        self.open_tree(decode(&record)?).map(Some)
    }

    /// Makes an empty tree and gives it a name in the catalog, durably. The caller keeps other
    /// threads from changing tables.
    pub(super) fn create(self: &Arc<Self>, name: &str, id: u32) -> Result<Tree> {
        let (inner, key) = (self.clone(), name.to_owned());
        self.block_on(move || async move {
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
        })
    }

    /// Waits until no other thread makes, renames, drops or first opens a table. On a worker it
    /// fails instead of waiting, since the other thread may be waiting for that worker.
    pub(super) fn begin_changing_tables(&self) -> Result<MutexGuard<'_, ()>> {
        match self.changing_tables.try_lock() {
            Some(alone) => Ok(alone),
            None => {
                refuse_on_worker()?;
                Ok(self.changing_tables.lock())
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
