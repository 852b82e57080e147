//! The row table: the locks of rows, and the before-images of recent commits.
//!
//! Invariants: before a commit changes a key in a leaf, the row table has its before-image, which
//! stays as long as a snapshot older than the commit is in use. A key that a commit removes from
//! its leaf is in the list of deleted keys for as long.
//!
//! Lock order: a shard's lock is taken under a leaf's latch, never the other way round; the lists'
//! locks are taken under a shard's.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::task::Waker;

use qpair_format::head::head_u64;
use qpair_format::page::LeafValue;
use qpair_memory::locks::Mutex;

use super::bounds::Bounds;
use super::deleted_keys::{DeletedKeys, Found, Span, Wanted};
use super::row::{BeforeImage, FREE, Place, Row, Version};
use super::shard::Shard;
use crate::canary::{Canary, Planted};
use crate::tree::Direction;

/// The number of shards of the table; a power of two.
const SHARDS: usize = 1024;
/// The number of lists of deleted keys, chosen by tree; a power of two.
const LISTS: usize = 16;

/// The position of a row in the table. The row stays there while it is locked or has older values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowRef {
    shard: u32,
    at: u32,
}

impl RowRef {
    pub(crate) fn encode(self) -> u64 {
        u64::from(self.shard) << 32 | u64::from(self.at)
    }

    pub(crate) fn decode(word: u64) -> Self {
        Self { shard: (word >> 32) as u32, at: word as u32 }
    }
}

/// The result of an attempt to lock a row.
pub(crate) enum Locking {
    /// The lock is taken. The number is the newest commit known to have changed the row, or 0.
    Taken(RowRef, u64),
    /// The caller already had the lock.
    Had(RowRef),
    /// Another transaction has the lock.
    Busy(RowRef),
}

#[repr(align(128))]
#[derive(Default)]
struct Part {
    shard: Mutex<Shard>,
}

/// The deleted keys of some trees.
struct List {
    keys: Mutex<DeletedKeys>,
    /// The newest commit that deleted a key, so that a reader that sees all deletions need not take
    /// the lock.
    newest: AtomicU64,
}

/// All rows that are locked or have older values.
pub(crate) struct Rows {
    parts: Box<[Part]>,
    deleted: Box<[List]>,
}

/// Returns a hash of a key that is the same in every run.
pub(in crate::tx) fn hash_of(tree: u32, key: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    // Keys may differ in their upper bits only, and the lower half of a product depends on lower
    // bits only. Folding the upper half in lets every bit reach the lowest ones, which select the
    // shard.
    let mix = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word) * u128::from(MULTIPLIER);
        product as u64 ^ (product >> 64) as u64
    };
    let mut hash = mix(u64::from(tree) + 1, key.len() as u64);
    let (words, rest) = key.as_chunks::<8>();
    for word in words {
        hash = mix(hash, u64::from_le_bytes(*word));
    }
    if !rest.is_empty() {
        hash = mix(hash, head_u64(rest));
    }
    mix(hash, 0)
}

/// The memory that an older value counts for without its bytes and its key.
const VERSION_BYTES: usize = std::mem::size_of::<Version>() + std::mem::size_of::<Row>();

impl Rows {
    pub(crate) fn new(planted: &Planted) -> Self {
        let keeps_low = planted.is(Canary::DeletedKeysOutOfOrder);
        let list =
            || List { keys: Mutex::new(DeletedKeys::new(keeps_low)), newest: AtomicU64::new(0) };
        Self {
            parts: (0..SHARDS).map(|_| Part::default()).collect(),
            deleted: (0..LISTS).map(|_| list()).collect(),
        }
    }

