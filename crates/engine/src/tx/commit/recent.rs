//! The keys that commits change while serializable transactions validate their reads.
//!
//! Invariant: the keys of every applied commit whose timestamp was given after [`Recent::begin`]
//! are kept until that [`Validating`] is dropped, or it is known that some are missing.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use qpair_memory::locks::Mutex;

use crate::oracle::TimestampOracle;
use crate::tx::transaction::KeyList;

/// Limit on the keys that are kept, in bytes; beyond it all are dropped.
const BYTES_MAX: usize = 16 << 20;

/// The trees and keys that one commit has changed.
type Changed = KeyList<u32>;

/// Returns the size of a commit's changes, in bytes.
fn bytes_of(changed: &Changed) -> usize {
    size_of::<Changed>() + changed.size_bytes()
}

#[derive(Debug, Default)]
struct State {
    /// The changes by timestamp.
    changed: BTreeMap<u64, Arc<Changed>>,
    bytes: usize,
    /// Some of the commits up to this timestamp may be missing.
    missing_up_to: u64,
    /// The number of validations by the last timestamp given before they began.
    validating: BTreeMap<u64, u32>,
}

impl State {
    /// Drops the commits that no validation needs any more.
    fn prune(&mut self) {
        let Some((&since, _)) = self.validating.first_key_value() else {
            (self.changed, self.bytes) = (BTreeMap::new(), 0);
            return;
        };
        while let Some(first) = self.changed.first_entry()
            && *first.key() <= since
        {
            self.bytes -= bytes_of(&first.remove());
        }
    }
}

#[derive(Debug, Default)]
pub(in crate::tx) struct Recent {
    validating: AtomicU32,
    state: Mutex<State>,
}

/// A validation of a transaction's reads. Until it is dropped, the keys of commits are noted.
#[derive(Debug)]
pub(super) struct Validating {
    recent: Arc<Recent>,
    /// The last timestamp that was given before the validation began.
    pub(super) since: u64,
}

impl Recent {
    /// Begins a validation: from here on the keys of commits are noted.
    pub(super) fn begin(self: &Arc<Self>, oracle: &TimestampOracle) -> Validating {
        let mut state = self.state.lock();
        // The call runs under the oracle's lock: a commit that takes a later timestamp sees the
        // count, and is noted.
        let since = oracle.last_given(|| self.validating.fetch_add(1, Ordering::SeqCst));
        *state.validating.entry(since).or_default() += 1;
        Validating { recent: self.clone(), since }
    }

    /// Notes the keys that a commit has changed, before its timestamp becomes applied.
    pub(super) fn note<'a>(&self, timestamp: u64, keys: impl Iterator<Item = (u32, &'a [u8])>) {
        if self.validating.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut changed = Changed::default();
        for (tree, key) in keys {
            // Larger changes are not kept.
            if bytes_of(&changed) > BYTES_MAX {
                break;
            }
            changed.push(tree, key);
        }
        let bytes = bytes_of(&changed);
        let mut state = self.state.lock();
        if state.bytes + bytes > BYTES_MAX {
            let last = state.changed.last_key_value().map_or(0, |(timestamp, _)| *timestamp);
            state.missing_up_to = state.missing_up_to.max(last).max(timestamp);
            (state.changed, state.bytes) = (BTreeMap::new(), 0);
            return;
        }
        state.bytes += bytes;
        state.changed.insert(timestamp, Arc::new(changed));
    }
}

impl Validating {
    /// Returns the changes of the commits above `since` and below `before`, all of which must be
    /// applied; `None` if some are missing.
    pub(super) fn changed(&self, before: u64) -> Option<Vec<Arc<Changed>>> {
        let state = self.recent.state.lock();
        let between = (Bound::Excluded(self.since), Bound::Excluded(before.max(self.since + 1)));
        (state.missing_up_to <= self.since)
            .then(|| state.changed.range(between).map(|(_, changed)| changed.clone()).collect())
    }
}

impl Drop for Validating {
    fn drop(&mut self) {
        let mut state = self.recent.state.lock();
        self.recent.validating.fetch_sub(1, Ordering::SeqCst);
        if let Some(count) = state.validating.get_mut(&self.since) {
            *count -= 1;
            if *count == 0 {
                state.validating.remove(&self.since);
            }
        }
        state.prune();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_committed_while_one_compares_is_there_or_said_to_be_missing() {
        let (recent, oracle) = (Arc::new(Recent::default()), TimestampOracle::new(10));
        let key = [7; 1000];
        let commit = |keys: usize| {
            let timestamp = oracle.begin_commit().unwrap();
            recent.note(timestamp, (0..keys).map(|_| (1, &key[..])));
            oracle.end_commit(timestamp);
            timestamp
        };
        commit(1);
        let first = recent.begin(&oracle);
        assert_eq!(first.since, 11);
        assert_eq!(first.changed(100).unwrap().len(), 0, "committed before");
        commit(1);
        let second = recent.begin(&oracle);
        let third = commit(2);
        let keys = |validating: &Validating, before| {
            let changed = validating.changed(before);
            changed.map(|all| all.iter().map(|one| one.len()).sum::<usize>())
        };
        assert_eq!(keys(&first, third), Some(1));
        assert_eq!(keys(&first, 100), Some(3));
        assert_eq!(keys(&second, 100), Some(2));
        commit(BYTES_MAX / 1000);
        assert!(first.changed(100).is_none() && second.changed(100).is_none());
        let later = recent.begin(&oracle);
        drop((first, second));
        commit(1);
        assert_eq!(later.changed(100).unwrap().len(), 1);
        drop(later);
        assert!(recent.state.lock().changed.is_empty());
    }

    /// Some transaction validates at all times, but none for long: only changes that are still
    /// needed are kept.
    #[test]
    fn what_was_committed_before_all_who_compare_is_forgotten() {
        let (recent, oracle) = (Arc::new(Recent::default()), TimestampOracle::new(10));
        let mut validating = recent.begin(&oracle);
        for _ in 0..1000 {
            let timestamp = oracle.begin_commit().unwrap();
            recent.note(timestamp, [(1, &b"key"[..])].into_iter());
            oracle.end_commit(timestamp);
            let next = recent.begin(&oracle);
            assert_eq!(validating.changed(timestamp + 1).unwrap().len(), 1);
            validating = next;
            assert!(recent.state.lock().changed.is_empty());
        }
        drop(validating);
        let state = recent.state.lock();
        assert!(state.validating.is_empty() && state.bytes == 0);
    }
}
