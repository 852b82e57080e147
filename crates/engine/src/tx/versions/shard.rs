//! One shard of the row table: rows by tree and key, in places that are reused.
//!
//! Invariant: a row exists as long as a transaction holds its lock or waits for it, or an older
//! value of it is kept. Meanwhile its place in the shard stays the same. Of a locked row that
//! nobody waits for, and that has no older values, the owner may leave a tag in its place: a row
//! that is made for a key with this tag is its owner's.
//!
//! Workers take turns in a shard, and each cache line that two of them touch moves between their
//! cores. So the first few rows of a shard are found by the tags beside its lock, and use memory
//! that the worker that makes them had before. Most shards never have more rows; those beyond are
//! in an [`OverflowTable`].

use std::cell::RefCell;
use std::task::Waker;

use super::overflow_table::OverflowTable;
use super::row::{FREE, Row};

/// The number of places beside the lock.
const NEAR: usize = 8;
/// The number of rows that a thread keeps for reuse.
const SPARE_MAX: usize = 1024;

thread_local! {
    #[expect(clippy::vec_box, reason = "a row goes from here to its part by its address")]
    static SPARE: RefCell<Vec<Box<Row>>> = const { RefCell::new(Vec::new()) };
}

/// Rows by tree and key.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Shard {
    /// A bit for each near place that has a row.
    taken: u32,
    /// The tag of the row in each near place.
    near_tags: [u32; NEAR],
    near: [Option<Box<Row>>; NEAR],
    overflow_table: Option<Box<OverflowTable>>,
    /// The locks of large transactions whose rows are not here.
    tags: Option<Box<TagSets>>,
}

/// The tags in a shard, of all transactions that have some.
#[derive(Default)]
struct TagSets {
    all: Vec<Tags>,
}

/// The rows of a shard that one transaction has locked, without the rows.
struct Tags {
    owner: u64,
    /// The [tags](tag_of) of the rows, ascending.
    tags: Vec<u32>,
}

// A shard and the lock before it take two cache lines.
const _: () = assert!(size_of::<Shard>() <= 120);

/// Returns the part of a row's hash that tells rows of a shard apart, most of the time.
fn tag_of(hash: u64) -> u32 {
    (hash >> 32) as u32
}

impl Shard {
    /// Returns the place of a row.
    #[inline]
    pub(crate) fn find(&self, hash: u64, tree: u32, key: &[u8]) -> Option<u32> {
        let mut left = self.taken;
        while left != 0 {
            let at = left.trailing_zeros();
            if self.near_tags[at as usize] == tag_of(hash)
                && self.near[at as usize].as_ref().is_some_and(|row| row.is(hash, tree, key))
            {
                return Some(at);
            }
            left &= left - 1;
        }
        let overflow_table =
            self.overflow_table.as_ref().filter(|overflow_table| overflow_table.len() > 0)?;
        Some(NEAR as u32 + overflow_table.find(hash, tree, key)?)
    }

    /// Returns the place of a row, and the row, which is added if it does not exist.
    #[inline]
    pub(crate) fn find_or_add(&mut self, hash: u64, tree: u32, key: &[u8]) -> (u32, &mut Row) {
        let at = match self.find(hash, tree, key) {
            Some(at) => at,
            None => {
                let (at, owner) = (self.add(hash, tree, key), self.owner_of_tag(hash));
                if let (Some(owner), Some(row)) = (owner, self.row(at)) {
                    row.owner = owner;
                }
                at
            }
        };
        (at, self.row(at).expect("a row that was found, or made"))
    }

    /// Returns the transaction that has locked a row with this hash, if its rows are not here.
    #[inline]
    fn owner_of_tag(&self, hash: u64) -> Option<u64> {
        let all = &self.tags.as_ref()?.all;
        let has = |of: &&Tags| of.tags.binary_search(&tag_of(hash)).is_ok();
        all.iter().find(has).map(|of| of.owner)
    }

