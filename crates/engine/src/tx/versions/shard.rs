//! One shard of the row table: rows by tree and key, in places that are reused.
//!
//! Invariant: a row exists as long as a transaction holds its lock or waits for it, or an older
//! value of it is kept. Meanwhile its place in the shard stays the same.
//!
//! Workers take turns in a shard, and each cache line that two of them touch moves between their
//! cores. So the first few rows of a shard are found by the tags beside its lock, and use memory
//! that the worker that makes them had before. Most shards never have more rows; those beyond are
//! in an [`OverflowTable`].

use std::cell::RefCell;

use super::overflow_table::OverflowTable;
use super::row::Row;

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
    /// The upper half of the hash of the row in each near place.
    tags: [u32; NEAR],
    near: [Option<Box<Row>>; NEAR],
    overflow_table: Option<Box<OverflowTable>>,
}

// A shard and the lock before it take two cache lines.
const _: () = assert!(size_of::<Shard>() <= 120);

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
            if self.tags[at as usize] == tag_of(hash)
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
            None => self.add(hash, tree, key),
        };
        (at, self.row(at).expect("a row that was found, or made"))
    }

    fn add(&mut self, hash: u64, tree: u32, key: &[u8]) -> u32 {
        let at = self.taken.trailing_ones();
        let Some(near) = self.near.get_mut(at as usize) else {
            return NEAR as u32 + self.overflow_table.get_or_insert_default().add(hash, tree, key);
        };
        // A thread that is ending has no spare rows any more.
        let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
        near.insert(spare.unwrap_or_default()).become_of(hash, tree, key);
        self.tags[at as usize] = tag_of(hash);
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
        self.near.iter_mut().flatten().for_each(|row| visit(row));
        if let Some(overflow_table) = &mut self.overflow_table {
            overflow_table.for_each(visit);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::row::FREE;
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
