//! Restore to a point in time: the parts that lead to the point are merged, and the records are
//! loaded sorted into a new store.
//!
//! With a folder for what was received, a restore that was interrupted receives only what is
//! missing.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use qpair_engine::{CatalogChange, Compression, Error, ErrorKind, Result, Store, TableOptions};
use qpair_format::expiry::{HORIZON_KEY, INDEX_TABLE, decode_definition, decode_ms};
use qpair_format::group::fault;
use qpair_format::page::{PAGE_SIZE_MIN, TAG_BYTES, whole_key_len_max};

use crate::change::{Change, Merge, read_piece};
use crate::journal::read_existing;
use crate::manifest::{Manifest, Part, Piece};
use crate::objects::{Costs, Counted, Folder, Object, Objects};
use crate::plan::{Point, parts_of, points};

/// The point that a store is restored to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The newest point.
    Newest,
    /// The newest point that is not after this time, in milliseconds since 1970.
    Time(u64),
    /// This point.
    Point(Point),
}

/// A backup that can be restored.
pub struct Backup {
    objects: Arc<Counted>,
    manifest: Manifest,
}

impl Backup {
    /// Reads the list of what a backup has.
    ///
    /// # Errors
    /// `NotFound` if there is no backup; `Corrupt`; `Version`; errors of the place.
    pub fn open(objects: Arc<dyn Objects>) -> Result<Self> {
        let objects = Arc::new(Counted::new(objects));
        let (manifest, _) = read_existing(&*objects)?;
        Ok(Self { objects, manifest })
    }

    /// Returns the points that the store can be restored to, the oldest first.
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        points(&self.manifest)
    }

    /// The page size of the store that was backed up, in bytes.
    #[must_use]
    pub fn page_size(&self) -> u64 {
        self.manifest.page_size
    }

    /// Requests and bytes so far.
    #[must_use]
    pub fn costs(&self) -> Costs {
        self.objects.costs()
    }

    /// Prepares a restore. `received` is a folder for what is received, which outlives an
    /// interrupted restore.
    ///
    /// # Errors
    /// `NotFound` if the backup has no such point.
    pub fn restore(&self, at: At, received: Option<PathBuf>) -> Result<Restore> {
        let points = self.points();
        let point = match at {
            At::Newest => points.last().copied(),
            At::Time(ms) => points.iter().rfind(|point| point.time_ms <= ms).copied(),
            At::Point(point) => Some(point),
        };
        let parts = point.and_then(|point| Some((point, parts_of(&self.manifest, &point)?)));
        let Some((point, parts)) = parts else {
            let hint = match points.first() {
                Some(_) => "qpair restore --list shows the points that there are",
                None => "its first full part is not complete: let the backup run",
            };
            let what = format!(
                "the backup at {} does not reach back to this time, or has no full part yet",
                self.objects.place()
            );
            return Err(Error::with_hint(ErrorKind::NotFound, what, hint));
        };
        let parts = parts.into_iter().cloned().collect();
        let received = received.map(Folder::new);
        let objects = Received { objects: self.objects.clone(), received };
        Ok(Restore { objects, point, parts, page_size: self.manifest.page_size })
    }
}

/// The objects of a backup, of which some were received already.
struct Received {
    objects: Arc<Counted>,
    received: Option<Folder>,
}

impl Received {
    /// Receives a piece, unless it was received.
    fn receive(&self, piece: &Piece) -> Result<()> {
        let Some(received) = &self.received else { return Ok(()) };
        if read_piece(received, &in_folder(piece)).is_ok() {
            return Ok(());
        }
        received.put(&name_in_folder(piece), &read_piece(&*self.objects, piece)?)
    }
}

/// Returns the name of a piece that was received: several may be of one object.
fn name_in_folder(piece: &Piece) -> String {
    format!("{}@{}", piece.object, piece.from_end)
}

/// Returns the piece as it is in the folder: an object of its own.
fn in_folder(piece: &Piece) -> Piece {
    Piece { object: name_in_folder(piece), from_end: piece.bytes, ..piece.clone() }
}

