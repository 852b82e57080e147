//! Saves a tree's records into a table of the new store.

use std::sync::mpsc::sync_channel;

use qpair_format::large::{Descriptor, Extents, ListReader, part_of};
use qpair_format::page::{Node, words_of};
use qpair_format::{Error, ErrorKind, Result};

use super::candidates::{Candidates, StandIn, is_below};
use super::{KeyRange, RepairStep, RepairedTable, Salvage, interrupted};
use crate::offline::{Entry, Hole, PageReader, Part, entries, walk_leaves};

/// The number of bytes of records that are passed to the new store together.
const BATCH_BYTES: usize = 1 << 20;
/// The number of pages of a large value that are read at once.
const PARTS: usize = 64;
/// The maximum number of keys of lost large values that the report lists.
const KEYS_TOLD: usize = 100;

/// The ranges of keys that were not found where they belong.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    pub(super) lost: Vec<KeyRange>,
    pub(super) stale: Vec<KeyRange>,
}

impl Gaps {
    pub(super) fn is_empty(&self) -> bool {
        self.lost.is_empty() && self.stale.is_empty()
    }
}

/// Adds a range after the others, or extends the last one if the two are adjacent.
fn note(ranges: &mut Vec<KeyRange>, stand_in: &StandIn, why: &str) {
    if let Some(last) = ranges.last_mut()
        && last.to.as_ref() == Some(&stand_in.lower)
    {
        last.to.clone_from(&stand_in.upper);
        return;
    }
    let (from, to) = (stand_in.lower.clone(), stand_in.upper.clone());
    ranges.push(KeyRange { from, to, why: why.to_owned() });
}

/// Visits all records of a tree that can be found, in order. Stand-ins are used where the tree has
/// holes.
pub(super) fn each_entry(
    reader: &mut PageReader,
    candidates: &Candidates,
    tree: u32,
    root: Option<u64>,
    gaps: &mut Gaps,
    take: &mut dyn FnMut(&mut PageReader, Entry) -> Result<()>,
) -> Result<()> {
    walk_leaves(reader, tree, root, &mut |reader, part| match part {
        Part::Leaf(leaf) => entries(leaf).try_for_each(|entry| take(reader, entry)),
        Part::Hole(hole) => each_stand_in(reader, candidates, tree, &hole, gaps, take),
    })
}

fn each_stand_in(
    reader: &mut PageReader,
    candidates: &Candidates,
    tree: u32,
    hole: &Hole,
    gaps: &mut Gaps,
    take: &mut dyn FnMut(&mut PageReader, Entry) -> Result<()>,
) -> Result<()> {
    for stand_in in candidates.cover(tree, hole) {
        let Some((place, older)) = stand_in.page else {
            note(&mut gaps.lost, &stand_in, &hole.why);
            continue;
        };
        // The page was readable a moment ago.
        let Ok(page) = reader.read_page(place)? else {
            note(&mut gaps.lost, &stand_in, &hole.why);
            continue;
        };
        if older {
            note(&mut gaps.stale, &stand_in, &hole.why);
        }
        let words = words_of(&page);
        for entry in entries(Node::new(words.as_slice().into())) {
            if entry.key >= stand_in.lower && is_below(&entry.key, stand_in.upper.as_ref()) {
                take(reader, entry)?;
            }
        }
    }
    Ok(())
}

/// Reads the list of pages of a large value. Returns `None` if the list cannot be read.
fn extents_of(reader: &mut PageReader, descriptor: Descriptor) -> Result<Option<Extents>> {
    if let Some(run) = descriptor.run() {
        return Ok((run.end <= reader.capacity()).then_some(Extents::Run(run)));
    }
    let mut list = ListReader::new(descriptor, reader.capacity());
    while let Some(page_id) = list.next() {
        match reader.read_page(page_id)? {
            Ok(page) if list.take(&page) => {}
            _ => return Ok(None),
        }
    }
    Ok(list.finish())
}

/// Reads a large value. Returns `None` if it cannot be read in full.
pub(super) fn read_large(reader: &mut PageReader, encoded: &[u8]) -> Result<Option<Vec<u8>>> {
    let Ok(descriptor) = Descriptor::decode(encoded, reader.page_bytes()) else { return Ok(None) };
    let Some(extents) = extents_of(reader, descriptor)? else { return Ok(None) };
    let (mut value, mut part) = (Vec::new(), 0);
    let pages: Vec<u64> = extents.pages().collect();
    for pages in pages.chunks(PARTS) {
        for page in reader.read_pages(pages)? {
            match page.as_deref().ok().and_then(|page| part_of(page, descriptor, part)) {
                Some(bytes) => value.extend_from_slice(bytes),
                None => return Ok(None),
            }
            part += 1;
        }
    }
    Ok(Some(value))
}

