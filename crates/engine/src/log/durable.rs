//! How far the logs of all workers together are durable.
//!
//! What always holds: a log's entry is not above the smallest stamp that is in the log, or about to be, and not durable. So
//! every commit below all entries is durable, and so is everything it may have read. Nobody takes a lock for it.

use std::sync::atomic::{AtomicU64, Ordering};

/// The word of a log in which everything is durable.
const NOTHING_OPEN: u64 = u64::MAX;

/// One log's words, on a cache line of their own.
#[derive(Debug)]
#[repr(align(64))]
struct Entry {
    /// No stamp of this log below this is other than durable.
    open_from: AtomicU64,
    /// The smallest stamp that a task of this worker waits for.
    awaited: AtomicU64,
}

/// The durable horizon of a store.
#[derive(Debug)]
pub(crate) struct Durable {
    entries: Box<[Entry]>,
}

impl Durable {
    pub(crate) fn new(logs: usize) -> Self {
        let entry = || Entry {
            open_from: AtomicU64::new(NOTHING_OPEN),
            awaited: AtomicU64::new(NOTHING_OPEN),
        };
        Self { entries: (0..logs).map(|_| entry()).collect() }
    }

    /// Every commit with this stamp or a smaller one is durable.
    pub(crate) fn horizon(&self) -> u64 {
        // A log that is about to be given a stamp has lowered its word before: in the one order of all these
        // operations either that is seen, or the stamp is above all that is asked about.
        let open = self.entries.iter().map(|entry| entry.open_from.load(Ordering::SeqCst)).min();
        open.unwrap_or(NOTHING_OPEN).saturating_sub(1)
    }

    /// The log will be given a stamp of `stamp` or more; called before that stamp is taken.
    pub(crate) fn expect(&self, log: usize, stamp: u64) {
        self.entries[log].open_from.fetch_min(stamp, Ordering::SeqCst);
    }

    /// The smallest stamp in the log that is not durable; none if all are.
    pub(crate) fn set_open(&self, log: usize, stamp: Option<u64>) {
        self.entries[log].open_from.store(stamp.unwrap_or(NOTHING_OPEN), Ordering::SeqCst);
    }

    /// The smallest stamp that the log's worker waits for; none if it waits for none.
    pub(crate) fn set_awaited(&self, log: usize, stamp: Option<u64>) {
        self.entries[log].awaited.store(stamp.unwrap_or(NOTHING_OPEN), Ordering::SeqCst);
    }

    /// The other logs whose workers wait for stamps that are durable now.
    pub(crate) fn satisfied(&self, but: usize) -> impl Iterator<Item = usize> + '_ {
        let horizon = self.horizon();
        self.entries.iter().enumerate().filter_map(move |(log, entry)| {
            (log != but && entry.awaited.load(Ordering::SeqCst) <= horizon).then_some(log)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_horizon_is_below_what_is_open_in_any_log() {
        let durable = Durable::new(2);
        assert!(durable.horizon() >= 100);
        durable.expect(0, 5);
        durable.expect(1, 3);
        durable.expect(1, 7);
        assert_eq!(durable.horizon(), 2);
        durable.set_awaited(0, Some(5));
        assert_eq!(durable.satisfied(1).count(), 0);
        durable.set_open(1, Some(7));
        assert_eq!(durable.horizon(), 4);
        durable.set_open(0, None);
        assert_eq!(durable.horizon(), 6);
        assert_eq!(durable.satisfied(1).collect::<Vec<_>>(), [0]);
    }
}