    /// Replaces locked rows of a transaction by their tags. Rows that others wait for, or that have
    /// older values, stay; so do those whose tag is another transaction's. Returns the number of
    /// new tags. The transaction must end with [`Shard::release_tags`].
    pub(crate) fn replace_by_tags(&mut self, owner: u64, rows: impl Iterator<Item = u32>) -> usize {
        let mut sets = self.tags.take().unwrap_or_default();
        let all = &mut sets.all;
        let is_own = |of: &&mut Tags| of.owner == owner;
        let mut tags = match all.iter_mut().find(is_own) {
            Some(of) => std::mem::take(&mut of.tags),
            None => {
                all.push(Tags { owner, tags: Vec::new() });
                Vec::new()
            }
        };
        let before = tags.len();
        for at in rows {
            let row = self.row(at).filter(|row| row.owner == owner && row.is_only_locked());
            let Some(row) = row else { continue };
            let tag = tag_of(row.hash);
            if all.iter().any(|of| of.tags.binary_search(&tag).is_ok()) {
                continue;
            }
            row.owner = FREE;
            self.remove_if_idle(at);
            tags.push(tag);
        }
        tags.sort_unstable();
        tags.dedup();
        let more = tags.len() - before;
        all.iter_mut().find(is_own).into_iter().for_each(|of| of.tags = std::mem::take(&mut tags));
        self.tags = Some(sets);
        more
    }

    /// Releases the locks of a transaction that has tags here: removes the tags, and releases all
    /// its rows. Returns the waiters to wake.
    pub(crate) fn release_tags(&mut self, owner: u64) -> Vec<Waker> {
        let Some(TagSets { all }) = self.tags.as_deref_mut() else { return Vec::new() };
        let before = all.len();
        all.retain(|of| of.owner != owner);
        if all.len() == before {
            return Vec::new();
        }
        if all.is_empty() {
            self.tags = None;
        }
        let (mut wakers, mut released) = (Vec::new(), Vec::new());
        self.for_each_place(|at, row| {
            if row.owner == owner {
                wakers.extend(row.release());
                released.push(at);
            }
        });
        released.into_iter().for_each(|at| self.remove_if_idle(at));
        wakers
    }

    fn add(&mut self, hash: u64, tree: u32, key: &[u8]) -> u32 {
        let at = self.taken.trailing_ones();
        let Some(near) = self.near.get_mut(at as usize) else {
            return NEAR as u32 + self.overflow_table.get_or_insert_default().add(hash, tree, key);
        };
        // A thread that is ending has no spare rows any more.
        let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
        near.insert(spare.unwrap_or_default()).become_of(hash, tree, key);
        self.near_tags[at as usize] = tag_of(hash);
        self.taken |= 1 << at;
        at
    }

    /// Returns the row at a place from [`Shard::find`] or [`Shard::find_or_add`]. If that row was
    /// removed since, returns `None` or another row.
    #[inline]
    pub(crate) fn row(&mut self, at: u32) -> Option<&mut Row> {
        match self.near.get_mut(at as usize) {
            Some(near) => near.as_deref_mut(),
            None => Some(self.overflow_table.as_mut()?.row(at - NEAR as u32)),
        }
    }

    /// Like [`Shard::row`], for reading.
    pub(crate) fn row_ref(&self, at: u32) -> Option<&Row> {
        match self.near.get(at as usize) {
            Some(near) => near.as_deref(),
            None => Some(self.overflow_table.as_ref()?.row_ref(at - NEAR as u32)),
        }
    }

    /// Removes a row that is not needed any more.
    #[inline]
    pub(crate) fn remove_if_idle(&mut self, at: u32) {
        let Some(near) = self.near.get_mut(at as usize) else {
            if let Some(overflow_table) = &mut self.overflow_table {
                overflow_table.remove_if_idle(at - NEAR as u32);
            }
            return;
        };
        if let Some(mut row) = near.take_if(|row| row.is_idle()) {
            self.taken &= !(1 << at);
            row.shrink();
            let _ = SPARE.try_with(|spare| {
                let mut spare = spare.borrow_mut();
                if spare.len() < SPARE_MAX {
                    spare.push(row);
                }
            });
        }
    }

    /// Calls `visit` with every row.
    pub(crate) fn for_each(&mut self, mut visit: impl FnMut(&mut Row)) {
        self.for_each_place(|_, row| visit(row));
    }

