//! A row that is locked, or has older values.

use std::collections::BTreeMap;
use std::task::Waker;

use super::old_bytes::OldBytes;

/// The owner of a lock that no transaction holds.
pub(crate) const FREE: u64 = 0;
/// The number of older values, beyond the first, for which a reused row keeps memory.
const VERSIONS_KEPT: usize = 8;
/// The length of the longest key that lies in its row, in bytes.
pub(in crate::tx) const INLINE_KEY_BYTES: usize = 30;

/// The contents of a row before a commit changed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BeforeImage {
    /// The key had no record.
    Absent,
    /// A value in the leaf.
    Inline(OldBytes),
    /// The descriptor of a large value; its pages are freed with this image.
    Large(Box<[u8]>),
}

impl BeforeImage {
    /// Returns the value, or the descriptor of a large one, and which; `None` if there was no
    /// record.
    pub(crate) fn record(&self) -> Option<(&[u8], bool)> {
        match self {
            Self::Absent => None,
            Self::Inline(value) => Some((value, false)),
            Self::Large(descriptor) => Some((descriptor, true)),
        }
    }
}

/// An older value of a row.
#[derive(Debug)]
pub(crate) struct Version {
    /// The commit that replaced the value.
    pub(crate) timestamp: u64,
    pub(crate) image: BeforeImage,
}

/// How often a free lock may be taken past the longest waiter, before it passes directly to that
/// waiter.
const PASSED_MAX: u32 = 64;

/// A transaction that waits for a row's lock.
struct Waiter {
    owner: u64,
    /// `None`: the transaction was woken and has not run yet.
    waker: Option<Waker>,
}

/// The place of a waiter in the queue of a row's lock.
pub(crate) type Place = Option<u64>;

/// The waiters for a row's lock, in the order in which they came.
#[derive(Default)]
struct Queue {
    waiters: BTreeMap<u64, Waiter>,
    /// The number of waiters that have ever entered the queue.
    came: u64,
    /// How often others took the lock while the first waiter was there.
    passed: u32,
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

/// Older values of a row, in the order of their timestamps. Most rows have at most one, which lies
/// in the row.
#[derive(Default)]
pub(crate) struct Versions {
    /// The oldest value.
    first: Option<Version>,
    /// The later values; empty if there is no first one.
    more: Vec<Version>,
}

impl Versions {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    fn last(&self) -> Option<&Version> {
        self.more.last().or(self.first.as_ref())
    }

    /// Returns all values, in the order of their timestamps.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Version> {
        self.first.iter().chain(&self.more)
    }

