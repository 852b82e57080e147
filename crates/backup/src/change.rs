//! Changes, and where they come from: parts, a merge of parts, a scan of the store.

use std::collections::VecDeque;
use std::ops::Bound;

use qpair_engine::{CatalogChange, ChangeFeed, Changes, Error, ErrorKind, Result, Store};
use qpair_format::log::{Operation, Record};

use crate::journal::{checksum, missing};
use crate::manifest::{Part, Piece};
use crate::objects::Objects;

/// The number of bytes that a scan reads at once.
const SCAN_BYTES: usize = 1 << 20;

/// A change. In a part, those of the catalog come first, and the others in the order of their
/// tables' numbers and keys, each key once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Catalog(CatalogChange),
    Record { tree: u32, key: Vec<u8>, value: Option<Vec<u8>> },
}

impl Change {
    pub(crate) fn operation(&self) -> Operation<'_> {
        match self {
            Self::Catalog(CatalogChange::Create(tree, name)) => {
                Operation::CreateTable { tree: *tree, name }
            }
            Self::Catalog(CatalogChange::Rename(tree, name)) => {
                Operation::RenameTable { tree: *tree, name }
            }
            Self::Catalog(CatalogChange::Drop(tree)) => Operation::DropTable { tree: *tree },
            Self::Record { tree, key, value: Some(value) } => {
                Operation::Put { tree: *tree, key, value }
            }
            Self::Record { tree, key, value: None } => Operation::Delete { tree: *tree, key },
        }
    }

    fn of(operation: Operation<'_>) -> Option<Self> {
        let record = |tree, key: &[u8], value: Option<&[u8]>| Self::Record {
            tree,
            key: key.to_vec(),
            value: value.map(<[u8]>::to_vec),
        };
        Some(match operation {
            Operation::Put { tree, key, value } => record(tree, key, Some(value)),
            Operation::Delete { tree, key } => record(tree, key, None),
            Operation::CreateTable { tree, name } => {
                Self::Catalog(CatalogChange::Create(tree, name.to_owned()))
            }
            Operation::RenameTable { tree, name } => {
                Self::Catalog(CatalogChange::Rename(tree, name.to_owned()))
            }
            Operation::DropTable { tree } => Self::Catalog(CatalogChange::Drop(tree)),
            // A descriptor names places of another store.
            Operation::PutLarge { .. } => return None,
        })
    }
}

/// Turns the changes of a feed into those of a part.
pub(crate) fn list(changes: Changes) -> VecDeque<Change> {
    let catalog = changes.catalog.into_iter().map(Change::Catalog);
    let records = changes.records.into_iter();
    let records = records.map(|((tree, key), value)| Change::Record { tree, key, value });
    catalog.chain(records).collect()
}

/// Reads a piece and checks it.
pub(crate) fn read_piece(objects: &dyn Objects, piece: &Piece) -> Result<Vec<u8>> {
    let mut bytes = objects.get(&piece.object)?.ok_or_else(|| missing(&piece.object))?;
    let begin = (bytes.len() as u64).checked_sub(piece.from_end);
    let part = begin.and_then(|begin| {
        bytes.drain(..begin as usize);
        bytes.truncate(usize::try_from(piece.bytes).ok()?);
        Some(bytes)
    });
    part.filter(|part| part.len() as u64 == piece.bytes && checksum(part) == piece.checksum)
        .ok_or_else(|| damaged(&piece.object, "its checksum is wrong"))
}

fn damaged(object: &str, why: &str) -> Error {
    Error::with_hint(
        ErrorKind::Corrupt,
        format!("object {object} of the backup is damaged: {why}"),
        "restore to an earlier point; qpair restore --verify lists all damage",
    )
}

/// The changes of a part, read piece by piece.
pub(crate) struct Reader {
    pieces: VecDeque<Piece>,
    queue: VecDeque<Change>,
}

impl Reader {
    pub(crate) fn new(part: &Part) -> Self {
        Self { pieces: part.pieces.iter().cloned().collect(), queue: VecDeque::new() }
    }

    pub(crate) fn next(&mut self, objects: &dyn Objects) -> Result<Option<Change>> {
        while self.queue.is_empty() {
            let Some(piece) = self.pieces.front() else { return Ok(None) };
            let bytes = read_piece(objects, piece)?;
            let record = Record::decode(&bytes).map_err(|why| damaged(&piece.object, why))?;
            self.queue = record.operations().filter_map(Change::of).collect();
            if self.queue.len() != record.operation_count as usize {
                return Err(damaged(&piece.object, "it refers to pages of a store"));
            }
            self.pieces.pop_front();
        }
        Ok(self.queue.pop_front())
    }
}

/// Several parts as one.
///
/// A record counts if no newer part has its key, or drops its table.
pub(crate) struct Merge {
    /// The parts from the oldest on, each with its next record.
    readers: Vec<(Reader, Option<Change>)>,
    /// The number of readers whose changes of the catalog are read.
    begun: usize,
    catalog: VecDeque<CatalogChange>,
    /// The tables that are dropped, each with the reader that drops it.
    dropped: Vec<(usize, u32)>,
    /// Whether removals are left out, since there is nothing older.
    is_whole: bool,
}

