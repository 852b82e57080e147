//! Rounds: records that are put together.

use std::hash::{BuildHasher, RandomState};

/// Records that one task puts, in order.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    bytes: Vec<u8>,
    /// The ends of each record's key and value.
    ends: Vec<(usize, usize)>,
}

impl Lane {
    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    /// Drops the last record, and returns its size in bytes.
    fn pop(&mut self) -> usize {
        self.ends.pop();
        let end = self.ends.last().map_or(0, |(_, end)| *end);
        let dropped = self.bytes.len() - end;
        self.bytes.truncate(end);
        dropped
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn record(&self, index: usize) -> (&[u8], &[u8]) {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before].1);
        let (key_end, end) = self.ends[index];
        (&self.bytes[start..key_end], &self.bytes[key_end..end])
    }
}

/// A round of records in lanes. All records of one key are in one lane, in the order of the input.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) lanes: Vec<Lane>,
    hasher: RandomState,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// The number of input bytes up to the end of this round.
    pub(crate) input_bytes: u64,
}

impl Round {
    pub(crate) fn new(lanes: usize) -> Self {
        Self {
            lanes: (0..lanes.max(1)).map(|_| Lane::default()).collect(),
            hasher: RandomState::new(),
            records: 0,
            bytes: 0,
            input_bytes: 0,
        }
    }

    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) {
        let lane = match self.lanes.len() {
            1 => 0,
            lanes => (self.hasher.hash_one(key) % lanes as u64) as usize,
        };
        self.lanes[lane].push(key, value);
        self.records += 1;
        self.bytes += (key.len() + value.len()) as u64;
    }

    /// Returns the last record's key. There must be only one lane.
    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        let lane = self.lanes.first()?;
        lane.len().checked_sub(1).map(|last| lane.record(last).0)
    }

    /// Drops the last record. There must be only one lane.
    pub(crate) fn pop(&mut self) {
        if let Some(lane) = self.lanes.first_mut() {
            self.bytes -= lane.pop() as u64;
            self.records -= 1;
        }
    }
}
