//! The changes of a store in the order of its commits, for a backup that follows it.
//!
//! - [`ChangeFeed::begin`] gives the tables at one point, and [`ChangeFeed::next`] the changes from
//!   one point to the next, of which each key has its last one. A point is a snapshot's timestamp.
//! - The changes up to a point are durable when they are given.
//! - Commits do not wait for the feed. If too much gathers it breaks, and has to begin anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use qpair_format::catalog::decode;
use qpair_format::log::{Operation, Record};
use qpair_format::{Error, ErrorKind, Result};

use super::{Snapshot, Store, Table};
use crate::log::{FeedBreak, u32_at};
use crate::shared::Shared;
use crate::task::{Worker, refuse_on_worker};

/// A change of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogChange {
    /// A table was made.
    Create(u32, String),
    /// A table was dropped, with all its records.
    Drop(u32),
    /// A table has another name.
    Rename(u32, String),
}

/// The changes from one point to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The timestamp of the last commit before them.
    pub from: u64,
    /// The timestamp of their last commit.
    pub to: u64,
    /// The changes of the catalog, in order. They come before those of the records.
    pub catalog: Vec<CatalogChange>,
    /// The values of the changed keys at the end, by table and key; `None` for a removed record.
    /// Tables that were dropped meanwhile have no entries.
    pub records: BTreeMap<(u32, Vec<u8>), Option<Vec<u8>>>,
}

/// The result of [`ChangeFeed::next`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing was committed.
    Nothing,
    /// The changes since the last call.
    Changes(Changes),
    /// Changes are missing. The feed must begin anew.
    Broken(FeedBreak),
}

/// The point at which a feed begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedBegin {
    /// The timestamp of the newest commit before the changes that the feed will give.
    pub timestamp: u64,
    /// The numbers and names of all tables at this point.
    pub tables: Vec<(u32, String)>,
}

/// The value of a key after the gathered changes.
enum After {
    Value(Vec<u8>),
    /// A large value, which is not read yet.
    Large,
    Nothing,
}

/// The changes of a store; see the module. A store has one at a time.
pub struct ChangeFeed {
    shared: Arc<Shared>,
    bytes_max: u64,
    /// The last point that was given.
    from: u64,
    /// The point up to which changes are gathered.
    to: u64,
    catalog: Vec<CatalogChange>,
    records: BTreeMap<(u32, Vec<u8>), After>,
}

impl std::fmt::Debug for ChangeFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangeFeed").field("from", &self.from).finish_non_exhaustive()
    }
}

impl Drop for ChangeFeed {
    fn drop(&mut self) {
        self.shared.wal.feed.disclaim();
    }
}

impl Store {
    /// Returns a feed of this store's changes, which has not begun. `bytes_max` limits the memory
    /// for records that the caller has not taken.
    ///
    /// # Errors
    /// `Busy` if the store has a feed; `ReadOnly`; `Unsupported` without a log.
    #[doc(hidden)]
    pub fn change_feed(&self, bytes_max: u64) -> Result<ChangeFeed> {
        let shared = &self.inner.shared;
        shared.lifecycle.check_writable()?;
        if !shared.wal.options.enabled {
            return Err(Error::with_hint(
                ErrorKind::Unsupported,
                "the store was opened without a log, so its changes cannot be followed",
                "open it with a log",
            ));
        }
        if !shared.wal.feed.claim() {
            return Err(Error::with_hint(
                ErrorKind::Busy,
                "the store is already followed by another backup",
                "end that one first",
            ));
        }
        Ok(ChangeFeed {
            shared: shared.clone(),
            bytes_max,
            from: 0,
            to: 0,
            catalog: Vec::new(),
            records: BTreeMap::new(),
        })
    }
}

impl ChangeFeed {
    /// Begins the feed, or begins it anew: changes that were not given are dropped.
    ///
    /// # Errors
    /// `Closed`; `Invalid` on a worker; errors of the device.
    pub fn begin(&mut self, store: &Store) -> Result<FeedBegin> {
        refuse_on_worker()?;
        let inner = &store.inner;
        // No table is made, renamed or dropped meanwhile, so the catalog is that of the point.
        let _alone = inner.begin_changing_tables()?;
        let feed = &self.shared.wal.feed;
        let last = self.shared.oracle.last_given(|| feed.begin(self.bytes_max));
        let shared = self.shared.clone();
        inner.block_on(move || async move { shared.oracle.wait_applied(last).await })?;
        let timestamp = Snapshot::take(inner)?.timestamp();
        self.wait_durable(store, timestamp)?;
        drop(feed.take(timestamp));
        (self.from, self.to) = (timestamp, timestamp);
        self.catalog.clear();
        self.records.clear();
        Ok(FeedBegin { timestamp, tables: tables(store)? })
    }

    /// Returns the numbers and names of all tables.
    ///
    /// # Errors
    /// As [`Store::table_names`].
    pub fn tables(store: &Store) -> Result<Vec<(u32, String)>> {
        let _alone = store.inner.begin_changing_tables()?;
        tables(store)
    }

