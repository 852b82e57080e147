//! Keys that will be read soon, and the positions where they were found when they were fetched into
//! the processor's caches.
//!
//! Invariant: a position is only a hint. If a leaf has changed since, its version differs, and the
//! search starts at the root.

use qpair_format::Result;

use crate::shared::Shared;
use crate::task::{Context, run_all};
use crate::tree::{CursorHint, Reach, SIDE_BY_SIDE, Tree, prefetch, prefetch_again};

/// A key and the position where it was found.
#[derive(Clone, Copy, Debug)]
struct Entry {
    tree: Tree,
    key_end: u32,
    cursor_hint: Option<CursorHint>,
}

/// Keys in the order in which they will be read.
#[derive(Debug, Default)]
pub(crate) struct PrefetchSet {
    keys: Vec<u8>,
    entries: Vec<Entry>,
    /// The entry that is expected next.
    next: usize,
}

impl PrefetchSet {
    /// Removes all keys.
    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.entries.clear();
        self.next = 0;
    }

    /// Returns the size of the buffers, in bytes.
    pub(super) fn capacity(&self) -> usize {
        self.keys.capacity().max(self.entries.capacity() * size_of::<Entry>())
    }

    /// Adds a key.
    pub(crate) fn push(&mut self, tree: Tree, key: &[u8]) {
        if tree.is_long(key) {
            self.keys.extend_from_slice(&tree.group_key(key));
        } else {
            self.keys.extend_from_slice(key);
        }
        self.entries.push(Entry { tree, key_end: self.keys.len() as u32, cursor_hint: None });
    }

    fn key(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.entries[before].key_end as usize);
        &self.keys[start..self.entries[index].key_end as usize]
    }

    /// Looks up the keys without a position, as far as their leaves are in memory, and prefetches
    /// their records.
    pub(crate) fn fetch(&mut self, context: Context<'_>) {
        let mut from = 0;
        while from < self.entries.len() {
            let mut sought = [0; SIDE_BY_SIDE];
            let mut count = 0;
            while from < self.entries.len() && count < SIDE_BY_SIDE {
                if self.entries[from].cursor_hint.is_none() {
                    sought[count] = from;
                    count += 1;
                }
                from += 1;
            }
            let sought = &sought[..count];
            let keys = sought.iter().map(|index| (self.entries[*index].tree, self.key(*index)));
            let cursor_hints = prefetch(context, keys);
            for (index, cursor_hint) in sought.iter().zip(cursor_hints) {
                self.entries[*index].cursor_hint = cursor_hint;
            }
        }
    }

    /// Whether all keys were found.
    pub(super) fn is_complete(&self) -> bool {
        self.entries.iter().all(|entry| entry.cursor_hint.is_some())
    }

    /// Loads the leaves of the keys without a position into memory, all at the same time.
    ///
    /// # Errors
    /// The errors of the loads.
    pub(crate) async fn read_missing(&self, shared: &Shared) -> Result<()> {
        let missing = |index: &usize| self.entries[*index].cursor_hint.is_none();
        let reach = |index: usize| Reach::new(self.entries[index].tree, self.key(index));
        run_all(shared, (0..self.entries.len()).filter(missing).map(reach)).await
    }

    /// Prefetches the records again that were found some time ago.
    pub(super) fn fetch_again(&self, context: Context<'_>) {
        prefetch_again(context, self.entries.iter().filter_map(|entry| entry.cursor_hint));
    }

    /// Returns the position of a key, if it is the expected one or the one after.
    #[inline]
    pub(super) fn take(&mut self, tree: u32, key: &[u8]) -> Option<CursorHint> {
        let index = (self.next..self.entries.len())
            .take(2)
            .find(|index| self.entries[*index].tree.id == tree && self.key(*index) == key)?;
        self.next = index + 1;
        self.entries[index].cursor_hint
    }
}

#[cfg(test)]
mod tests {
    use qpair_memory::FrameIndex;

    use super::*;

    #[test]
    fn keys_are_met_in_their_order() {
        let mut ahead = PrefetchSet::default();
        let tree = Tree::new(1, FrameIndex(0));
        for key in [b"a", b"b", b"c", b"d"] {
            ahead.push(tree, key);
        }
        for (key, next) in [(b"x", 0), (b"a", 1), (b"a", 1), (b"c", 3), (b"b", 3), (b"d", 4)] {
            ahead.take(1, key);
            assert_eq!(ahead.next, next, "{key:?}");
        }
        ahead.take(1, b"a");
        ahead.clear();
        ahead.take(1, b"a");
        assert_eq!(ahead.next, 0);
    }
}
