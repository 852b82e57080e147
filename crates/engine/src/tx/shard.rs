//! One part of the row table: rows by tree and key, in places that are used again.
//!
//! What always holds: a row is there as long as somebody holds its lock, waits for it, or an older value of it is kept;
//! then its place in the shard stays the same.

use std::collections::VecDeque;
use std::task::Waker;

/// No place.
const NONE: u32 = u32::MAX;
/// Nobody holds the lock.
pub(crate) const FREE: u64 = 0;
/// Older values beside the first for which a row that is used again keeps room.
const VERSIONS_KEPT: usize = 8;
/// Longest key that lies in its row.
const INLINE_KEY_BYTES: usize = 30;

/// What a row held before a commit changed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Image {
    /// Nothing: there was no such key.
    Absent,
    /// A value in the leaf.
    Inline(Box<[u8]>),
    /// The descriptor of a large value; its pages go with this image.
    Large(Box<[u8]>),
}

/// An older value of a row.
#[derive(Debug)]
pub(crate) struct Version {
    /// The commit that replaced it.
    pub(crate) stamp: u64,
    pub(crate) image: Image,
}

/// Who waits for a row's lock.
pub(crate) struct Waiter {
    pub(crate) owner: u64,
    pub(crate) waker: Waker,
}

/// A row's key; short ones lie in the row.
enum Key {
    Inline { len: u8, bytes: [u8; INLINE_KEY_BYTES] },
    Heap(Box<[u8]>),
}

impl Default for Key {
    fn default() -> Self {
        Self::Inline { len: 0, bytes: [0; INLINE_KEY_BYTES] }
    }
}

impl Key {
    fn new(key: &[u8]) -> Self {
        let mut bytes = [0; INLINE_KEY_BYTES];
        match bytes.get_mut(..key.len()) {
            Some(target) => {
                target.copy_from_slice(key);
                Self::Inline { len: key.len() as u8, bytes }
            }
            None => Self::Heap(key.into()),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Self::Heap(bytes) => bytes,
        }
    }
}

/// Older values of a row, in the order of their stamps. Most rows have one at most, which lies in the row.
#[derive(Default)]
pub(crate) struct Versions {
    /// The oldest.
    first: Option<Version>,
    /// Those after it; empty if there is no first.
    more: Vec<Version>,
}

impl Versions {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    fn last(&self) -> Option<&Version> {
        self.more.last().or(self.first.as_ref())
    }

    /// The oldest of a commit above `after`.
    pub(crate) fn next(&self, after: u64) -> Option<&Version> {
        match &self.first {
            Some(first) if first.stamp <= after => {
                self.more.get(self.more.partition_point(|version| version.stamp <= after))
            }
            first => first.as_ref(),
        }
    }

    pub(crate) fn push(&mut self, version: Version) {
        match self.first {
            None => self.first = Some(version),
            Some(_) => self.more.push(version),
        }
    }

    /// Takes out those of commits up to `oldest`; whether there were any.
    pub(crate) fn forget(&mut self, oldest: u64, mut take: impl FnMut(Image)) -> bool {
        if self.first.as_ref().is_none_or(|first| first.stamp > oldest) {
            return false;
        }
        self.first.take().into_iter().for_each(|version| take(version.image));
        if !self.more.is_empty() {
            let count = self.more.partition_point(|version| version.stamp <= oldest);
            self.more.drain(..count).for_each(|version| take(version.image));
            if !self.more.is_empty() {
                self.first = Some(self.more.remove(0));
            }
        }
        true
    }
}

/// A row that is locked, or has older values. What finding and locking touch is one cache line, the older values another.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Row {
    hash: u64,
    next: u32,
    pub(crate) tree: u32,
    key: Key,
    /// The transaction that has the lock; [`FREE`] if none.
    pub(crate) owner: u64,
    /// Who waits for the lock; none if nobody does.
    #[expect(clippy::box_collection, reason = "one word of the first line, instead of four")]
    waiters: Option<Box<VecDeque<Waiter>>>,
    pub(crate) versions: Versions,
    /// The key is in the list of those that a leaf may no longer have.
    pub(crate) listed: bool,
}

const _: () = assert!(size_of::<Row>() == 128);

impl Row {
    pub(crate) fn key(&self) -> &[u8] {
        self.key.bytes()
    }

    /// The newest commit that is known to have changed the row; 0 if none is.
    pub(crate) fn newest(&self) -> u64 {
        self.versions.last().map_or(0, |version| version.stamp)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.owner == FREE && self.waiters.is_none() && self.versions.is_empty()
    }

    /// What the row held at a snapshot, if that is not what its leaf has.
    pub(crate) fn at(&self, snapshot: u64) -> Option<&Image> {
        self.versions.next(snapshot).map(|version| &version.image)
    }

    /// Puts someone at the end of the queue for the lock, or replaces the waker with which he is there.
    pub(crate) fn wait(&mut self, owner: u64, waker: &Waker) {
        let waiters = self.waiters.get_or_insert_default();
        match waiters.iter_mut().find(|waiter| waiter.owner == owner) {
            Some(waiter) => waiter.waker.clone_from(waker),
            None => waiters.push_back(Waiter { owner, waker: waker.clone() }),
        }
    }

    /// Takes someone out of the queue.
    pub(crate) fn leave(&mut self, owner: u64) {
        if let Some(waiters) = &mut self.waiters {
            waiters.retain(|waiter| waiter.owner != owner);
            if waiters.is_empty() {
                self.waiters = None;
            }
        }
    }

    /// Takes out who has waited longest.
    pub(crate) fn next_waiter(&mut self) -> Option<Waiter> {
        let waiters = self.waiters.as_mut()?;
        let next = waiters.pop_front();
        if waiters.is_empty() {
            self.waiters = None;
        }
        next
    }

