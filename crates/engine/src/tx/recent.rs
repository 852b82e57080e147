//! The keys that commits change while serializable transactions compare what they have read.
//!
//! What always holds: of every commit whose stamp was given after [`Recent::begin`], and that is applied, the keys are here until that
//! [`Comparing`] is dropped; or it is told that some are not.

use std::ops::Bound;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::clock::Clock;

/// Bytes of keys that are kept, at most; beyond that all are forgotten.
const BYTES_MAX: usize = 16 << 20;

/// A key that a commit has changed.
#[derive(Debug)]
pub(super) struct Changed {
    stamp: u64,
    pub(super) tree: u32,
    pub(super) key: Box<[u8]>,
}

#[derive(Debug, Default)]
struct State {
    changed: Vec<Arc<Changed>>,
    bytes: usize,
    /// Some of the commits up to this stamp are missing.
    missing_up_to: u64,
}

#[derive(Debug, Default)]
pub(super) struct Recent {
    comparing: AtomicU32,
    state: Mutex<State>,
}

/// A transaction compares; until it is dropped what is committed is noted.
#[derive(Debug)]
pub(super) struct Comparing {
    recent: Arc<Recent>,
    /// The last stamp that was given before.
    pub(super) since: u64,
}

impl Recent {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what is committed from here on.
    pub(super) fn begin(self: &Arc<Self>, clock: &Clock) -> Comparing {
        // Under the clock's lock: who takes a stamp after this one sees it, and is noted.
        let since = clock.last_given(|| self.comparing.fetch_add(1, Ordering::SeqCst));
        Comparing { recent: self.clone(), since }
    }

    /// Notes what a commit has changed, which is applied and not stable yet.
    pub(super) fn note<'a>(&self, stamp: u64, keys: impl Iterator<Item = (u32, &'a [u8])>) {
        if self.comparing.load(Ordering::SeqCst) == 0 {
            return;
        }
        let changed: Vec<_> =
            keys.map(|(tree, key)| Arc::new(Changed { stamp, tree, key: key.into() })).collect();
        let bytes: usize = changed.iter().map(|one| size_of::<Changed>() + one.key.len()).sum();
        let mut state = self.lock();
        if state.bytes + bytes > BYTES_MAX {
            state.missing_up_to = state.changed.iter().map(|one| one.stamp).fold(stamp, u64::max);
            (state.changed, state.bytes) = (Vec::new(), 0);
            return;
        }
        state.bytes += bytes;
        state.changed.extend(changed);
    }
}

impl Comparing {
    /// What commits above `since` and below `before` have changed, all of which are applied; `None` if that is not known.
    pub(super) fn changed(&self, before: u64) -> Option<Vec<Arc<Changed>>> {
        let state = self.recent.lock();
        let is_between = |one: &&Arc<Changed>| one.stamp > self.since && one.stamp < before;
        (state.missing_up_to <= self.since)
            .then(|| state.changed.iter().filter(is_between).cloned().collect())
    }
}

impl Drop for Comparing {
    fn drop(&mut self) {
        let mut state = self.recent.lock();
        if self.recent.comparing.fetch_sub(1, Ordering::SeqCst) == 1 {
            (state.changed, state.bytes) = (Vec::new(), 0);
        }
    }
}

/// Whether a key is within bounds.
pub(super) fn is_within((from, to): &(Bound<Vec<u8>>, Bound<Vec<u8>>), key: &[u8]) -> bool {
    let above = match from {
        Bound::Included(from) => key >= from.as_slice(),
        Bound::Excluded(from) => key > from.as_slice(),
        Bound::Unbounded => true,
    };
    let below = match to {
        Bound::Included(to) => key <= to.as_slice(),
        Bound::Excluded(to) => key < to.as_slice(),
        Bound::Unbounded => true,
    };
    above && below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_committed_while_one_compares_is_there_or_said_to_be_missing() {
        let (recent, clock) = (Arc::new(Recent::default()), Clock::new(10));
        let key = [7; 1000];
        let commit = |keys: usize| {
            let stamp = clock.begin_commit().unwrap();
            recent.note(stamp, (0..keys).map(|_| (1, &key[..])));
            clock.end_commit(stamp);
            stamp
        };
        commit(1);
        let first = recent.begin(&clock);
        assert_eq!(first.since, 11);
        assert_eq!(first.changed(100).unwrap().len(), 0, "committed before");
        commit(1);
        let second = recent.begin(&clock);
        let third = commit(2);
        assert_eq!(first.changed(third).unwrap().len(), 1);
        assert_eq!(first.changed(100).unwrap().len(), 3);
        assert_eq!(second.changed(100).unwrap().len(), 2);
        commit(BYTES_MAX / 1000);
        assert!(first.changed(100).is_none() && second.changed(100).is_none());
        let later = recent.begin(&clock);
        drop((first, second));
        commit(1);
        assert_eq!(later.changed(100).unwrap().len(), 1);
        drop(later);
        assert!(recent.lock().changed.is_empty());
    }
}