    /// Returns the changes since the last call, or since the beginning.
    ///
    /// # Errors
    /// `Closed`; `Invalid` on a worker; errors of the device. The next call then gives the changes
    /// that this one has not given.
    pub fn next(&mut self, store: &Store) -> Result<Next> {
        refuse_on_worker()?;
        loop {
            let snapshot = Snapshot::take(&store.inner)?;
            // After the snapshot: a commit that broke the feed is in the snapshot only if it shows
            // here.
            if let Some(why) = self.shared.wal.feed.broken() {
                return Ok(Next::Broken(why));
            }
            if snapshot.timestamp() == self.from {
                return Ok(Next::Nothing);
            }
            self.wait_durable(store, snapshot.timestamp())?;
            self.gather(snapshot.timestamp())?;
            if self.read_large(store, &snapshot)? {
                break;
            }
            // A table was dropped after the snapshot, and its values are gone: a later point has
            // the drop.
        }
        let (from, to) = (self.from, self.to);
        self.from = to;
        let records =
            std::mem::take(&mut self.records).into_iter().map(|(at, after)| match after {
                After::Value(value) => (at, Some(value)),
                After::Large | After::Nothing => (at, None),
            });
        let records = records.collect();
        let catalog = std::mem::take(&mut self.catalog);
        Ok(Next::Changes(Changes { from, to, catalog, records }))
    }

    /// Returns the table with this number; `None` if it was dropped. The table stays open.
    ///
    /// # Errors
    /// As [`Store::existing_table`].
    pub fn table(&self, store: &Store, id: u32) -> Result<Option<Table>> {
        let inner = &store.inner;
        let _alone = inner.begin_changing_tables()?;
        match tables(store)?.iter().any(|(of, _)| *of == id) {
            true => Ok(Some(Table::new(inner.clone(), inner.open_tree(id)?))),
            false => Ok(None),
        }
    }

    /// The bytes of commits that were not taken.
    #[must_use]
    pub fn waiting_bytes(&self) -> u64 {
        self.shared.wal.feed.waiting_bytes()
    }

    /// Notes that all commits up to a timestamp were shipped, and how many requests and bytes were
    /// sent so far, for the metrics.
    pub fn note_shipped(&self, timestamp: u64, requests: u64, bytes: u64) {
        self.shared.wal.feed.note_shipped(timestamp, requests, bytes);
    }

    fn wait_durable(&self, store: &Store, timestamp: u64) -> Result<()> {
        store.inner.block_on(move || async move { Worker::wait_durable(timestamp).await })
    }

    /// Adds the changes up to a snapshot to those that are gathered.
    fn gather(&mut self, to: u64) -> Result<()> {
        let logs = self.shared.wal.feed.take(to);
        let mut records = Vec::new();
        for mut log in logs.iter().map(Vec::as_slice) {
            while !log.is_empty() {
                let (record, rest) = log.split_at(log.len().min(u32_at(log, 0) as usize));
                records.push(Record::decode(record).map_err(lacking)?);
                log = rest;
            }
        }
        // The parts of a commit stay in their order.
        records.sort_by_key(|record| record.timestamp);
        let last_parts = records.iter().filter(|record| !record.continues);
        let timestamps = last_parts.map(|record| record.timestamp);
        if !timestamps.eq(self.to + 1..to + 1) {
            return Err(lacking("a commit has no record"));
        }
        self.to = to;
        for operation in records.iter().flat_map(Record::operations) {
            let (tree, key, after) = match operation {
                Operation::Put { tree, key, value } => (tree, key, After::Value(value.to_vec())),
                Operation::PutLarge { tree, key, .. } => (tree, key, After::Large),
                Operation::Delete { tree, key } => (tree, key, After::Nothing),
                Operation::CreateTable { tree, name } => {
                    self.catalog.push(CatalogChange::Create(tree, name.to_owned()));
                    continue;
                }
                Operation::RenameTable { tree, name } => {
                    self.catalog.push(CatalogChange::Rename(tree, name.to_owned()));
                    continue;
                }
                Operation::DropTable { tree } => {
                    self.catalog.push(CatalogChange::Drop(tree));
                    self.records.retain(|(of, _), _| *of != tree);
                    continue;
                }
            };
            self.records.insert((tree, key.to_vec()), after);
        }
        Ok(())
    }

    /// Reads the large values among the gathered changes; returns `false` if the snapshot lacks
    /// some, because a table was dropped or the snapshot was given up.
    fn read_large(&mut self, store: &Store, snapshot: &Snapshot) -> Result<bool> {
        let mut table: Option<(u32, Table)> = None;
        let is_large = |after: &After| matches!(after, After::Large);
        let large: Vec<_> = self.records.iter().filter(|(_, after)| is_large(after)).collect();
        let large: Vec<_> = large.into_iter().map(|(at, _)| at.clone()).collect();
        for (tree, key) in large {
            if table.as_ref().is_none_or(|(of, _)| *of != tree) {
                let Some(opened) = self.table(store, tree)? else { return Ok(false) };
                table = Some((tree, opened));
            }
            let Some((_, table)) = &table else { continue };
            let after = match snapshot.get(table, &key) {
                Ok(Some(value)) => After::Value(value),
                Ok(None) => After::Nothing,
                // The table was dropped, or the values took too much memory.
                Err(error)
                    if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::SnapshotLost) =>
                {
                    return Ok(false);
                }
                // The next attempt has a newer snapshot, and so newer values.
                Err(error) => return Err(error),
            };
            self.records.insert((tree, key), after);
        }
        Ok(true)
    }
}

/// Reads the catalog. The caller keeps others from changing it.
fn tables(store: &Store) -> Result<Vec<(u32, String)>> {
    let catalog = Table::new(store.inner.clone(), store.inner.catalog()?);
    let mut tables = Vec::new();
    for record in catalog.range(..)? {
        let (name, id) = record?;
        tables.push((decode(&id)?, String::from_utf8_lossy(&name).into_owned()));
    }
    Ok(tables)
}

fn lacking(why: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the feed of the store's changes is damaged: {why}"))
}
