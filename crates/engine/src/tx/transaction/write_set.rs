//! The writes of a transaction: private to it, in the order of tables and keys.
//!
//! Invariants: there is one entry for each written key, with its newest value. The bytes of keys
//! and values are in one buffer, in the order of the writes. A savepoint is a length of that buffer
//! and of the list of entries; entries that were overwritten since are in the undo list.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::HashSet;
use std::ops::Bound;

use qpair_format::head::head_u64;
use qpair_format::{Error, ErrorKind, Result};
use qpair_memory::FrameIndex;

use crate::tree::{CursorHint, Tree};
use crate::tx::versions::RowRef;

/// The number of entries in one piece of the order, at most. Small in tests, so that few keys make
/// many pieces.
const PIECE_MAX: usize = if cfg!(test) { 8 } else { 512 };

/// An upper bound of the size of a record's header, and of each write in it without its key and
/// value, in bytes.
pub(in crate::tx) const RECORD_HEAD_BYTES: usize = 64;

/// A write to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write<'a> {
    /// A value in the leaf.
    Inline(&'a [u8]),
    /// The descriptor of a large value.
    Large(&'a [u8]),
    Delete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Inline,
    Large,
    Delete,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    at: u32,
    len: u32,
    kind: Kind,
    /// The number of savepoints when the entry was written.
    epoch: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    tree: u32,
    root: FrameIndex,
    key_at: u32,
    key_len: u32,
    row: RowRef,
    /// The position where the key was found, if it was known when the key was locked.
    cursor_hint: Option<CursorHint>,
    value: Value,
}

/// The place of an entry in the order, with enough of the key that a search rarely looks at the
/// entries.
#[derive(Clone, Copy, Debug)]
struct Place {
    tree: u32,
    index: u32,
    /// The key's first bytes, as a number with the same order.
    head: u64,
}

/// A point to which the writes can be rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WriteMark {
    /// The number of the savepoint in its transaction.
    pub(super) number: u32,
    entries: u32,
    bytes: u32,
    undo: u32,
}

/// A key with its write.
pub(crate) struct Item<'a> {
    pub(crate) tree: Tree,
    pub(crate) key: &'a [u8],
    pub(crate) row: RowRef,
    pub(crate) cursor_hint: Option<CursorHint>,
    pub(crate) write: Write<'a>,
}

impl<'a> Write<'a> {
    /// Returns the kind and the bytes of what is written; a deletion has none.
    #[inline]
    fn parts(self) -> (Kind, &'a [u8]) {
        match self {
            Self::Inline(value) => (Kind::Inline, value),
            Self::Large(descriptor) => (Kind::Large, descriptor),
            Self::Delete => (Kind::Delete, &[]),
        }
    }
}

impl Item<'_> {
    /// Returns an upper bound of the write's size in a commit's record, in bytes.
    pub(in crate::tx) fn record_bytes_max(&self) -> usize {
        RECORD_HEAD_BYTES + self.key.len() + self.write.parts().1.len()
    }
}

/// The writes of a transaction.
#[derive(Debug, Default)]
pub(crate) struct WriteSet {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
    /// The entries in the order of trees and keys, in pieces.
    order: Vec<Vec<Place>>,
    /// A bit for each tree with an entry, by the low bits of its id. Most reads are of trees
    /// without entries.
    trees: u64,
    undo: Vec<(u32, Value)>,
    /// The number of savepoints taken so far.
    epoch: u32,
    /// The numbers of the savepoints that can still be rolled back to, ascending.
    savepoints: Vec<u32>,
}

/// The writes between two savepoints, in order; the last write of each key.
pub(super) type Segment = Vec<(u32, Value)>;