    /// Who waits.
    pub(crate) fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        self.waiters.iter().flat_map(|waiters| waiters.iter())
    }
}

/// A hash table with chains through its rows.
pub(crate) struct Shard {
    buckets: Vec<u32>,
    rows: Vec<Row>,
    vacant: u32,
    used: usize,
}

impl Default for Shard {
    fn default() -> Self {
        Self { buckets: vec![NONE; 16], rows: Vec::new(), vacant: NONE, used: 0 }
    }
}

impl Shard {
    fn bucket(&self, hash: u64) -> usize {
        // The low bits chose the shard.
        (hash >> 32) as usize & (self.buckets.len() - 1)
    }

    /// The place of a row.
    pub(crate) fn find(&self, hash: u64, tree: u32, key: &[u8]) -> Option<u32> {
        let mut at = self.buckets[self.bucket(hash)];
        while at != NONE {
            let row = &self.rows[at as usize];
            if row.hash == hash && row.tree == tree && row.key() == key {
                return Some(at);
            }
            at = row.next;
        }
        None
    }

    /// The place of a row, which is made if it is not there.
    pub(crate) fn find_or_add(&mut self, hash: u64, tree: u32, key: &[u8]) -> u32 {
        if let Some(at) = self.find(hash, tree, key) {
            return at;
        }
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
        row.hash = hash;
        row.tree = tree;
        row.key = Key::new(key);
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

    /// A row at a place that [`Shard::find`] or [`Shard::find_or_add`] gave.
    pub(crate) fn row(&mut self, at: u32) -> &mut Row {
        &mut self.rows[at as usize]
    }

    pub(crate) fn row_ref(&self, at: u32) -> &Row {
        &self.rows[at as usize]
    }

    /// Forgets a row that nobody needs any more.
    pub(crate) fn remove_if_idle(&mut self, at: u32) {
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
                // A place that is vacant already is in no chain.
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
        if row.versions.more.capacity() > VERSIONS_KEPT {
            row.versions.more = Vec::new();
        }
        self.vacant = at;
        self.used -= 1;
    }

    /// Calls `visit` with every row that is there.
    pub(crate) fn for_each(&mut self, mut visit: impl FnMut(&mut Row)) {
        for bucket in 0..self.buckets.len() {
            let mut at = self.buckets[bucket];
            while at != NONE {
                let row = &mut self.rows[at as usize];
                at = row.next;
                visit(row);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Rows that come and go against a map; hashes that collide.
    #[test]
    fn rows_come_and_go() {
        let mut random = fastrand::Rng::with_seed(11);
        let mut shard = Shard::default();
        let mut model = BTreeMap::new();
        for _ in 0..50_000 {
            let key = random.u32(0..200).to_le_bytes();
            let (tree, hash) = (random.u32(0..2), u64::from(key[0] % 16) << 32);
            if random.bool() {
                let at = shard.find_or_add(hash, tree, &key);
                shard.row(at).owner = 5;
                assert_eq!(*model.entry((tree, key)).or_insert(at), at);
            } else if let Some(at) = model.remove(&(tree, key)) {
                assert_eq!(shard.find(hash, tree, &key), Some(at));
                shard.remove_if_idle(at);
                assert_eq!(shard.find(hash, tree, &key), Some(at), "it is locked");
                shard.row(at).owner = FREE;
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

    #[test]
    fn a_snapshot_sees_what_the_next_commit_replaced() {
        let mut row = Row::default();
        assert_eq!(row.at(5), None);
        for stamp in [10, 20] {
            row.versions.push(Version { stamp, image: Image::Inline(vec![stamp as u8].into()) });
        }
        let at = |snapshot| row.at(snapshot).cloned();
        assert_eq!(at(9), Some(Image::Inline([10].into())));
        assert_eq!(at(10), Some(Image::Inline([20].into())));
        assert_eq!(at(19), Some(Image::Inline([20].into())));
        assert_eq!(at(20), None);
        assert_eq!(row.newest(), 20);
    }
    /// Keys of every length around the longest that lies in a row.
    #[test]
    fn long_keys_are_found() {
        let mut shard = Shard::default();
        let keys: Vec<Vec<u8>> = (0..70).map(|len| vec![7; len]).collect();
        let places: Vec<u32> = keys.iter().map(|key| shard.find_or_add(1, 2, key)).collect();
        for (key, at) in keys.iter().zip(places) {
            assert_eq!(shard.find(1, 2, key), Some(at));
            assert_eq!(shard.row_ref(at).key(), key);
            shard.remove_if_idle(at);
            assert_eq!(shard.find(1, 2, key), None);
        }
    }

    /// Versions that come and go, against a list.
    #[test]
    fn versions_are_an_ordered_list() {
        let mut random = fastrand::Rng::with_seed(5);
        let (mut versions, mut model) = (Versions::default(), Vec::new());
        for stamp in 1..5000u64 {
            if random.bool() {
                versions.push(Version { stamp, image: Image::Absent });
                model.push(stamp);
            } else {
                let oldest = stamp - random.u64(0..12).min(stamp);
                let (before, mut taken) = (model.len(), 0);
                model.retain(|stamp| *stamp > oldest);
                assert_eq!(versions.forget(oldest, |_| taken += 1), before > model.len());
                assert_eq!(taken, before - model.len());
            }
            let after = stamp - random.u64(0..12).min(stamp);
            let next = model.iter().copied().find(|stamp| *stamp > after);
            assert_eq!(versions.next(after).map(|version| version.stamp), next);
            assert_eq!(versions.last().map(|version| version.stamp), model.last().copied());
            assert_eq!(versions.is_empty(), model.is_empty());
        }
    }
}
