//! One end of a range that is read batch by batch.

use std::ops::Bound;

use super::{Batch, Direction, Pace};

/// The progress of one end of a range. If the other end is used as well, it has another `RangeEnd`.
pub(crate) struct RangeEnd {
    pub(crate) direction: Direction,
    /// The bound at which the next batch begins, on the side that the scan comes from; `None` at
    /// the end.
    pub(crate) from: Option<Bound<Vec<u8>>>,
    pub(crate) to: Bound<Vec<u8>>,
    pub(crate) batch: Batch,
    /// The index of the record in the batch that is given out next.
    pub(crate) next: usize,
    pub(crate) pace: Pace,
    /// The key that the other end has given out last. This end goes no further than that key.
    limit: Option<Vec<u8>>,
}

impl RangeEnd {
    pub(crate) fn new(from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Self {
        Self {
            direction: Direction::Forward,
            from: Some(from),
            to,
            batch: Batch::default(),
            next: 0,
            pace: Pace::default(),
            limit: None,
        }
    }

    /// Returns the other end, limited to what this one has not given out.
    pub(crate) fn other(&self) -> Option<Self> {
        let left = match self.peek() {
            Some((key, ..)) => Bound::Included(key.to_vec()),
            None => self.from.clone()?,
        };
        let mut other = Self::new(self.to.clone(), left);
        other.direction = self.direction.opposite();
        other.pace.limit(self.pace.left());
        Some(other)
    }

    /// Notes that the other end has given out the record of a key.
    pub(crate) fn given_by_other(&mut self, key: &[u8]) {
        self.limit = Some(key.to_vec());
        self.pace.given();
    }

    /// Whether the other end has already given out the record of this key.
    pub(crate) fn is_past_limit(&self, key: &[u8]) -> bool {
        self.limit.as_ref().is_some_and(|limit| !self.direction.comes_before(key, limit))
    }

    /// Ends the range: no more records are given out.
    pub(crate) fn finish(&mut self) {
        self.from = None;
        self.batch.clear();
    }

    pub(crate) fn reverse(&mut self) {
        if let Some(from) = self.from.take() {
            self.from = Some(std::mem::replace(&mut self.to, from));
        }
        self.direction = self.direction.opposite();
    }

    /// Returns the next record of the batch: key, value, and whether the value is a descriptor. It
    /// stays the next one until [`RangeEnd::step`].
    pub(crate) fn peek(&self) -> Option<(&[u8], &[u8], bool)> {
        (self.next < self.batch.len()).then(|| self.batch.entry(self.next))
    }

    /// Moves past the next record, which is given out, or is not there any more.
    pub(crate) fn step(&mut self, given: bool) {
        self.next += 1;
        if given {
            self.pace.given();
        }
    }
}