/// Reads pieces of the folder, whose names the pieces of the parts have.
impl Objects for Received {
    fn place(&self) -> String {
        self.objects.place()
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.objects.put(name, bytes)
    }

    fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        self.objects.put_if_absent(name, bytes)
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        match &self.received {
            Some(received) => received.get(name),
            None => self.objects.get(name),
        }
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Object>> {
        self.objects.list(prefix, after)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.objects.delete(name)
    }
}

/// A record that is restored: key and value.
type Loaded = Result<(Vec<u8>, Vec<u8>)>;

/// Takes a table: its number, its name and its records.
type Load<'a> = dyn FnMut(u32, &str, &mut dyn Iterator<Item = Loaded>) -> Result<()> + 'a;

/// A restore of one point.
pub struct Restore {
    objects: Received,
    point: Point,
    parts: Vec<Part>,
    /// The page size of the store that was backed up.
    page_size: u64,
}

/// The result of [`Restore::fill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Filled {
    /// The number of tables.
    pub tables: u64,
    /// The number of records.
    pub records: u64,
}

impl Restore {
    /// The point that the restore leads to.
    #[must_use]
    pub fn point(&self) -> Point {
        self.point
    }

    /// The bytes of the parts that are read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// Fills a new store with the tables of the point. `progress` gets the bytes received and of
    /// all parts, then the changes loaded and in all parts, each from 0 on; it may break the
    /// restore off.
    ///
    /// # Errors
    /// `Interrupted` if `progress` broke it off; `Corrupt` if an object is damaged; `NotFound` if
    /// one is missing; `KeyTooLong` if a key does not fit the pages of the store; errors of the
    /// place and the store. The store then has a part of the records.
    pub fn fill(
        &self,
        store: &Store,
        progress: &dyn Fn(u64, u64) -> ControlFlow<()>,
    ) -> Result<Filled> {
        let mut expiry = Expiry::default();
        self.read(progress, &mut |tree, name, records| {
            if name == INDEX_TABLE {
                // The loads of the tables make its entries anew.
                return expiry.note(records);
            }
            let options = TableOptions::default().compression(Compression::of_tree(tree));
            let ttl = expiry.ttls.get(&tree);
            let options = ttl.map_or(options, |ttl| options.ttl(*ttl));
            let table = store.table_of_stored(name, &options)?;
            if ttl.is_some() {
                store.raise_horizon(expiry.horizon_ms)?;
            }
            let page_size = self.page_size;
            let is_group = |record: &(Vec<u8>, Vec<u8>)| {
                may_be_group(page_size as usize, store.whole_key_len_max(), tree, record)
            };
            table.bulk_load(records.map(|record| match record {
                Ok(record) if is_group(&record) => Err(of_other_pages(page_size)),
                record => record,
            }))?;
            Ok(())
        })
    }

