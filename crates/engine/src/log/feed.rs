//! The feed of commit records, for a backup that follows the store.
//!
//! Invariants: a commit is in the feed before it is applied, so a snapshot's commits are in the
//! feed, or the feed is broken. No commit waits for the feed: if the records that nobody has taken
//! exceed their limit, the feed breaks instead. A change that is in no log breaks it too, before it
//! can be read.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use qpair_memory::locks::Mutex;

/// The reason why a feed is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedBreak {
    /// The records took more memory than they may.
    Overflow,
    /// A sorted load was finished, whose records are in no log.
    SortedLoad,
}

/// Records that nobody has taken.
#[derive(Default)]
struct Waiting {
    records: Vec<u8>,
    /// The time at which the first of them came.
    since: Option<Instant>,
}

/// The consumer's reports, for the metrics.
#[derive(Clone, Copy, Default)]
pub(crate) struct FeedReport {
    pub(crate) shipped_timestamp: u64,
    pub(crate) breaks: u64,
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
}

#[derive(Default)]
struct State {
    broken: Option<FeedBreak>,
    /// The time at which the first commit came that was taken and is not shipped.
    taken_since: Option<Instant>,
    report: FeedReport,
}

pub(crate) struct Feed {
    /// Whether commits add their records.
    on: AtomicBool,
    /// Whether there is a consumer.
    used: AtomicBool,
    logs: Box<[Mutex<Waiting>]>,
    bytes: AtomicU64,
    bytes_max: AtomicU64,
    state: Mutex<State>,
}