    fn shard(&self, shard: u32) -> MutexGuard<'_, Shard> {
        self.parts[shard as usize & (SHARDS - 1)].shard.lock()
    }

    /// Takes a row's lock for `owner`, if it is free.
    pub(crate) fn lock(&self, tree: u32, key: &[u8], owner: u64) -> Locking {
        let hash = hash_of(tree, key);
        let index = hash as u32 & (SHARDS as u32 - 1);
        let mut shard = self.shard(index);
        let (at, row) = shard.find_or_add(hash, tree, key);
        let place = RowRef { shard: index, at };
        if row.owner == owner {
            Locking::Had(place)
        } else if row.take(owner) {
            Locking::Taken(place, row.newest())
        } else {
            Locking::Busy(place)
        }
    }

    /// Takes a row's lock, or waits in its queue: the waker is called when the lock is free, or has
    /// passed to `owner`.
    pub(crate) fn enqueue(
        &self,
        tree: u32,
        key: &[u8],
        owner: u64,
        place: &mut Place,
        waker: &Waker,
    ) -> Option<RowRef> {
        let hash = hash_of(tree, key);
        let index = hash as u32 & (SHARDS as u32 - 1);
        let mut shard = self.shard(index);
        let (at, row) = shard.find_or_add(hash, tree, key);
        row.take_or_wait(owner, place, waker).then_some(RowRef { shard: index, at })
    }

    /// Returns the position of a row in the table.
    pub(crate) fn find(&self, tree: u32, key: &[u8]) -> Option<RowRef> {
        let hash = hash_of(tree, key);
        let index = hash as u32 & (SHARDS as u32 - 1);
        let at = self.shard(index).find(hash, tree, key)?;
        Some(RowRef { shard: index, at })
    }

    /// Returns the transaction that has a row's lock, or [`FREE`].
    pub(crate) fn owner(&self, row: RowRef) -> u64 {
        self.shard(row.shard).row(row.at).map_or(FREE, |row| row.owner)
    }

    /// Returns the newest commit known to have changed a row, or 0.
    pub(crate) fn newest(&self, row: RowRef) -> u64 {
        self.shard(row.shard).row(row.at).map_or(0, |row| row.newest())
    }

    /// Leaves a row's queue; returns the row if its lock had already passed to the caller.
    pub(crate) fn dequeue(
        &self,
        tree: u32,
        key: &[u8],
        owner: u64,
        place: Place,
    ) -> Option<RowRef> {
        let hash = hash_of(tree, key);
        let index = hash as u32 & (SHARDS as u32 - 1);
        let mut shard = self.shard(index);
        let at = shard.find(hash, tree, key)?;
        let row = shard.row(at)?;
        if row.owner == owner {
            return Some(RowRef { shard: index, at });
        }
        let next = row.leave(owner, place);
        shard.remove_if_idle(at);
        drop(shard);
        next.into_iter().for_each(Waker::wake);
        None
    }

    /// Releases a row's lock, and wakes the task that has waited longest.
    pub(crate) fn unlock(&self, row: RowRef, owner: u64) {
        let mut shard = self.shard(row.shard);
        let Some(entry) = shard.row(row.at).filter(|entry| entry.owner == owner) else { return };
        let next = entry.release();
        shard.remove_if_idle(row.at);
        drop(shard);
        next.into_iter().for_each(Waker::wake);
    }

    /// Replaces locked rows of a transaction by their tags, which take 4 bytes each: as far as
    /// possible, the rows leave the table. Sorts the rows. Returns the number of new tags.
    pub(crate) fn replace_by_tags(&self, rows: &mut [RowRef], owner: u64) -> usize {
        rows.sort_unstable_by_key(|row| row.shard);
        let of_shard = rows.chunk_by(|a, b| a.shard == b.shard);
        of_shard
            .map(|rows| {
                let at = rows.iter().map(|row| row.at);
                self.shard(rows[0].shard).replace_by_tags(owner, at)
            })
            .sum()
    }

    /// Releases all locks of a transaction that has tags, and wakes the tasks that wait for them.
    pub(crate) fn release_tags(&self, owner: u64) {
        for index in 0..SHARDS as u32 {
            let wakers = self.shard(index).release_tags(owner);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Keeps the before-image of a row that a commit is about to change, under the leaf's latch.
    /// The commit has the row locked. Returns the bytes kept.
    pub(crate) fn keep(
        &self,
        row: RowRef,
        timestamp: u64,
        before: Option<(&[u8], LeafValue)>,
        delete: bool,
    ) -> usize {
        let image = match before {
            None => BeforeImage::Absent,
            Some((page, value)) => {
                let bytes = page.get(value.offset..value.offset + value.len).unwrap_or_default();
                if value.overflow {
                    BeforeImage::Large(bytes.into())
                } else {
                    BeforeImage::Inline(bytes.into())
                }
            }
        };
        let image_bytes = match &image {
            BeforeImage::Absent => 0,
            BeforeImage::Inline(value) => value.memory_bytes(),
            BeforeImage::Large(descriptor) => descriptor.len(),
        };
        let mut shard = self.shard(row.shard);
        let entry = shard.row(row.at).expect("the row is locked, so it is there");
        let bytes = VERSION_BYTES + image_bytes + entry.key().len();
        debug_assert!(
            entry.newest() < timestamp,
            "changes of a row come in the order of their timestamps"
        );
        entry.versions.push(Version { timestamp, image });
        if delete {
            entry.listed = true;
            // Earlier values of the row are in the runs, or no snapshot needs them.
            let born = match entry.versions.iter().next() {
                Some(Version { timestamp, image: BeforeImage::Absent }) => *timestamp,
                _ => 0,
            };
            let (list, key) = (self.list(entry.tree), Arc::from(entry.key()));
            let mut keys = list.keys.lock();
            keys.insert(entry.tree, key, Span { born, gone: timestamp });
            // Release: pairs with the load in `deleted`.
            list.newest.fetch_max(timestamp, Ordering::Release);
        }
        bytes
    }

    fn list(&self, tree: u32) -> &List {
        &self.deleted[tree as usize & (LISTS - 1)]
    }

    /// Passes the version that a row had at a snapshot to `take`, unless it is the one in the leaf.
    pub(crate) fn at<T>(
        &self,
        tree: u32,
        key: &[u8],
        snapshot: u64,
        take: impl FnOnce(&Version) -> T,
    ) -> Option<T> {
        let hash = hash_of(tree, key);
        let shard = self.shard(hash as u32 & (SHARDS as u32 - 1));
        let at = shard.find(hash, tree, key)?;
        shard.row_ref(at)?.at(snapshot).map(take)
    }

    /// Whether a commit above `after` and below `before` changed a row.
    pub(crate) fn changed(&self, tree: u32, key: &[u8], after: u64, before: u64) -> bool {
        let hash = hash_of(tree, key);
        let shard = self.shard(hash as u32 & (SHARDS as u32 - 1));
        let row = shard.find(hash, tree, key).and_then(|at| shard.row_ref(at));
        row.and_then(|row| row.versions.next(after))
            .is_some_and(|version| version.timestamp < before)
    }

    /// Returns the wanted keys of a range that a leaf may no longer have, in the range's order, at
    /// most `most`.
    pub(crate) fn deleted(
        &self,
        tree: u32,
        bounds: Bounds<'_>,
        direction: Direction,
        wanted: Wanted,
        most: usize,
    ) -> Found {
        let list = self.list(tree);
        // Acquire: a deletion that the leaf shows has already added its key.
        if !wanted.is_after(list.newest.load(Ordering::Acquire)) {
            return Found::default();
        }
        let found = Vec::with_capacity(most);
        let keys = list.keys.lock();
        keys.find(tree, bounds, direction, wanted, most, found)
    }

    /// Passes the values of a row that commits up to `upto` replaced to `visit`.
    pub(crate) fn visit_older(
        &self,
        row: RowRef,
        upto: u64,
        mut visit: impl FnMut(u32, &[u8], &Version),
    ) {
        let shard = self.shard(row.shard);
        let Some(entry) = shard.row_ref(row.at) else { return };
        let older = entry.versions.iter().take_while(|version| version.timestamp <= upto);
        older.for_each(|version| visit(entry.tree, entry.key(), version));
    }

    /// Drops the values of a row that no snapshot at or above `oldest` needs. The descriptors of
    /// large ones are added to `large`.
    pub(crate) fn collect(&self, row: RowRef, oldest: u64, large: &mut Vec<Box<[u8]>>) {
        let mut shard = self.shard(row.shard);
        let Some(entry) = shard.row(row.at) else { return };
        let forgot = entry.versions.forget(oldest, |image| {
            if let BeforeImage::Large(descriptor) = image {
                large.push(descriptor);
            }
        });
        if !forgot {
            return;
        }
        if entry.versions.is_empty() {
            if std::mem::take(&mut entry.listed) {
                let list = self.list(entry.tree);
                let mut keys = list.keys.lock();
                keys.remove(entry.tree, entry.key());
            }
            shard.remove_if_idle(row.at);
        }
    }

    /// Wakes all tasks that wait for a lock: they return that the store is being closed.
    pub(crate) fn wake_all(&self) {
        let mut wakers = Vec::new();
        for index in 0..SHARDS as u32 {
            self.shard(index).for_each(|row| wakers.extend(row.wakers().cloned()));
        }
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Keys that differ by a counter are spread over many shards, for every length of the key and
    /// every position of the counter. A regression: all short keys were in one shard.
    #[test]
    fn keys_that_count_are_spread_over_the_parts() {
        let parts_of = |keys: &mut dyn Iterator<Item = Vec<u8>>| {
            keys.map(|key| hash_of(7, &key) as u32 & (SHARDS as u32 - 1))
                .collect::<BTreeSet<_>>()
                .len()
        };
        for len in 2..40 {
            for end in 2..=len {
                let key = |number: u16| {
                    let mut key = vec![b'k'; len];
                    key[end - 2..end].copy_from_slice(&number.to_be_bytes());
                    key
                };
                let parts = parts_of(&mut (0..4096).map(key));
                assert!(
                    parts > SHARDS * 9 / 10,
                    "{parts} parts: {len} bytes, counting up to {end}"
                );
            }
        }
        let parts =
            parts_of(&mut (0..10_000).map(|number| format!("user{number:06}").into_bytes()));
        assert!(parts > SHARDS * 9 / 10, "{parts} parts of digits");
    }

    /// A regression: a range got all of very many deleted keys, instead of those that it asks for
    /// and that its snapshot sees.
    #[test]
    fn a_range_is_given_the_deleted_keys_that_it_wants() {
        const KEYS: u32 = 20_000;
        let rows = Rows::new(&Planted::default());
        let value = LeafValue { offset: 0, len: 5, overflow: false };
        for i in 0..KEYS {
            let Locking::Taken(row, _) = rows.lock(7, &i.to_be_bytes(), 1) else { panic!("{i}") };
            // Half of the keys were there before, and half were made in between.
            if i % 2 == 1 {
                rows.keep(row, 10, None, false);
            }
            rows.keep(row, 20 + u64::from(i), Some((b"value", value)), true);
            rows.unlock(row, 1);
        }
        let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
        let found = |snapshot, most| {
            rows.deleted(7, all, Direction::Forward, Wanted::seen_at(snapshot), most).keys
        };
        let first = |keys: &[Arc<[u8]>]| keys.first().map(|key| key.to_vec());
        assert!(found(20 + u64::from(KEYS), 16).is_empty(), "all were deleted before");
        let old = found(9, 16);
        assert_eq!((old.len(), first(&old)), (16, Some(0u32.to_be_bytes().to_vec())));
        assert!(old.iter().all(|key| key[3] % 2 == 0), "what was made after it");
        let recent = found(20 + u64::from(KEYS) - 3, 16);
        assert_eq!(first(&recent), Some((KEYS - 2).to_be_bytes().to_vec()));
        assert_eq!(recent.len(), 2);
    }
}