    /// Returns the oldest value that a commit above `after` replaced.
    pub(crate) fn next(&self, after: u64) -> Option<&Version> {
        match &self.first {
            Some(first) if first.timestamp <= after => {
                self.more.get(self.more.partition_point(|version| version.timestamp <= after))
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

    /// Removes the values that commits up to `oldest` replaced, and passes them to `take`; returns
    /// whether there were any.
    pub(crate) fn forget(&mut self, oldest: u64, mut take: impl FnMut(BeforeImage)) -> bool {
        if self.first.as_ref().is_none_or(|first| first.timestamp > oldest) {
            return false;
        }
        self.first.take().into_iter().for_each(|version| take(version.image));
        if !self.more.is_empty() {
            let count = self.more.partition_point(|version| version.timestamp <= oldest);
            self.more.drain(..count).for_each(|version| take(version.image));
            if !self.more.is_empty() {
                self.first = Some(self.more.remove(0));
            }
        }
        true
    }
}

/// A row that is locked, or has older values. Finding and locking touch one cache line, the older
/// values another.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Row {
    pub(super) hash: u64,
    /// The next row in the hash chain.
    pub(super) next: u32,
    pub(crate) tree: u32,
    key: Key,
    /// The transaction that has the lock, or [`FREE`].
    pub(crate) owner: u64,
    /// The waiters for the lock; `None` if there are none.
    queue: Option<Box<Queue>>,
    pub(crate) versions: Versions,
    /// Whether the key is in the list of deleted keys.
    pub(crate) listed: bool,
}

const _: () = assert!(size_of::<Row>() == 128);

impl Row {
    /// Whether the row is of this key.
    pub(super) fn is(&self, hash: u64, tree: u32, key: &[u8]) -> bool {
        self.hash == hash && self.tree == tree && self.key() == key
    }

    /// Makes an idle row the row of this key.
    pub(super) fn become_of(&mut self, hash: u64, tree: u32, key: &[u8]) {
        (self.hash, self.tree, self.key) = (hash, tree, Key::new(key));
    }

    /// Frees most of an idle row's memory.
    pub(super) fn shrink(&mut self) {
        if matches!(self.key, Key::Heap(_)) {
            self.key = Key::default();
        }
        if self.versions.more.capacity() > VERSIONS_KEPT {
            self.versions.more = Vec::new();
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.key.bytes()
    }

    /// Returns the newest commit that is known to have changed the row, or 0.
    pub(crate) fn newest(&self) -> u64 {
        self.versions.last().map_or(0, |version| version.timestamp)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.owner == FREE && self.queue.is_none() && self.versions.is_empty()
    }

    /// Whether nothing needs the row but the lock.
    pub(super) fn is_only_locked(&self) -> bool {
        self.queue.is_none() && self.versions.is_empty()
    }

    /// Returns the version that the row had at a snapshot, unless it is the one in the leaf.
    pub(crate) fn at(&self, snapshot: u64) -> Option<&Version> {
        self.versions.next(snapshot)
    }

    /// Takes the lock if it is free, past the waiters; returns whether `owner` has it now.
    pub(crate) fn take(&mut self, owner: u64) -> bool {
        if self.owner == FREE {
            self.owner = owner;
            if let Some(queue) = &mut self.queue {
                queue.passed += 1;
            }
        }
        self.owner == owner
    }

    /// Takes the lock if it is free, or waits for it: at the end of the queue, or at its place
    /// there with a new waker. Returns whether `owner` has it now.
    pub(crate) fn take_or_wait(&mut self, owner: u64, place: &mut Place, waker: &Waker) -> bool {
        if self.take(owner) {
            self.forget(owner, *place);
            return true;
        }
        let queue = self.queue.get_or_insert_default();
        let waits = place.and_then(|place| queue.waiters.get_mut(&place));
        match waits.filter(|waiter| waiter.owner == owner) {
            Some(waiter) => waiter.waker = Some(waker.clone()),
            None => {
                *place = Some(queue.came);
                queue.waiters.insert(queue.came, Waiter { owner, waker: Some(waker.clone()) });
                queue.came += 1;
            }
        }
        false
    }

    /// Takes a transaction that does not have the lock out of the queue; returns the waker of the
    /// one to wake instead.
    pub(crate) fn leave(&mut self, owner: u64, place: Place) -> Option<Waker> {
        self.forget(owner, place);
        match self.owner {
            FREE => self.queue.as_mut()?.waiters.values_mut().next()?.waker.take(),
            _ => None,
        }
    }

    fn forget(&mut self, owner: u64, place: Place) {
        let (Some(queue), Some(place)) = (&mut self.queue, place) else { return };
        // A waiter that got the lock directly has left the queue, and another may have its place in
        // a later queue.
        if queue.waiters.get(&place).is_none_or(|waiter| waiter.owner != owner) {
            return;
        }
        if queue.waiters.first_key_value().is_some_and(|(first, _)| *first == place) {
            queue.passed = 0;
        }
        queue.waiters.remove(&place);
        if queue.waiters.is_empty() {
            self.queue = None;
        }
    }

    /// Releases the lock and returns the first waiter's waker. That waiter finds the lock free,
    /// unless another transaction takes it first; after [`PASSED_MAX`] times the waiter gets the
    /// lock directly.
    pub(crate) fn release(&mut self) -> Option<Waker> {
        self.owner = FREE;
        let queue = self.queue.as_mut()?;
        let (place, first) = queue.waiters.iter_mut().next()?;
        let waker = first.waker.take();
        if queue.passed >= PASSED_MAX {
            let (owner, place) = (first.owner, Some(*place));
            self.forget(owner, place);
            self.owner = owner;
        }
        waker
    }

    /// Returns the wakers of the waiters.
    pub(crate) fn wakers(&self) -> impl Iterator<Item = &Waker> {
        self.queue
            .iter()
            .flat_map(|queue| queue.waiters.values())
            .filter_map(|waiter| waiter.waker.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Wakes;

    #[test]
    fn a_snapshot_sees_what_the_next_commit_replaced() {
        let mut row = Row::default();
        assert!(row.at(5).is_none());
        for timestamp in [10, 20] {
            row.versions.push(Version {
                timestamp,
                image: BeforeImage::Inline([timestamp as u8][..].into()),
            });
        }
        let at = |snapshot| row.at(snapshot).map(|version| version.image.clone());
        assert_eq!(at(9), Some(BeforeImage::Inline([10][..].into())));
        assert_eq!(at(10), Some(BeforeImage::Inline([20][..].into())));
        assert_eq!(at(19), Some(BeforeImage::Inline([20][..].into())));
        assert_eq!(at(20), None);
        assert_eq!(row.newest(), 20);
    }

    #[test]
    fn who_waits_is_passed_so_often_and_then_handed_the_lock() {
        let (wakes, waker) = Wakes::counted();
        let mut row = Row::default();
        let mut place = None;
        assert!(row.take(1) && !row.take_or_wait(2, &mut place, &waker));
        for passed in 0..PASSED_MAX {
            row.release().expect("the first is woken").wake();
            assert_eq!((row.owner, wakes.count()), (FREE, passed + 1));
            assert!(row.take(3), "a free lock is anybody's");
            assert!(!row.take_or_wait(2, &mut place, &waker), "the late waiter waits on");
        }
        row.release().expect("the first is woken").wake();
        assert!(row.owner == 2 && !row.take(3), "the waiter was passed too often");
        assert!(
            row.take_or_wait(2, &mut place, &waker) && row.release().is_none() && row.is_idle()
        );
    }

    /// A regression: each task that began or continued to wait looked at all waiting tasks.
    #[test]
    fn ten_thousand_wait_for_a_row_in_the_order_in_which_they_came() {
        const TASKS: u64 = 10_000;
        let (wakes, waker) = Wakes::counted();
        let (mut row, mut places) = (Row::default(), vec![None; TASKS as usize + 2]);
        assert!(row.take(1));
        for _ in 0..3 {
            (2..TASKS + 2).for_each(|owner| {
                assert!(!row.take_or_wait(owner, &mut places[owner as usize], &waker));
            });
        }
        assert_eq!(row.wakers().count() as u64, TASKS);
        let of = |owner: u64, places: &[Place]| places[owner as usize];
        // Every second task leaves while it waits.
        (2..TASKS + 2).step_by(2).for_each(|owner| {
            assert!(row.leave(owner, of(owner, &places)).is_none());
        });
        for owner in (3..TASKS + 2).step_by(2) {
            row.release().expect("the next is woken").wake();
            assert!(row.take_or_wait(owner, &mut places[owner as usize], &waker));
        }
        assert!(row.release().is_none() && row.is_idle());
        assert_eq!(u64::from(wakes.count()), TASKS / 2);
    }

    #[test]
    fn a_wake_that_nobody_comes_for_goes_on_to_the_next() {
        let ((first, waker), (second, other)) = (Wakes::counted(), Wakes::counted());
        let mut row = Row::default();
        assert!(row.take(1));
        let mut places = [None; 2];
        assert!(!row.take_or_wait(2, &mut places[0], &waker));
        assert!(!row.take_or_wait(3, &mut places[1], &other));
        row.release().expect("the first is woken").wake();
        assert!(row.take(4) && row.release().is_none(), "the waiter is awake already");
        row.leave(2, places[0]).expect("the second is woken instead").wake();
        assert_eq!((first.count(), second.count()), (1, 1));
        // A task that leaves while another holds the lock wakes no task: the release does.
        assert!(row.take(5) && row.leave(3, places[1]).is_none());
        assert!(row.release().is_none() && row.is_idle());
    }

    /// Compares random changes of the versions with a list.
    #[test]
    fn versions_are_an_ordered_list() {
        let mut random = fastrand::Rng::with_seed(5);
        let (mut versions, mut model) = (Versions::default(), Vec::new());
        for timestamp in 1..5000u64 {
            if random.bool() {
                versions.push(Version { timestamp, image: BeforeImage::Absent });
                model.push(timestamp);
            } else {
                let oldest = timestamp - random.u64(0..12).min(timestamp);
                let (before, mut taken) = (model.len(), 0);
                model.retain(|timestamp| *timestamp > oldest);
                assert_eq!(versions.forget(oldest, |_| taken += 1), before > model.len());
                assert_eq!(taken, before - model.len());
            }
            let after = timestamp - random.u64(0..12).min(timestamp);
            let next = model.iter().copied().find(|timestamp| *timestamp > after);
            assert_eq!(versions.next(after).map(|version| version.timestamp), next);
            assert_eq!(versions.last().map(|version| version.timestamp), model.last().copied());
            assert_eq!(versions.is_empty(), model.is_empty());
        }
    }
}