impl Feed {
    pub(crate) fn new(logs: usize) -> Self {
        Self {
            on: AtomicBool::new(false),
            used: AtomicBool::new(false),
            logs: (0..logs).map(|_| Mutex::default()).collect(),
            bytes: AtomicU64::new(0),
            bytes_max: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    /// Whether commits must add their records. Relaxed: a commit whose timestamp is later than the
    /// one that `TimestampOracle::last_given` returned to the consumer sees the feed begun, by the
    /// oracle's lock.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Claims the feed for a consumer; returns `false` if it has one.
    pub(crate) fn claim(&self) -> bool {
        !self.used.swap(true, Ordering::AcqRel)
    }

    /// Ends the use of the feed.
    pub(crate) fn disclaim(&self) {
        self.on.store(false, Ordering::Relaxed);
        self.clear();
        *self.state.lock() = State::default();
        self.used.store(false, Ordering::Release);
    }

    fn clear(&self) {
        for log in &self.logs {
            *log.lock() = Waiting::default();
        }
        self.bytes.store(0, Ordering::Relaxed);
    }

    /// Begins the feed, or begins it anew after it broke. Commits before it are shipped only with
    /// a full part; until then the age counts from the oldest of them that is known, or from now.
    pub(crate) fn begin(&self, bytes_max: u64) {
        let since = self.unshipped_since().unwrap_or_else(Instant::now);
        self.clear();
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
        let mut state = self.state.lock();
        (state.broken, state.taken_since) = (None, Some(since));
        self.on.store(true, Ordering::Relaxed);
    }

    /// Adds the record of a commit to this log's part.
    pub(crate) fn add(&self, log: usize, record: &[u8]) {
        let len = record.len() as u64;
        let all = self.bytes.fetch_add(len, Ordering::Relaxed) + len;
        if all > self.bytes_max.load(Ordering::Relaxed) {
            self.break_off(FeedBreak::Overflow);
            return;
        }
        let mut log = self.logs[log].lock();
        log.since.get_or_insert_with(Instant::now);
        log.records.extend_from_slice(record);
    }

    /// Breaks the feed, if it is on.
    pub(crate) fn break_off(&self, why: FeedBreak) {
        let mut state = self.state.lock();
        if self.on.swap(false, Ordering::Relaxed) {
            state.broken.get_or_insert(why);
            state.report.breaks += 1;
        }
    }

    pub(crate) fn broken(&self) -> Option<FeedBreak> {
        self.state.lock().broken
    }

    /// Takes the records up to this timestamp, log by log.
    pub(crate) fn take(&self, timestamp: u64) -> Vec<Vec<u8>> {
        let mut since: Option<Instant> = None;
        let taken = self.logs.iter().map(|log| {
            let mut log = log.lock();
            let end = end_of(&log.records, timestamp);
            if end == 0 {
                return Vec::new();
            }
            let rest = log.records.split_off(end);
            let taken = std::mem::replace(&mut log.records, rest);
            let begun = log.since.take();
            since = [since, begun].into_iter().flatten().min();
            log.since = (!log.records.is_empty()).then(Instant::now);
            self.bytes.fetch_sub(taken.len() as u64, Ordering::Relaxed);
            taken
        });
        let taken = taken.collect();
        let mut state = self.state.lock();
        state.taken_since = [state.taken_since, since].into_iter().flatten().min();
        taken
    }

    /// Notes that all commits up to a timestamp are shipped, with all requests and bytes so far.
    pub(crate) fn note_shipped(&self, timestamp: u64, requests: u64, bytes: u64) {
        let mut state = self.state.lock();
        let breaks = state.report.breaks;
        state.report = FeedReport { shipped_timestamp: timestamp, breaks, requests, bytes };
        state.taken_since = None;
    }

    pub(crate) fn report(&self) -> FeedReport {
        self.state.lock().report
    }

    /// The bytes of the records that nobody has taken.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        if self.is_on() { self.bytes.load(Ordering::Relaxed) } else { 0 }
    }

    /// The time since the oldest commit that is not shipped.
    pub(crate) fn unshipped_age(&self) -> Duration {
        self.unshipped_since().map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn unshipped_since(&self) -> Option<Instant> {
        let taken = self.state.lock().taken_since;
        self.logs.iter().filter_map(|log| log.lock().since).chain(taken).min()
    }
}

/// Returns the end of the records up to this timestamp.
fn end_of(records: &[u8], timestamp: u64) -> usize {
    let mut end = 0;
    // A record begins with its length, a checksum and its timestamp.
    while let Some(head) = records.get(end..end + 16) {
        let (len, at) =
            (u32_at(head, 0), u64::from_le_bytes(head[8..].try_into().unwrap_or([0; 8])));
        if at > timestamp {
            break;
        }
        end += len as usize;
    }
    end.min(records.len())
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use qpair_format::log::{Operation, Record, RecordBuilder};

    use super::*;

    fn record(timestamp: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut builder = RecordBuilder::new(&mut bytes, timestamp);
        builder.push(Operation::Put { tree: 1, key: &timestamp.to_be_bytes(), value: b"v" });
        builder.finish().unwrap();
        bytes
    }

    #[test]
    fn records_are_taken_up_to_a_timestamp_and_once() {
        let feed = Feed::new(2);
        feed.begin(1 << 20);
        for timestamp in 1..=9 {
            feed.add(usize::from(timestamp % 3 == 0), &record(timestamp));
        }
        let taken = feed.take(5);
        assert_eq!(taken[0], [1, 2, 4, 5].map(record).concat());
        assert_eq!(taken[1], record(3));
        assert!(Record::decode(&taken[1]).is_ok());
        assert_eq!(feed.waiting_bytes(), 4 * record(1).len() as u64);
        assert!(feed.unshipped_age() > Duration::ZERO);
        assert_eq!(feed.take(9).concat().len(), 4 * record(1).len());
        assert_eq!(feed.take(9).concat().len(), 0);
        feed.note_shipped(9, 1, 1);
        assert_eq!(feed.unshipped_age(), Duration::ZERO);
    }

    #[test]
    fn a_full_feed_breaks_and_begins_anew() {
        let feed = Feed::new(1);
        feed.begin(100);
        assert!(feed.is_on() && feed.broken().is_none());
        (1..=3).for_each(|timestamp| feed.add(0, &record(timestamp)));
        assert!(!feed.is_on());
        assert_eq!(feed.broken(), Some(FeedBreak::Overflow));
        feed.break_off(FeedBreak::SortedLoad);
        assert_eq!(feed.report().breaks, 1);
        feed.begin(100);
        assert!(feed.is_on() && feed.broken().is_none() && feed.take(9).concat().is_empty());
        assert!(feed.unshipped_age() > Duration::ZERO, "the full part has what was dropped");
        feed.note_shipped(3, 1, 1);
        assert_eq!(feed.unshipped_age(), Duration::ZERO);
    }
}
