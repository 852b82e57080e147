//! Ranges as a transaction sees them: the leaves at its snapshot, keys that were deleted since, and
//! its own writes.

use std::ops::Bound;
use std::sync::Arc;

use qpair_format::Result;
use qpair_format::large::Descriptor;

use super::own_writes::with_writes;
use super::reading::read_large;
use super::view::View;
use crate::panics::guarded;
use crate::shared::Shared;
use crate::task::{run_as, run_inline};
use crate::tree::{Batch, Direction, RangeEnd, ReadAhead, Record, Scan, Tree};
use crate::tx::Tx;
use crate::tx::history::{Part, Reader, SortedRun};
use crate::tx::versions::{BeforeImage, Bounds, Wanted, is_within};

/// The maximum number of records of the first batch: many ranges are read at their beginning only.
const FIRST_RECORDS: usize = 16;
/// The maximum number of deleted keys of a batch.
const GONE_MAX: usize = 256;

/// Keys in the order of a range that a leaf may no longer have.
type GoneKeys = Vec<Arc<[u8]>>;

/// The position of a range that a transaction or snapshot reads.
pub(crate) struct RangeCursor {
    tx: Arc<Tx>,
    tree: Tree,
    pub(crate) end: RangeEnd,
    /// A second batch, in which records are merged.
    pub(crate) spare: Batch,
    /// The pages of sorted runs that the range has read.
    history: Reader,
    /// The same of the transaction's own writes on the device.
    own: Reader,
}

