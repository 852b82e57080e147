//! The timestamp up to which the logs of all workers together are durable.
//!
//! Invariant: a log's entry is not above the smallest timestamp that is in the log, or about to be,
//! and not durable. So every commit below all entries is durable, and so is everything it may have
//! read. No thread takes a lock for this.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// The word of a log in which everything is durable.
const NOTHING_OPEN: u64 = u64::MAX;

#[derive(Debug)]
#[repr(align(64))]
struct Entry {
    /// No timestamp of this log that is below this value is missing on the device.
    open_from: AtomicU64,
    /// The smallest timestamp that a task of this worker waits for.
    awaited: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Durable {
    entries: Box<[Entry]>,
    /// The greatest timestamp that was found durable. Readers of old data compare with this one
    /// only.
    known: AtomicU64,
}

impl Durable {
    pub(crate) fn new(logs: usize) -> Self {
        let entry = || Entry {
            open_from: AtomicU64::new(NOTHING_OPEN),
            awaited: AtomicU64::new(NOTHING_OPEN),
        };
        Self { entries: (0..logs).map(|_| entry()).collect(), known: AtomicU64::new(0) }
    }

    /// Whether the commit with this timestamp, and all before it, are durable.
    #[inline]
    pub(crate) fn has(&self, timestamp: u64) -> bool {
        if timestamp <= self.known.load(Ordering::Relaxed) {
            return true;
        }
        let has = timestamp <= self.horizon();
        if has {
            self.known.fetch_max(timestamp, Ordering::Relaxed);
        }
        has
    }

    pub(crate) fn horizon(&self) -> u64 {
        // A log that is about to get a timestamp has lowered its word before. All these operations
        // have one order: either this load sees the lowered word, or the timestamp is above every
        // timestamp that callers ask about.
        let open = self.entries.iter().map(|entry| entry.open_from.load(Ordering::SeqCst)).min();
        open.unwrap_or(NOTHING_OPEN).saturating_sub(1)
    }

    /// Sets the smallest timestamp that is in the log, or about to be, and not durable. `None`
    /// means that all of the log is durable. A caller that is about to append sets its timestamp
    /// here before it takes the timestamp.
    pub(crate) fn set_open(&self, log: usize, timestamp: Option<u64>) {
        self.entries[log].open_from.store(timestamp.unwrap_or(NOTHING_OPEN), Ordering::SeqCst);
    }

    /// Sets the smallest timestamp that the log's worker waits for; `None` if it waits for none.
    pub(crate) fn set_awaited(&self, log: usize, timestamp: Option<u64>) {
        self.entries[log].awaited.store(timestamp.unwrap_or(NOTHING_OPEN), Ordering::SeqCst);
    }

    /// Returns the other logs whose workers wait for timestamps that are durable now.
    pub(crate) fn satisfied(&self, but: usize) -> impl Iterator<Item = usize> + '_ {
        let horizon = self.horizon();
        self.entries.iter().enumerate().filter_map(move |(log, entry)| {
            (log != but && entry.awaited.load(Ordering::SeqCst) <= horizon).then_some(log)
        })
    }
}

/// The timestamps of one log that are not durable: those in the log, and the one that is about to
/// be.
#[derive(Debug, Default)]
pub(crate) struct OpenTimestamps {
    /// The timestamps of appended records, ascending.
    appended: VecDeque<u64>,
    /// A lower bound of the timestamp of the commit that takes one now and has no record yet.
    expected: Option<u64>,
}

impl OpenTimestamps {
    /// Notes that a commit is about to take this timestamp, or a greater one.
    pub(crate) fn expect(&mut self, timestamp: u64) {
        self.expected.get_or_insert(timestamp);
    }

    /// Notes that the expected commit does not come.
    pub(crate) fn expect_none(&mut self) {
        self.expected = None;
    }

    /// Notes that the expected commit has its record in the log.
    pub(crate) fn append(&mut self, timestamp: u64) {
        self.expected = None;
        self.appended.push_back(timestamp);
    }

    /// Notes that the log is durable up to this timestamp.
    pub(crate) fn note_durable(&mut self, timestamp: u64) {
        while self.appended.front().is_some_and(|first| *first <= timestamp) {
            self.appended.pop_front();
        }
    }

    pub(crate) fn first(&self) -> Option<u64> {
        // The expected commit may append its record while all appended records become durable.
        self.appended.front().copied().into_iter().chain(self.expected).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A commit takes its timestamp and compares its reads while a write of its log ends: no chunk
    /// has its record yet.
    #[test]
    fn a_timestamp_without_a_record_is_open_whatever_becomes_durable() {
        let mut open = OpenTimestamps::default();
        assert_eq!(open.first(), None);
        open.append(4);
        open.expect(6);
        assert_eq!(open.first(), Some(4));
        open.note_durable(4);
        assert_eq!(open.first(), Some(6));
        open.append(7);
        assert_eq!(open.first(), Some(7));
        open.expect(8);
        open.expect_none();
        open.note_durable(7);
        assert_eq!(open.first(), None);
    }

    #[test]
    fn the_horizon_is_below_what_is_open_in_any_log() {
        let durable = Durable::new(2);
        assert!(durable.horizon() >= 100);
        durable.set_open(0, Some(5));
        durable.set_open(1, Some(3));
        assert_eq!(durable.horizon(), 2);
        durable.set_awaited(0, Some(5));
        assert_eq!(durable.satisfied(1).count(), 0);
        durable.set_open(1, Some(7));
        assert_eq!(durable.horizon(), 4);
        assert!(durable.has(4) && !durable.has(5));
        durable.set_open(0, None);
        assert!(durable.has(5) && durable.has(3) && !durable.has(7));
        assert_eq!(durable.horizon(), 6);
        assert_eq!(durable.satisfied(1).collect::<Vec<_>>(), [0]);
    }
}
