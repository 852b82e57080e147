//! The rows of a shard beyond the few with a place near its lock: a hash table.
//!
//! Invariant: a row's place stays the same as long as the row exists. Places are reused.

use super::row::Row;

/// The end of a chain.
const NONE: u32 = u32::MAX;

/// A hash table with chains through its rows.
pub(super) struct OverflowTable {
    buckets: Vec<u32>,
    rows: Vec<Row>,
    vacant: u32,
    used: usize,
}

impl Default for OverflowTable {
    fn default() -> Self {
        Self { buckets: vec![NONE; 16], rows: Vec::new(), vacant: NONE, used: 0 }
    }
}

impl OverflowTable {
    fn bucket(&self, hash: u64) -> usize {
        // The low bits chose the shard.
        (hash >> 32) as usize & (self.buckets.len() - 1)
    }

    /// Returns the place of a row.
    pub(super) fn find(&self, hash: u64, tree: u32, key: &[u8]) -> Option<u32> {
        let mut at = self.buckets[self.bucket(hash)];
        while at != NONE {
            let row = &self.rows[at as usize];
            if row.is(hash, tree, key) {
                return Some(at);
            }
            at = row.next;
        }
        None
    }

    /// Adds a row, which must not exist, and returns its place.
    pub(super) fn add(&mut self, hash: u64, tree: u32, key: &[u8]) -> u32 {
        if self.used >= self.buckets.len() {
            self.grow();
        }
        let at = match self.vacant {
            NONE => {
                self.rows.push(Row::default());
                self.rows.len() as u32 - 1
            }
            at => {
                self.vacant = self.rows[at as usize].next;
                at
            }
        };
        let bucket = self.bucket(hash);
        let row = &mut self.rows[at as usize];
        row.become_of(hash, tree, key);
        row.next = self.buckets[bucket];
        self.buckets[bucket] = at;
        self.used += 1;
        at
    }

    fn grow(&mut self) {
        let mut buckets = std::mem::take(&mut self.buckets);
        self.buckets = vec![NONE; buckets.len() * 2];
        for first in buckets.drain(..) {
            let mut at = first;
            while at != NONE {
                let next = self.rows[at as usize].next;
                let bucket = self.bucket(self.rows[at as usize].hash);
                self.rows[at as usize].next = self.buckets[bucket];
                self.buckets[bucket] = at;
                at = next;
            }
        }
    }

    /// Returns the row at a place that [`OverflowTable::find`] or [`OverflowTable::add`] returned.
    pub(super) fn row(&mut self, at: u32) -> &mut Row {
        &mut self.rows[at as usize]
    }

    pub(super) fn row_ref(&self, at: u32) -> &Row {
        &self.rows[at as usize]
    }

    /// Removes a row that no transaction needs any more.
    pub(super) fn remove_if_idle(&mut self, at: u32) {
        let row = &self.rows[at as usize];
        if !row.is_idle() {
            return;
        }
        let bucket = self.bucket(row.hash);
        let mut before = self.buckets[bucket];
        if before == at {
            self.buckets[bucket] = self.rows[at as usize].next;
        } else {
            loop {
                // A place that is already vacant is in no chain.
                if before == NONE {
                    return;
                }
                let next = self.rows[before as usize].next;
                if next == at {
                    break;
                }
                before = next;
            }
            self.rows[before as usize].next = self.rows[at as usize].next;
        }
        let vacant = self.vacant;
        let row = &mut self.rows[at as usize];
        row.next = vacant;
        row.shrink();
        self.vacant = at;
        self.used -= 1;
    }

    /// Calls `visit` with every row and its place.
    pub(super) fn for_each(&mut self, mut visit: impl FnMut(u32, &mut Row)) {
        for bucket in 0..self.buckets.len() {
            let mut at = self.buckets[bucket];
            while at != NONE {
                let row = &mut self.rows[at as usize];
                let here = std::mem::replace(&mut at, row.next);
                visit(here, row);
            }
        }
    }

    /// Returns the number of rows.
    pub(super) fn len(&self) -> usize {
        self.used
    }
}
