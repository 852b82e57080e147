//! The keys that commits change while serializable transactions are open.
//!
//! Invariant: the keys of every applied commit above `missing_up_to` and above the timestamp of an
//! open [`Watch`] are kept.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qpair_memory::locks::Mutex;

use super::key_list::KeyList;
use crate::oracle::TimestampOracle;
use crate::tx::versions::hash_of;

/// The number of commits without an open watch after which no more are noted. The first
/// transaction after that has to read its reads again.
const UNWATCHED_MAX: u32 = 1000;

/// The keys that one commit has changed, each with its tree and the hash of both.
pub(in crate::tx) type Changed = KeyList<(u32, u32)>;

/// Returns the size of a commit's changes, in bytes.
fn bytes_of(changed: &Changed) -> usize {
    size_of::<Changed>() + changed.size_bytes()
}

/// Returns the hash that [`Changed`] has of a key.
pub(super) fn short_hash(tree: u32, key: &[u8]) -> u32 {
    (hash_of(tree, key) >> 32) as u32
}

#[derive(Debug, Default)]
struct State {
    /// The changes by timestamp.
    changed: BTreeMap<u64, Arc<Changed>>,
    bytes: usize,
    /// Some of the commits up to this timestamp may be missing.
    missing_up_to: u64,
    /// The number of watches by their timestamps.
    watches: BTreeMap<u64, u32>,
    /// The number of commits since there was a watch.
    unwatched: u32,
}

impl State {
    /// Drops the commits that no watch needs, nor one that begins later.
    fn prune(&mut self, applied: u64) {
        // No watch can use the commits up to `missing_up_to`, of which some are unknown.
        let needed = self.watches.first_key_value().map(|(since, _)| *since);
        let since = needed.map_or(applied, |since| applied.min(since.max(self.missing_up_to)));
        while let Some(first) = self.changed.first_entry()
            && *first.key() <= since
        {
            self.bytes -= bytes_of(&first.remove());
        }
    }
}

#[derive(Debug)]
pub(in crate::tx) struct RecentCommits {
    /// Whether commits are noted.
    notes: AtomicBool,
    /// Limit on the keys that are kept, in bytes; beyond it the oldest are dropped.
    bytes_max: usize,
    state: Mutex<State>,
}

/// Keeps the commits after a timestamp, until it is dropped.
#[derive(Debug)]
pub(in crate::tx) struct Watch {
    commits: Arc<RecentCommits>,
    since: u64,
}

impl RecentCommits {
    pub(in crate::tx) fn new(bytes_max: usize) -> Self {
        Self { notes: AtomicBool::new(false), bytes_max, state: Mutex::default() }
    }

    /// Begins to watch the commits above those that are applied.
    pub(super) fn watch(self: &Arc<Self>, oracle: &TimestampOracle) -> Watch {
        let mut state = self.state.lock();
        if !self.notes.load(Ordering::SeqCst) {
            // The call runs under the oracle's lock: a commit that takes a later timestamp sees the
            // flag, and is noted.
            state.missing_up_to = oracle.last_given(|| self.notes.store(true, Ordering::SeqCst));
        }
        // No snapshot that is taken from here on is older.
        let since = oracle.applied();
        *state.watches.entry(since).or_default() += 1;
        state.unwatched = 0;
        Watch { commits: self.clone(), since }
    }

    /// Notes that a commit has changed too many keys to be kept, before its timestamp becomes
    /// applied.
    pub(in crate::tx) fn note_missing(&self, timestamp: u64) {
        if self.notes.load(Ordering::SeqCst) {
            let mut state = self.state.lock();
            state.missing_up_to = state.missing_up_to.max(timestamp);
        }
    }

    /// Notes the keys that a commit has changed, before its timestamp becomes applied.
    pub(in crate::tx) fn note<'a>(
        &self,
        timestamp: u64,
        oracle: &TimestampOracle,
        keys: impl Iterator<Item = (u32, &'a [u8])>,
    ) {
        if !self.notes.load(Ordering::SeqCst) {
            return;
        }
        let mut changed = Changed::default();
        for (tree, key) in keys {
            // Larger changes are not kept.
            if bytes_of(&changed) > self.bytes_max {
                break;
            }
            changed.push((tree, short_hash(tree, key)), key);
        }
        let bytes = bytes_of(&changed);
        let mut state = self.state.lock();
        if state.watches.is_empty() {
            state.unwatched += 1;
            if state.unwatched > UNWATCHED_MAX {
                self.notes.store(false, Ordering::SeqCst);
                (state.changed, state.bytes) = (BTreeMap::new(), 0);
                return;
            }
        }
        state.prune(oracle.applied());
        state.bytes += bytes;
        state.changed.insert(timestamp, Arc::new(changed));
        while state.bytes > self.bytes_max
            && let Some((dropped, changed)) = state.changed.pop_first()
        {
            state.bytes -= bytes_of(&changed);
            state.missing_up_to = state.missing_up_to.max(dropped);
        }
    }
}