impl RangeCursor {
    pub(crate) fn new(tx: &Arc<Tx>, tree: Tree, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Self {
        Self::at(tx, tree, RangeEnd::new(tree, from, to))
    }

    fn at(tx: &Arc<Tx>, tree: Tree, end: RangeEnd) -> Self {
        let (history, own) = (Reader::default(), Reader::default());
        Self { tx: tx.clone(), tree, end, spare: Batch::default(), history, own }
    }

    /// Returns a cursor from the other end, for the part of the range that this cursor has not
    /// returned.
    pub(crate) fn other_end(&self) -> Option<Self> {
        Some(Self::at(&self.tx, self.tree, self.end.other()?))
    }

    fn limit(&self) -> usize {
        let left = self.end.pace.left();
        if self.end.pace.is_at_first() { FIRST_RECORDS.min(left) } else { left }
    }

    async fn fetch(&mut self, view: &mut View<'_>) -> Result<()> {
        // If the caller drops this future while it waits, the range keeps its position: a batch
        // counts only once it is fetched.
        let Some(from) = self.end.from.clone() else { return Ok(()) };
        self.end.next = usize::MAX;
        let tx = self.tx.clone();
        let shared = &*tx.shared;
        let tree = self.tree;
        if let Some(core) = view.core() {
            core.begin_turn().await;
        }
        view.enter();
        let interleave = view.core().is_none();
        if let Some(window) = self.end.pace.window(self.end.batch.leaf_records) {
            let ahead = ReadAhead::new(tree, self.end.direction, &from, &self.end.to, window);
            self.end.pace.asked(run_as(shared, ahead, interleave).await?);
        }
        let limit = self.limit();
        let scan = Scan::new(tree, self.end.direction, &from, &self.end.to, &mut self.end.batch)
            .limited(limit);
        run_as(shared, scan, interleave).await?;
        view.wait_to_give(shared, self.end.batch.timestamp).await?;
        let own = match view.core().and_then(|core| core.runs()).cloned() {
            Some(runs) => self
                .read_own(shared, &runs, &from)
                .await
                .inspect_err(|_| self.undo(from.clone()))?,
            None => Part::default(),
        };
        let gone = self.take_gone(&tx, &from, view.snapshot());
        let mut part = Part::default();
        loop {
            let fetched = match self.fetched(&tx, &from, view, &gone, &part, &own) {
                Ok(false) => self.read_history(&tx, &from, view.snapshot()).await,
                Ok(true) => return Ok(()),
                Err(error) => Err(error),
            };
            part = fetched.inspect_err(|_| self.undo(from.clone()))?;
        }
    }

    /// Drops the batch: the next one begins at `from` again.
    fn undo(&mut self, from: Bound<Vec<u8>>) {
        self.end.batch.clear();
        self.end.next = 0;
        self.end.from = Some(from);
    }

    /// Returns the deleted keys in the batch's part of the range that the snapshot may see. If they
    /// are too many, the batch is shortened. The leaf must have been read before: keys deleted by
    /// then are in the list, or in a run.
    fn take_gone(&mut self, tx: &Tx, from: &Bound<Vec<u8>>, snapshot: u64) -> GoneKeys {
        let shared = &tx.shared;
        if self.end.batch.timestamp <= snapshot {
            return GoneKeys::new();
        }
        let bounds = bounds_of(self.end.direction, from, &self.end.batch.next, &self.end.to);
        let (wanted, most) = (Wanted::seen_at(snapshot), self.limit().clamp(1, GONE_MAX));
        let found = guarded(shared, || {
            tx.rows.deleted(self.tree.id, bounds, self.end.direction, wanted, most)
        });
        if let Some(upto) = found.upto {
            self.shorten(Bound::Excluded(upto.to_vec()));
        }
        found.keys
    }

    /// Shortens the batch, so that the next one begins here.
    fn shorten(&mut self, next: Bound<Vec<u8>>) {
        let direction = self.end.direction;
        let is_kept = |index: &usize| {
            let key = self.end.batch.entry(*index).0;
            match &next {
                Bound::Included(next) => direction.comes_before(key, next),
                Bound::Excluded(last) => !direction.comes_before(last, key),
                Bound::Unbounded => true,
            }
        };
        let kept = (0..self.end.batch.len()).take_while(is_kept).count();
        self.end.batch.truncate(kept);
        self.end.batch.next = Some(next);
    }

    /// Reads the transaction's own writes on the device for the batch's part of the range. If they
    /// are too many, the batch is shortened.
    async fn read_own(
        &mut self,
        shared: &Shared,
        runs: &[Arc<SortedRun>],
        from: &Bound<Vec<u8>>,
    ) -> Result<Part> {
        let (tree, direction) = (self.tree.id, self.end.direction);
        let bounds = bounds_of(direction, from, &self.end.batch.next, &self.end.to);
        let own = Box::pin(self.own.own_part(shared, runs, tree, direction, bounds)).await?;
        if let Some(cut) = &own.cut {
            self.shorten(Bound::Included(cut.clone()));
        }
        Ok(own)
    }

    /// Reads the images in the sorted runs for the batch's part of the range.
    async fn read_history(
        &mut self,
        tx: &Tx,
        from: &Bound<Vec<u8>>,
        snapshot: u64,
    ) -> Result<Part> {
        let shared = &tx.shared;
        let bounds = bounds_of(self.end.direction, from, &self.end.batch.next, &self.end.to);
        let history = &tx.history;
        let (tree, direction) = (self.tree.id, self.end.direction);
        history.part(shared, &mut self.history, tree, direction, bounds, snapshot).await
    }

    /// Like [`RangeCursor::fetch`], on a caller's thread; returns `false` if it would have to wait.
    fn fetch_inline(&mut self, view: &mut View<'_>) -> Result<bool> {
        if view.core().is_some_and(|core| core.runs().is_some()) {
            return Ok(false);
        }
        let Some(from) = self.end.from.take() else { return Ok(true) };
        let tx = self.tx.clone();
        let shared = &*tx.shared;
        let (tree, limit) = (self.tree, self.limit());
        view.enter();
        let mut scan =
            Scan::new(tree, self.end.direction, &from, &self.end.to, &mut self.end.batch)
                .limited(limit);
        if run_inline(shared, &mut scan).is_none()
            || !view.may_give(shared, self.end.batch.timestamp)
        {
            self.undo(from);
            return Ok(false);
        }
        let gone = self.take_gone(&tx, &from, view.snapshot());
        let mut part = Part::default();
        while !self
            .fetched(&tx, &from, view, &gone, &part, &Part::default())
            .inspect_err(|_| self.undo(from.clone()))?
        {
            let bounds = bounds_of(self.end.direction, &from, &self.end.batch.next, &self.end.to);
            let (history, snapshot) = (&tx.history, view.snapshot());
            match history.part_now(&self.history, tree.id, self.end.direction, bounds, snapshot) {
                Ok(Some(read)) => part = read,
                // The path that waits for the pages reports their errors.
                Ok(None) | Err(_) => {
                    self.undo(from);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Replaces the leaf's records in the batch by those that the transaction sees. Returns `false`
    /// and does nothing if the sorted runs must first be read, or read again.
    fn fetched(
        &mut self,
        tx: &Tx,
        from: &Bound<Vec<u8>>,
        view: &mut View<'_>,
        gone: &[Arc<[u8]>],
        part: &Part,
        own: &Part,
    ) -> Result<bool> {
        let shared = &tx.shared;
        let tree = self.tree;
        shared.check_table(tree)?;
        let snapshot = view.snapshot();
        let is_current = || part.is_current(&tx.history, snapshot);
        // This is checked again after the row table was read. A part that is out of date now would
        // still be out of date then.
        if self.end.batch.timestamp > snapshot && !is_current() {
            return Ok(false);
        }
        let leaf_records = self.end.batch.leaf_records;
        let next = match &part.cut {
            Some(cut) => Some(Bound::Included(cut.clone())),
            None => self.end.batch.next.take(),
        };
        let bounds = bounds_of(self.end.direction, from, &next, &self.end.to);
        if self.end.batch.timestamp > snapshot {
            let (leaf, output) = (&self.end.batch, &mut self.spare);
            at_snapshot(tx, tree, self.end.direction, bounds, snapshot, leaf, gone, part, output);
            if !is_current() {
                // The batch must stay as it was: its `next` was taken above unless the part was
                // cut.
                if part.cut.is_none() {
                    self.end.batch.next = next;
                }
                return Ok(false);
            }
            std::mem::swap(&mut self.end.batch, &mut self.spare);
        }
        view.note(tree, bounds.0, bounds.1)?;
        if with_writes(
            view.core(),
            own,
            tree,
            self.end.direction,
            bounds,
            &self.end.batch,
            &mut self.spare,
        ) {
            std::mem::swap(&mut self.end.batch, &mut self.spare);
        }
        (self.end.next, self.end.batch.leaf_records) = (0, leaf_records);
        self.end.pace.passed();
        self.end.from = next;
        view.check()?;
        Ok(true)
    }
}

/// Returns the lower and the upper bound of a batch, which extends from the end of the previous
/// batch to the beginning of the next one.
fn bounds_of<'a>(
    direction: Direction,
    from: &'a Bound<Vec<u8>>,
    next: &'a Option<Bound<Vec<u8>>>,
    to: &'a Bound<Vec<u8>>,
) -> Bounds<'a> {
    let far = match next {
        None => to.as_ref(),
        // The bound excludes that key if the next batch begins with it.
        Some(Bound::Included(key)) => Bound::Excluded(key),
        Some(Bound::Excluded(key)) => Bound::Included(key),
        Some(Bound::Unbounded) => Bound::Unbounded,
    };
    let (near, far) = (from.as_ref().map(Vec::as_slice), far.map(Vec::as_slice));
    match direction {
        Direction::Forward => (near, far),
        Direction::Reverse => (far, near),
    }
}

/// Merges a leaf's records with the older values of the row table and the runs, as of a snapshot.
#[expect(clippy::too_many_arguments, reason = "what a part of a range is made of")]
fn at_snapshot(
    tx: &Tx,
    tree: Tree,
    direction: Direction,
    bounds: Bounds<'_>,
    snapshot: u64,
    leaf: &Batch,
    gone: &[Arc<[u8]>],
    part: &Part,
    output: &mut Batch,
) {
    let shared = &tx.shared;
    output.clear();
    let older = |output: &mut Batch, key: &[u8], now: Option<(&[u8], bool)>| {
        let of_runs = part.images.get(key);
        let of_rows = guarded(shared, || {
            tx.rows.at(tree.id, key, snapshot, |version| {
                // The version that was replaced first is the one that the snapshot sees.
                if of_runs.is_none_or(|known| version.timestamp < known.timestamp) {
                    push_older(output, key, &version.image);
                    return true;
                }
                false
            })
        });
        match (of_rows, of_runs, now) {
            (Some(true), ..) => {}
            (_, Some(version), _) => push_older(output, key, &version.image),
            (_, None, Some((value, large))) => output.push_record(key, value, large),
            (_, None, None) => {}
        }
    };
    let in_runs = part.images.keys().map(Vec::as_slice);
    let mut gone: Vec<&[u8]> = gone.iter().map(AsRef::as_ref).chain(in_runs).collect();
    if part.cut.is_some() {
        gone.retain(|key| is_within(bounds, key));
    }
    if !part.images.is_empty() {
        gone.sort_unstable();
        gone.dedup();
        if direction == Direction::Reverse {
            gone.reverse();
        }
    }
    let mut gone = gone.iter().peekable();
    for index in 0..leaf.len() {
        let (key, value, large) = leaf.entry(index);
        if part.cut.is_some() && !is_within(bounds, key) {
            break;
        }
        while let Some(gone) = gone.next_if(|gone| direction.comes_before(gone, key)) {
            older(output, gone, None);
        }
        gone.next_if(|gone| **gone == key);
        older(output, key, Some((value, large)));
    }
    for gone in gone {
        older(output, gone, None);
    }
}

fn push_older(output: &mut Batch, key: &[u8], image: &BeforeImage) {
    if let Some((value, large)) = image.record() {
        output.push_record(key, value, large);
    }
}

/// Appends the next record to `key` and `value`; returns `false` at the end.
pub(crate) async fn next_into(
    cursor: &mut RangeCursor,
    view: &mut View<'_>,
    key: &mut Vec<u8>,
    value: &mut Vec<u8>,
) -> Result<bool> {
    view.doomed()?;
    if cursor.end.pace.is_over() {
        return Ok(false);
    }
    let (page_bytes, start) = (cursor.tx.shared.page_bytes, value.len());
    let key_start = key.len();
    loop {
        if let Some(record) = cursor.end.next_of_group() {
            key.extend_from_slice(&record.0);
            value.extend_from_slice(&record.1);
            return Ok(true);
        }
        if let Some((found, bytes, large)) = cursor.end.peek() {
            if cursor.end.is_past_limit(found) {
                cursor.end.finish();
                return Ok(false);
            }
            let is_group = cursor.end.is_group(found);
            key.extend_from_slice(found);
            if !large {
                value.extend_from_slice(bytes);
                let there = cursor.tx.shared.value(cursor.tree, true, value, start);
                // A record that has expired is skipped, and does not count towards the limit.
                cursor.end.step(!matches!(there, Ok(false)) && !is_group);
                if there? {
                    if is_group {
                        open(cursor, (key, key_start), (value, start))?;
                        continue;
                    }
                    return Ok(true);
                }
                key.truncate(key_start);
                continue;
            }
            let descriptor = Descriptor::decode(bytes, page_bytes)?;
            let shared = cursor.tx.shared.clone();
            // If the caller drops this future while it waits, the next call returns the record.
            let read = read_large(&shared, descriptor, value).await;
            let there = read.and_then(|read| shared.value(cursor.tree, read, value, start));
            cursor.end.step(!matches!(there, Ok(false)) && !is_group);
            view.check()?;
            // The pages of a dropped table's values may be others' by now.
            shared.check_table(cursor.tree)?;
            if there? {
                if is_group {
                    open(cursor, (key, key_start), (value, start))?;
                    continue;
                }
                return Ok(true);
            }
            key.truncate(key_start);
            continue;
        }
        if cursor.end.from.is_none() {
            return Ok(false);
        }
        cursor.fetch(view).await?;
    }
}

/// Takes the records of a group, whose key and value were appended to these buffers.
#[cold]
fn open(
    cursor: &mut RangeCursor,
    (key, key_start): (&mut Vec<u8>, usize),
    (value, start): (&mut Vec<u8>, usize),
) -> Result<()> {
    let (key, group) = (key.split_off(key_start), value.split_off(start));
    cursor.end.open(&key, &group)
}

/// Like [`next_into`], on a caller's thread, but returns the record, or `Some(None)` at the end.
/// Returns `None` if it would have to wait.
pub(crate) fn next_inline(
    cursor: &mut RangeCursor,
    view: &mut View<'_>,
) -> Result<Option<Option<Record>>> {
    view.doomed()?;
    if cursor.end.pace.is_over() {
        return Ok(Some(None));
    }
    loop {
        if let Some(record) = cursor.end.next_of_group() {
            return Ok(Some(Some(record)));
        }
        if let Some((key, value, large)) = cursor.end.peek() {
            if cursor.end.is_past_limit(key) {
                cursor.end.finish();
                return Ok(Some(None));
            }
            if large {
                return Ok(None);
            }
            let (key, mut value) = (key.to_vec(), value.to_vec());
            let there = cursor.tx.shared.value(cursor.tree, true, &mut value, 0);
            let is_group = cursor.end.is_group(&key);
            cursor.end.step(!matches!(there, Ok(false)) && !is_group);
            match there? {
                true if is_group => cursor.end.open(&key, &value)?,
                true => return Ok(Some(Some((key, value)))),
                false => {}
            }
            continue;
        }
        if cursor.end.from.is_none() {
            return Ok(Some(None));
        }
        if !cursor.fetch_inline(view)? {
            return Ok(None);
        }
    }
}