    /// Calls `visit` with every row and its place.
    fn for_each_place(&mut self, mut visit: impl FnMut(u32, &mut Row)) {
        for (at, row) in self.near.iter_mut().enumerate() {
            row.iter_mut().for_each(|row| visit(at as u32, row));
        }
        if let Some(overflow_table) = &mut self.overflow_table {
            overflow_table.for_each(|at, row| visit(NEAR as u32 + at, row));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    impl Shard {
        fn len(&self) -> usize {
            self.near.iter().flatten().count()
                + self.overflow_table.as_ref().map_or(0, |overflow_table| overflow_table.len())
        }
    }

    /// Compares random additions and removals, with hashes that collide, with a map.
    #[test]
    fn rows_come_and_go() {
        let mut random = fastrand::Rng::with_seed(11);
        let mut shard = Shard::default();
        let mut model = BTreeMap::new();
        for _ in 0..50_000 {
            let key = random.u32(0..200).to_le_bytes();
            let (tree, hash) = (random.u32(0..2), u64::from(key[0] % 16) << 32);
            if random.bool() {
                let (at, row) = shard.find_or_add(hash, tree, &key);
                row.owner = 5;
                assert_eq!(*model.entry((tree, key)).or_insert(at), at);
            } else if let Some(at) = model.remove(&(tree, key)) {
                assert_eq!(shard.find(hash, tree, &key), Some(at));
                shard.remove_if_idle(at);
                assert_eq!(shard.find(hash, tree, &key), Some(at), "it is locked");
                shard.row(at).expect("it is there").owner = FREE;
                shard.remove_if_idle(at);
            } else {
                assert_eq!(shard.find(hash, tree, &key), None);
            }
            assert_eq!(shard.len(), model.len());
        }
        let mut seen = 0;
        shard.for_each(|_| seen += 1);
        assert_eq!(seen, model.len());
    }

    /// Compares locks, of which some are tags, with a map of owners. Keys of two trees collide in
    /// their tags.
    #[test]
    fn a_tag_is_as_good_as_a_locked_row() {
        let mut random = fastrand::Rng::with_seed(12);
        let mut shard = Shard::default();
        let mut model: BTreeMap<u32, u64> = BTreeMap::new();
        let hash = |key: u32| u64::from(key % 150) << 32;
        let row = |shard: &mut Shard, key: u32| {
            let (at, row) = shard.find_or_add(hash(key), 1, &key.to_le_bytes());
            (at, row.owner)
        };
        for step in 0..200_000u32 {
            let (key, owner) = (random.u32(0..200), random.u64(1..4));
            // Of two keys with one tag, one may be locked in vain while the other is.
            let twin = if key < 50 { key + 150 } else { key.wrapping_sub(150) };
            match random.u8(0..10) {
                0..6 => {
                    let (at, found) = row(&mut shard, key);
                    match model.get(&key) {
                        Some(expected) => assert_eq!(found, *expected, "step {step}"),
                        None if found == FREE => {
                            shard.row(at).expect("it is there").owner = owner;
                            model.insert(key, owner);
                        }
                        None => assert_eq!(model.get(&twin), Some(&found), "step {step}"),
                    }
                    shard.remove_if_idle(at);
                }
                6 | 7 => {
                    let own: Vec<u32> =
                        model.iter().filter(|(_, of)| **of == owner).map(|(key, _)| *key).collect();
                    let own: Vec<u32> = own.into_iter().filter(|_| random.bool()).collect();
                    let rows: Vec<u32> = own.iter().map(|key| row(&mut shard, *key).0).collect();
                    shard.replace_by_tags(owner, rows.into_iter());
                }
                8 if random.u8(0..10) == 0 => {
                    // A transaction without tags releases its rows one by one.
                    shard.replace_by_tags(owner, std::iter::empty());
                    assert!(shard.release_tags(owner).is_empty(), "nobody waits");
                    model.retain(|_, of| *of != owner);
                }
                _ => {}
            }
        }
        for owner in 1..4 {
            shard.replace_by_tags(owner, std::iter::empty());
            shard.release_tags(owner);
        }
        assert!(shard.len() == 0 && shard.tags.is_none());
    }

    /// Tests keys of every length around the longest that lies in a row.
    #[test]
    fn long_keys_are_found() {
        let mut shard = Shard::default();
        let keys: Vec<Vec<u8>> = (0..70).map(|len| vec![7; len]).collect();
        let places: Vec<u32> = keys.iter().map(|key| shard.find_or_add(1, 2, key).0).collect();
        for (key, at) in keys.iter().zip(places) {
            assert_eq!(shard.find(1, 2, key), Some(at));
            assert_eq!(shard.row_ref(at).map(Row::key), Some(&key[..]));
            shard.remove_if_idle(at);
            assert_eq!(shard.find(1, 2, key), None);
        }
    }
}