impl WriteSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Removes all writes, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
        self.order.truncate(1);
        self.order.iter_mut().for_each(Vec::clear);
        self.undo.clear();
        self.savepoints.clear();
        (self.trees, self.epoch) = (0, 0);
    }

    /// Returns the capacity: bytes, and entries of the lists.
    pub(crate) fn capacity(&self) -> (usize, usize) {
        (self.bytes.capacity(), self.entries.capacity().max(self.undo.capacity()))
    }

    /// Returns the approximate memory of the writes, in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes.len()
            + self.entries.len() * (size_of::<Entry>() + size_of::<Place>())
            + self.undo.len() * size_of::<(u32, Value)>()
    }

    fn key(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.key_at as usize..][..entry.key_len as usize]
    }

    fn compare(&self, place: &Place, (tree, head): (u32, u64), key: &[u8]) -> Ordering {
        (place.tree, place.head)
            .cmp(&(tree, head))
            .then_with(|| self.key(&self.entries[place.index as usize]).cmp(key))
    }

    /// Returns the piece and the place in it where a key is, or would be.
    fn place(&self, tree: u32, key: &[u8]) -> (usize, usize, bool) {
        let head = (tree, head_u64(key));
        let piece = match self.order.len() {
            0 => return (0, 0, false),
            1 => 0,
            _ => self
                .order
                .partition_point(|piece| {
                    piece.first().is_some_and(|first| self.compare(first, head, key).is_le())
                })
                .saturating_sub(1),
        };
        match self.order[piece].binary_search_by(|place| self.compare(place, head, key)) {
            Ok(at) => (piece, at, true),
            Err(at) => (piece, at, false),
        }
    }

    fn index_of(&self, tree: u32, key: &[u8]) -> Option<u32> {
        if self.trees & 1 << (tree % 64) == 0 {
            return None;
        }
        let (piece, at, found) = self.place(tree, key);
        found.then(|| self.order[piece][at].index)
    }

    fn write(&self, value: Value) -> Write<'_> {
        let bytes = &self.bytes[value.at as usize..][..value.len as usize];
        match value.kind {
            Kind::Inline => Write::Inline(bytes),
            Kind::Large => Write::Large(bytes),
            Kind::Delete => Write::Delete,
        }
    }

    fn item(&self, index: u32) -> Item<'_> {
        self.item_with(index, self.entries[index as usize].value)
    }

    fn item_with(&self, index: u32, value: Value) -> Item<'_> {
        let entry = &self.entries[index as usize];
        Item {
            tree: Tree::new(entry.tree, entry.root),
            key: self.key(entry),
            row: entry.row,
            cursor_hint: entry.cursor_hint,
            write: self.write(value),
        }
    }

    /// Returns the write to a key, with its row.
    pub(crate) fn get(&self, tree: u32, key: &[u8]) -> Option<Item<'_>> {
        self.index_of(tree, key).map(|index| self.item(index))
    }

    /// Adds a write.
    ///
    /// # Errors
    /// `TooLarge` if the writes would have 4 GiB or more.
    pub(crate) fn put(
        &mut self,
        tree: Tree,
        key: &[u8],
        (row, cursor_hint): (RowRef, Option<CursorHint>),
        write: Write<'_>,
    ) -> Result<()> {
        let (kind, value) = write.parts();
        let place = match self.entries.is_empty() {
            true => (0, 0, false),
            false => self.place(tree.id, key),
        };
        let old = place.2.then(|| self.order[place.0][place.1].index);
        if let Some(index) = old {
            let entry = &mut self.entries[index as usize];
            if entry.value.epoch == self.epoch && value.len() <= entry.value.len as usize {
                // No savepoint needs the previous value.
                let at = entry.value.at as usize;
                entry.value.len = value.len() as u32;
                entry.value.kind = kind;
                self.bytes[at..at + value.len()].copy_from_slice(value);
                return Ok(());
            }
        }
        // Places in the buffer have 32 bits.
        if self.bytes.len() + key.len() + value.len() > u32::MAX as usize {
            return Err(Error::with_hint(
                ErrorKind::TooLarge,
                format!(
                    "a transaction has {} writes of {} bytes in memory and adds one of {} bytes",
                    self.entries.len(),
                    self.size_bytes(),
                    key.len() + value.len()
                ),
                "lower write_set_bytes_max of its options, or transaction_bytes_max of the store's: more writes than that go to the device",
            ));
        }
        if let Some(index) = old {
            let epoch = self.epoch;
            let at = self.push(value);
            let entry = &mut self.entries[index as usize];
            if entry.value.epoch != epoch {
                self.undo.push((index, entry.value));
            }
            entry.value = Value { at, len: value.len() as u32, kind, epoch };
            return Ok(());
        }
        self.add((place.0, place.1), tree, key, (row, cursor_hint), (kind, value));
        Ok(())
    }

    /// Adds a write to a key that has none, at this place in the order.
    #[inline]
    fn add(
        &mut self,
        (piece, place): (usize, usize),
        tree: Tree,
        key: &[u8],
        (row, cursor_hint): (RowRef, Option<CursorHint>),
        (kind, value): (Kind, &[u8]),
    ) {
        let key_at = self.push(key);
        let at = self.push(value);
        let index = self.entries.len() as u32;
        self.entries.push(Entry {
            tree: tree.id,
            root: tree.root,
            key_at,
            key_len: key.len() as u32,
            row,
            cursor_hint,
            value: Value { at, len: value.len() as u32, kind, epoch: self.epoch },
        });
        self.trees |= 1 << (tree.id % 64);
        self.enter(piece, place, Place { tree: tree.id, index, head: head_u64(key) });
    }

    fn push(&mut self, bytes: &[u8]) -> u32 {
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(bytes);
        at
    }

    fn enter(&mut self, piece: usize, at: usize, place: Place) {
        if self.order.is_empty() {
            self.order.push(Vec::new());
        }
        let entries = &mut self.order[piece];
        entries.insert(at, place);
        if entries.len() > PIECE_MAX {
            // Keys in ascending order leave full pieces.
            let cut = if at + 1 == entries.len() { at } else { entries.len() / 2 };
            let mut rest = Vec::with_capacity(PIECE_MAX + 1);
            rest.extend(entries.drain(cut..));
            self.order.insert(piece + 1, rest);
        }
    }

    /// Adds a write to a key that is greater than all others.
    pub(crate) fn append(&mut self, tree: Tree, key: &[u8], row: RowRef, write: Write<'_>) {
        let (kind, value) = write.parts();
        let end = (self.order.len().saturating_sub(1), self.order.last().map_or(0, Vec::len));
        self.add(end, tree, key, (row, None), (kind, value));
    }

    /// Returns the numbers of the savepoints that can be rolled back to, ascending.
    pub(super) fn savepoints(&self) -> &[u32] {
        &self.savepoints
    }

    /// Makes a rollback to savepoints impossible.
    pub(super) fn forget_savepoints(&mut self) {
        self.savepoints.clear();
    }

    /// Returns the writes before the first savepoint, and those after each.
    pub(super) fn segments(&self) -> Vec<Segment> {
        let of = |value: &Value| self.savepoints.partition_point(|number| *number <= value.epoch);
        let mut segments = vec![Segment::new(); self.savepoints.len() + 1];
        for place in self.order.iter().flatten() {
            let value = self.entries[place.index as usize].value;
            segments[of(&value)].push((place.index, value));
        }
        if self.undo.is_empty() {
            return segments;
        }
        // Earlier values that a rollback restores, from the newest on.
        let mut seen: HashSet<(u32, usize)> = HashSet::new();
        for (index, value) in self.undo.iter().rev() {
            let segment = of(value);
            if segment != of(&self.entries[*index as usize].value) && seen.insert((*index, segment))
            {
                segments[segment].push((*index, *value));
            }
        }
        let order = |(index, _): &(u32, Value)| {
            let entry = &self.entries[*index as usize];
            (entry.tree, self.key(entry))
        };
        segments.iter_mut().for_each(|segment| segment.sort_unstable_by_key(order));
        segments
    }

    /// Returns the writes of a segment.
    pub(super) fn items_of<'a>(&'a self, segment: &'a Segment) -> impl Iterator<Item = Item<'a>> {
        segment.iter().map(|(index, value)| self.item_with(*index, *value))
    }

    /// Removes all writes and savepoints, and frees their memory. Later savepoints have other
    /// numbers than those so far.
    pub(super) fn drain(&mut self) {
        *self = Self { epoch: self.epoch + 1, ..Self::default() };
    }

    /// Marks this point, for a later rollback to it.
    pub(super) fn mark(&mut self) -> WriteMark {
        self.epoch += 1;
        self.savepoints.push(self.epoch);
        WriteMark {
            number: self.epoch,
            entries: self.entries.len() as u32,
            bytes: self.bytes.len() as u32,
            undo: self.undo.len() as u32,
        }
    }

    /// Removes the writes since a savepoint; the savepoint stays. Returns `false` if the savepoint
    /// is no longer there.
    pub(super) fn rollback_to(&mut self, savepoint: &WriteMark) -> bool {
        if !self.savepoints.contains(&savepoint.number) {
            return false;
        }
        self.savepoints.retain(|number| *number <= savepoint.number);
        while self.undo.len() > savepoint.undo as usize {
            let Some((index, value)) = self.undo.pop() else { break };
            self.entries[index as usize].value = value;
        }
        for index in (savepoint.entries..self.entries.len() as u32).rev() {
            let entry = self.entries[index as usize];
            let (piece, at, found) = self.place(entry.tree, self.key(&entry));
            if found {
                self.order[piece].remove(at);
                if self.order[piece].is_empty() && self.order.len() > 1 {
                    self.order.remove(piece);
                }
            }
        }
        self.entries.truncate(savepoint.entries as usize);
        self.bytes.truncate(savepoint.bytes as usize);
        // Later writes must not overwrite values that the savepoint needs.
        self.epoch += 1;
        true
    }

    /// Returns all writes, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Item<'_>> {
        self.order.iter().flatten().map(|place| self.item(place.index))
    }

    /// Returns the write at a position in the order.
    pub(crate) fn nth(&self, cursor: &mut (usize, usize)) -> Option<Item<'_>> {
        loop {
            let piece = self.order.get(cursor.0)?;
            match piece.get(cursor.1) {
                Some(place) => return Some(self.item(place.index)),
                None => *cursor = (cursor.0 + 1, 0),
            }
        }
    }

    /// Returns the writes to keys of a range of a tree, in order.
    pub(crate) fn range<'a>(
        &'a self,
        tree: u32,
        from: Bound<&[u8]>,
        to: Bound<&'a [u8]>,
    ) -> impl Iterator<Item = Item<'a>> {
        let (piece, at) = match from {
            Bound::Included(key) => {
                let (piece, at, _) = self.place(tree, key);
                (piece, at)
            }
            Bound::Excluded(key) => {
                let (piece, at, found) = self.place(tree, key);
                (piece, at + usize::from(found))
            }
            Bound::Unbounded => {
                let (piece, at, _) = self.place(tree, &[]);
                (piece, at)
            }
        };
        let pieces = self.order.get(piece..).unwrap_or_default();
        pieces.iter().flatten().skip(at).map(|place| self.item(place.index)).take_while(
            move |item| {
                item.tree.id == tree
                    && match to {
                        Bound::Included(end) => item.key <= end,
                        Bound::Excluded(end) => item.key < end,
                        Bound::Unbounded => true,
                    }
            },
        )
    }
}