impl Merge {
    pub(crate) fn new<'a>(parts: impl IntoIterator<Item = &'a Part>, is_whole: bool) -> Self {
        let readers = parts.into_iter().map(|part| (Reader::new(part), None)).collect();
        Self { readers, begun: 0, catalog: VecDeque::new(), dropped: Vec::new(), is_whole }
    }

    pub(crate) fn next(&mut self, objects: &dyn Objects) -> Result<Option<Change>> {
        while let Some((reader, next)) = self.readers.get_mut(self.begun) {
            match reader.next(objects)? {
                Some(Change::Catalog(change)) => {
                    if let CatalogChange::Drop(tree) = change {
                        self.dropped.push((self.begun, tree));
                    }
                    self.catalog.push_back(change);
                }
                record => {
                    *next = record;
                    self.begun += 1;
                }
            }
        }
        if let Some(change) = self.catalog.pop_front() {
            return Ok(Some(Change::Catalog(change)));
        }
        loop {
            let heads = self.readers.iter().enumerate();
            let heads = heads.filter_map(|(at, (_, head))| Some((place(head.as_ref()?)?, at)));
            // Of equal keys the newest part's.
            let Some(((tree, key), newest)) =
                heads.min_by(|(a, at), (b, other)| a.cmp(b).then(other.cmp(at)))
            else {
                return Ok(None);
            };
            let key = key.to_vec();
            // The newest comes last, and with it the step is complete: an error before it changes
            // only heads that do not count.
            for at in 0..=newest {
                let (reader, head) = &mut self.readers[at];
                if at < newest && head.as_ref().and_then(place) == Some((tree, &key)) {
                    *head = reader.next(objects)?;
                }
            }
            let (reader, head) = &mut self.readers[newest];
            let next = reader.next(objects)?;
            let change = std::mem::replace(head, next);
            let is_dropped = self.dropped.iter().any(|(at, of)| *at > newest && *of == tree);
            let is_removal = matches!(change, Some(Change::Record { value: None, .. }));
            if !(is_dropped || is_removal && self.is_whole) {
                return Ok(change);
            }
        }
    }
}

/// Returns the table and the key of a record.
fn place(change: &Change) -> Option<(u32, &[u8])> {
    match change {
        Change::Record { tree, key, .. } => Some((*tree, key)),
        Change::Catalog(_) => None,
    }
}

/// All records of a store, table by table, each as it is when it is read.
pub(crate) struct Scan {
    tables: VecDeque<u32>,
    /// The last key that was read of the first table.
    after: Option<Vec<u8>>,
    queue: VecDeque<Change>,
}

impl Scan {
    /// Begins a scan of these tables, in the order of their numbers.
    pub(crate) fn new(mut tables: Vec<(u32, String)>) -> Self {
        tables.sort_unstable();
        Self {
            tables: tables.iter().map(|(tree, _)| *tree).collect(),
            after: None,
            queue: tables
                .into_iter()
                .map(|(tree, name)| Change::Catalog(CatalogChange::Create(tree, name)))
                .collect(),
        }
    }

    pub(crate) fn next(&mut self, store: &Store, feed: &ChangeFeed) -> Result<Option<Change>> {
        while self.queue.is_empty() {
            let Some(tree) = self.tables.front().copied() else { return Ok(None) };
            let read = match feed.table(store, tree) {
                Ok(Some(table)) => self.read(tree, &table),
                Ok(None) => Ok(true),
                Err(error) => Err(error),
            };
            match read {
                Ok(false) => {}
                // A table that was dropped meanwhile is not needed: the changes have the drop.
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                Ok(true) | Err(_) => {
                    self.tables.pop_front();
                    self.after = None;
                }
            }
        }
        Ok(self.queue.pop_front())
    }

    /// Reads some records of a table; returns whether they were the last ones.
    fn read(&mut self, tree: u32, table: &qpair_engine::Table) -> Result<bool> {
        let from = self.after.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
        let (mut bytes, mut read) = (0, Vec::new());
        for record in table.range((from, Bound::Unbounded))? {
            let (key, value) = record?;
            bytes += key.len() + value.len();
            read.push((key, value));
            if bytes > SCAN_BYTES {
                break;
            }
        }
        if let Some((last, _)) = read.last() {
            self.after = Some(last.clone());
        }
        let records = read.into_iter();
        self.queue.extend(records.map(|(key, value)| Change::Record {
            tree,
            key,
            value: Some(value),
        }));
        Ok(bytes <= SCAN_BYTES)
    }
}

impl Change {
    /// Returns what is wrong with the bytes of a piece.
    pub(crate) fn fault(piece: &[u8]) -> Option<&'static str> {
        let record = match Record::decode(piece) {
            Ok(record) => record,
            Err(why) => return Some(why),
        };
        let mut last: Option<(u32, &[u8])> = None;
        for operation in record.operations() {
            let place = match operation {
                Operation::Put { tree, key, .. } | Operation::Delete { tree, key } => (tree, key),
                Operation::PutLarge { .. } => return Some("it refers to pages of a store"),
                _ if last.is_some() => return Some("a change of the catalog comes late"),
                _ => continue,
            };
            if last.is_some_and(|last| last >= place) {
                return Some("its keys do not ascend");
            }
            last = Some(place);
        }
        None
    }
}