/// Notes a record whose large value is lost.
pub(super) fn note_large(table: &mut RepairedTable, key: Vec<u8>) {
    table.large_values_lost += 1;
    if table.large_keys_lost.len() < KEYS_TOLD {
        table.large_keys_lost.push(key);
    }
}

type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// Receives the records for the new store.
struct Sink<'a> {
    send: &'a mut dyn FnMut(Result<Records>) -> Result<()>,
    batch: Records,
    bytes: usize,
    last: Option<Vec<u8>>,
}

impl Sink<'_> {
    fn push(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<()> {
        if self.last.as_ref().is_some_and(|last| *last >= key) {
            // Overlapping leaves would be a bug of this program. The first one counts.
            return Ok(());
        }
        self.last = Some(key.clone());
        self.bytes += key.len() + value.len() + 64;
        self.batch.push((key, value));
        if self.bytes >= BATCH_BYTES { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> Result<()> {
        self.bytes = 0;
        (self.send)(Ok(std::mem::take(&mut self.batch)))
    }
}

/// Returns an iterator over the records of all batches. The first error ends it.
fn one_by_one(
    batches: impl IntoIterator<Item = Result<Records>>,
) -> impl Iterator<Item = Result<(Vec<u8>, Vec<u8>)>> {
    batches.into_iter().flat_map(|batch| match batch {
        Ok(records) => records.into_iter().map(Ok).collect::<Vec<_>>(),
        Err(error) => vec![Err(error)],
    })
}

pub(super) fn save_table(
    salvage: &mut Salvage<'_>,
    tree: u32,
    root: Option<u64>,
    name: &str,
) -> Result<RepairedTable> {
    // Values are copied as they are stored.
    let (options, is_lost) = salvage.expiry.options(tree);
    if is_lost {
        let what = format!(
            "the time to live of table {name} is lost: records put from now on expire after 30 days"
        );
        salvage.report.remarks.push(what);
    }
    let table = salvage.target.table_of_stored(name, &options)?;
    let mut saved = RepairedTable { name: name.to_owned(), ..RepairedTable::default() };
    if qpair_engine::is_stepped_here() {
        // A thread that steps the new store's workers must not wait for another thread, so all
        // records are read before they are written.
        let mut batches = Vec::new();
        let read = read_table(salvage, tree, root, &mut saved, &mut |batch| {
            batches.push(batch);
            Ok(())
        });
        saved.records = table.bulk_load(one_by_one(batches))?;
        return read.map(|()| saved);
    }
    let (sender, receiver) = sync_channel(2);
    // Reading waits for one device and writing for the other, so two threads do both at once.
    std::thread::scope(|scope| {
        let loading = std::thread::Builder::new()
            .spawn_scoped(scope, move || table.bulk_load(one_by_one(receiver)))
            .map_err(|error| Error::thread(&error, "saving records"))?;
        let read = read_table(salvage, tree, root, &mut saved, &mut |batch| {
            // The receiver has ended with its own error, and reports it.
            sender
                .send(batch)
                .map_err(|_| Error::new(ErrorKind::Closed, "the new store takes no more records"))
        });
        drop(sender);
        let loaded = loading.join().unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Invalid, "saving records ended unexpectedly"))
        });
        // If loading failed, reading failed for that reason.
        saved.records = loaded?;
        read
    })?;
    Ok(saved)
}

fn read_table(
    salvage: &mut Salvage<'_>,
    tree: u32,
    root: Option<u64>,
    saved: &mut RepairedTable,
    send: &mut dyn FnMut(Result<Records>) -> Result<()>,
) -> Result<()> {
    let mut sink = Sink { send, batch: Vec::new(), bytes: 0, last: None };
    let (mut gaps, mut records) = (Gaps::default(), 0u64);
    let progress = salvage.progress;
    let (reader, candidates) = (&mut salvage.offline.reader, &salvage.candidates);
    let read = each_entry(reader, candidates, tree, root, &mut gaps, &mut |reader, entry| {
        records += 1;
        if records.is_multiple_of(4096) && progress(RepairStep::Save, records, 0).is_break() {
            return Err(interrupted());
        }
        if !entry.large {
            return sink.push(entry.key, entry.value);
        }
        match read_large(reader, &entry.value)? {
            Some(value) => sink.push(entry.key, value),
            None => {
                note_large(saved, entry.key);
                Ok(())
            }
        }
    });
    (saved.lost, saved.stale) = (gaps.lost, gaps.stale);
    match read {
        Ok(()) => sink.send(),
        Err(error) => {
            // The table must then stay empty.
            let _ = (sink.send)(Err(error.clone()));
            Err(error)
        }
    }
}