impl Watch {
    /// Returns the changes of the commits above `after` and below `before`, all of which must be
    /// applied; `None` if some are missing. `after` must not be below the watch's timestamp.
    pub(in crate::tx) fn changed(&self, after: u64, before: u64) -> Option<Vec<Arc<Changed>>> {
        let state = self.commits.state.lock();
        let between = (Bound::Excluded(after), Bound::Excluded(before.max(after + 1)));
        (state.missing_up_to <= after)
            .then(|| state.changed.range(between).map(|(_, changed)| changed.clone()).collect())
    }

    /// Whether the commits above `after` are known and few enough to look at while others wait.
    pub(in crate::tx) fn are_few(&self, after: u64, bytes_max: usize) -> bool {
        let state = self.commits.state.lock();
        state.missing_up_to <= after && state.bytes <= bytes_max
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut state = self.commits.state.lock();
        if let Some(count) = state.watches.get_mut(&self.since) {
            *count -= 1;
            if *count == 0 {
                state.watches.remove(&self.since);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(commits: &RecentCommits, oracle: &TimestampOracle, keys: usize) -> u64 {
        let key = [7; 1000];
        let timestamp = oracle.begin_commit().unwrap();
        commits.note(timestamp, oracle, (0..keys).map(|_| (1, &key[..])));
        oracle.end_commit(timestamp);
        timestamp
    }

    #[test]
    fn what_is_committed_while_a_watch_is_open_is_there_or_said_to_be_missing() {
        let (commits, oracle) = (Arc::new(RecentCommits::new(1 << 20)), TimestampOracle::new(10));
        let keys = |watch: &Watch, before| {
            let changed = watch.changed(watch.since, before);
            changed.map(|all| all.iter().map(|one| one.len()).sum::<usize>())
        };
        commit(&commits, &oracle, 1);
        // This commit has its timestamp, and does not know that it should be noted.
        let late = oracle.begin_commit().unwrap();
        let first = commits.watch(&oracle);
        assert_eq!(first.since, 11);
        oracle.end_commit(late);
        commit(&commits, &oracle, 1);
        assert_eq!(keys(&first, 100), None, "commit 12 was not noted");
        assert_eq!(first.changed(12, 100).unwrap().len(), 1);
        let second = commits.watch(&oracle);
        let third = commit(&commits, &oracle, 2);
        assert_eq!((keys(&second, third), keys(&second, 100)), (Some(0), Some(2)));
        // A commit that is applied after one that follows it.
        let behind = oracle.begin_commit().unwrap();
        let ahead = oracle.begin_commit().unwrap();
        commits.note(ahead, &oracle, [(1, &b"ahead"[..])].into_iter());
        oracle.end_commit(ahead);
        drop((first, second));
        let fourth = commits.watch(&oracle);
        commits.note(behind, &oracle, [(1, &b"behind"[..])].into_iter());
        oracle.end_commit(behind);
        assert_eq!(keys(&fourth, 100), Some(2));
        commit(&commits, &oracle, 1100);
        assert!(fourth.changed(fourth.since, 100).is_none());
        let later = commits.watch(&oracle);
        commit(&commits, &oracle, 1);
        assert_eq!(keys(&later, 100), Some(1));
    }

    /// A watch is open at all times, but none for long: only changes that are still needed are
    /// kept. Without any, commits are noted no more.
    #[test]
    fn what_no_watch_needs_is_forgotten() {
        let (commits, oracle) = (Arc::new(RecentCommits::new(1 << 20)), TimestampOracle::new(10));
        let mut watch = commits.watch(&oracle);
        for _ in 0..1000 {
            let timestamp = commit(&commits, &oracle, 1);
            let next = commits.watch(&oracle);
            assert_eq!(watch.changed(watch.since, timestamp + 1).unwrap().len(), 1);
            watch = next;
            assert!(commits.state.lock().changed.len() <= 2);
        }
        drop(watch);
        for _ in 0..=UNWATCHED_MAX {
            assert!(commits.notes.load(Ordering::SeqCst));
            commit(&commits, &oracle, 1);
        }
        assert!(!commits.notes.load(Ordering::SeqCst));
        let state = commits.state.lock();
        assert!(state.watches.is_empty() && state.bytes == 0 && state.changed.is_empty());
    }
}