    /// Reads the tables of the point, each by its number, its name and sorted records, whose values
    /// are as the table keeps them. The index of expiry times comes before tables with records that
    /// expire.
    ///
    /// # Errors
    /// As [`Restore::fill`].
    #[doc(hidden)]
    pub fn read(
        &self,
        progress: &dyn Fn(u64, u64) -> ControlFlow<()>,
        load: &mut Load<'_>,
    ) -> Result<Filled> {
        let tell = |done, all| match progress(done, all) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => {
                Err(Error::new(ErrorKind::Interrupted, "the restore was interrupted"))
            }
        };
        let (mut done, all) = (0, self.bytes());
        if self.objects.received.is_some() {
            for piece in self.parts.iter().flat_map(|part| &part.pieces) {
                tell(done, all)?;
                self.objects.receive(piece)?;
                done += piece.bytes;
            }
        }
        let mut parts = self.parts.clone();
        if self.objects.received.is_some() {
            let pieces = parts.iter_mut().flat_map(|part| &mut part.pieces);
            pieces.for_each(|piece| *piece = in_folder(piece));
        }
        let mut merge = Merge::new(&parts, true);
        let mut names = BTreeMap::new();
        let all = parts.iter().map(|part| part.changes).sum();
        let mut done = 0;
        let objects = &self.objects;
        let mut changes = std::iter::from_fn(move || merge.next(objects).transpose()).peekable();
        while let Some(change) = catalog_change(&mut changes)? {
            match change {
                CatalogChange::Create(tree, name) | CatalogChange::Rename(tree, name) => {
                    names.insert(tree, name);
                }
                CatalogChange::Drop(tree) => drop(names.remove(&tree)),
            }
        }
        for (tree, name) in &names {
            let of_table = |change: &Result<Change>| match change {
                Ok(Change::Record { tree: of, .. }) => of == tree,
                Ok(Change::Catalog(_)) => false,
                Err(_) => true,
            };
            let changes = &mut changes;
            let mut records = std::iter::from_fn(|| {
                let change = changes.next_if(of_table)?;
                done += 1;
                if done % 1024 == 0
                    && let Err(error) = tell(done, all)
                {
                    return Some(Err(error));
                }
                match change {
                    Ok(Change::Record { key, value: Some(value), .. }) => Some(Ok((key, value))),
                    Ok(_) => Some(Err(Error::new(ErrorKind::Corrupt, "a part has a removal"))),
                    Err(error) => Some(Err(error)),
                }
            });
            load(*tree, name, &mut records)?;
        }
        if let Some(left) = changes.next() {
            left?;
            return Err(Error::new(
                ErrorKind::Corrupt,
                "the backup has records of a table that it does not name",
            ));
        }
        Ok(Filled { tables: names.len() as u64, records: done })
    }
}

/// The definitions and the horizon in an index of expiry times.
#[derive(Default)]
struct Expiry {
    ttls: BTreeMap<u32, Duration>,
    horizon_ms: u64,
}

impl Expiry {
    fn note(&mut self, records: &mut dyn Iterator<Item = Loaded>) -> Result<()> {
        for record in records {
            let (key, value) = record?;
            if key == HORIZON_KEY {
                self.horizon_ms = decode_ms(&value).unwrap_or(0);
            } else if let Some((tree, ttl_ms)) = decode_definition(&key, &value) {
                self.ttls.insert(tree, Duration::from_millis(ttl_ms));
            }
        }
        Ok(())
    }
}

/// Takes the next change if it is one of the catalog.
fn catalog_change(
    changes: &mut Peekable<impl Iterator<Item = Result<Change>>>,
) -> Result<Option<CatalogChange>> {
    match changes.next_if(|change| !matches!(change, Ok(Change::Record { .. }))) {
        Some(Ok(Change::Catalog(change))) => Ok(Some(change)),
        Some(Err(error)) => Err(error),
        _ => Ok(None),
    }
}

/// Whether a record may be a group of records with long keys that stores of this `whole_len_max` do
/// not know as one: their pages are not those of the store that was backed up. See
/// docs/design/long-keys.md.
fn may_be_group(
    page_size: usize,
    whole_len_max: usize,
    tree: u32,
    record: &(Vec<u8>, Vec<u8>),
) -> bool {
    // The backup does not say whether the store was encrypted.
    let page_size = page_size.max(PAGE_SIZE_MIN);
    let [plain, encrypted] = [page_size, page_size - TAG_BYTES].map(whole_key_len_max);
    let (key, stored) = record;
    let is_group_of = |whole: usize| {
        if whole == whole_len_max || key.len() != whole + 1 {
            return false;
        }
        let mut value = stored.clone();
        let decoded = Compression::of_tree(tree).decode(true, &mut value, 0);
        decoded.is_err() || fault(key, &value).is_none()
    };
    is_group_of(plain) || plain != encrypted && is_group_of(encrypted)
}

fn of_other_pages(page_size: u64) -> Error {
    Error::with_hint(
        ErrorKind::Unsupported,
        format!(
            "the backup has keys that are too long for its pages of {page_size} bytes; they can be restored only into pages of this size"
        ),
        format!(
            "restore it with --page-size {page_size}, encrypted if the store was, and copy the store"
        ),
    )
}
