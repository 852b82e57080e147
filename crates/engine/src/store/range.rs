//! Iteration over ranges, leaf by leaf.

use std::ops::Bound;

use qpair_format::Result;

use super::Table;
use crate::task::{run, run_inline};
use crate::tree::{Batch, Direction, Pace, ReadAhead, Scan};

/// Where a scan is.
struct Cursor {
    table: Table,
    direction: Direction,
    /// Where the next leaf begins, on the side the scan comes from; none at the end.
    from: Option<Bound<Vec<u8>>>,
    to: Bound<Vec<u8>>,
    batch: Batch,
    next: usize,
    pace: Pace,
    /// What the other end of the range has given out last: it goes no further than that.
    limit: Option<Vec<u8>>,
}

impl Cursor {
    fn new(table: Table, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Self {
        Self {
            table,
            direction: Direction::Forward,
            from: Some(from),
            to,
            batch: Batch::default(),
            next: 0,
            pace: Pace::default(),
            limit: None,
        }
    }

    /// One that comes from the other end, for as much as this one has not given out.
    fn other_end(&self) -> Option<Self> {
        let left = match self.next < self.batch.len() {
            true => Bound::Included(self.batch.entry(self.next).0.to_vec()),
            false => self.from.clone()?,
        };
        let mut other = Self::new(self.table.clone(), self.to.clone(), left);
        other.direction = self.direction.opposite();
        other.pace.at_most(self.pace.left());
        Some(other)
    }

    /// The other end has given out the record of a key.
    fn given_by_other(&mut self, key: &[u8]) {
        self.limit = Some(key.to_vec());
        self.pace.given();
    }

    /// Whether the other end has given out the record of this key, or of one before it.
    fn is_past_limit(&self, key: &[u8]) -> bool {
        self.limit.as_ref().is_some_and(|limit| !self.direction.comes_before(key, limit))
    }

    fn end(&mut self) {
        self.from = None;
        self.batch.clear();
    }

    fn reverse(&mut self) {
        if let Some(from) = self.from.take() {
            self.from = Some(std::mem::replace(&mut self.to, from));
        }
        self.direction = self.direction.opposite();
    }

    /// The next record of the batch: key, value, and whether the value is an overflow descriptor. It stays the next one until
    /// [`Cursor::step`].
    fn peek(&self) -> Option<(Vec<u8>, Vec<u8>, bool)> {
        if self.next >= self.batch.len() {
            return None;
        }
        let (key, value, overflow) = self.batch.entry(self.next);
        Some((key.to_vec(), value.to_vec(), overflow))
    }

    /// Goes on behind the next record, which is given out, or is not there any more.
    fn step(&mut self, given: bool) {
        self.next += 1;
        if given {
            self.pace.given();
        }
    }

    /// Goes on behind the leaf that was fetched.
    fn taken(&mut self) -> Result<()> {
        self.table.inner().shared.check_table(self.table.tree())?;
        self.next = 0;
        self.pace.passed();
        self.from = self.batch.next.take();
        Ok(())
    }

    /// Fetches the next leaf without waiting, on a caller's thread; `false` if it would have to wait.
    fn fetch_inline(&mut self) -> Result<bool> {
        let Some(from) = &self.from else { return Ok(false) };
        let shared = self.table.inner().shared.clone();
        let mut scan =
            Scan::new(self.table.tree(), self.direction, from, &self.to, &mut self.batch)
                .limited(self.pace.left());
        if run_inline(&shared, &mut scan).is_none()
            || !shared.may_give(shared.log.reads_wait, self.batch.stamp)
        {
            self.batch.clear();
            return Ok(false);
        }
        self.taken()?;
        Ok(true)
    }

    async fn fetch(&mut self) -> Result<()> {
        let Some(from) = &self.from else { return Ok(()) };
        // A caller that drops this while it waits finds the range where it was: a leaf counts only once it is taken.
        self.next = usize::MAX;
        let shared = self.table.inner().shared.clone();
        if let Some(window) = self.pace.window(self.batch.leaf_records) {
            let tree = self.table.tree();
            let ahead = ReadAhead::new(tree, self.direction, from, &self.to, window);
            self.pace.asked(run(&shared, ahead).await?);
        }
        let scan = Scan::new(self.table.tree(), self.direction, from, &self.to, &mut self.batch)
            .limited(self.pace.left());
        run(&shared, scan).await?;
        shared.wait_to_give(shared.log.reads_wait, self.batch.stamp).await?;
        self.taken()
    }
}

/// Records of a range, for tasks.
pub struct TaskRange {
    cursor: Cursor,
}

impl TaskRange {
    pub(crate) fn new(table: Table, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Self {
        Self { cursor: Cursor::new(table, from, to) }
    }

    /// Ends after so many records, and reads no more of the leaves than they need. Better than counting them, of which the range
    /// does not know. Call it before the first record is taken.
    #[must_use]
    pub fn at_most(mut self, records: usize) -> Self {
        self.cursor.pace.at_most(records);
        self
    }

    /// Turns the direction round. Call it before the first [`TaskRange::next`].
    #[must_use]
    pub fn reverse(mut self) -> Self {
        self.cursor.reverse();
        self
    }

    /// The next record.
    ///
    /// # Errors
    /// As [`Table::get`]. The next call asks again for a leaf that could not be read, and goes on behind a large value that could not.
    pub async fn next(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        while !self.cursor.pace.is_over() {
            if let Some((key, mut value, overflow)) = self.cursor.peek() {
                // A caller that drops this while it waits gets the record from the next call.
                let there = match overflow {
                    true => self.cursor.table.task().resolve(&key, &mut value).await,
                    false => Ok(true),
                };
                // A large value that was deleted since its leaf was read is gone from the scan as well, and another goes in its place.
                self.cursor.step(matches!(there, Ok(true)));
                match there? {
                    true => return Ok(Some((key, value))),
                    false => continue,
                }
            }
            if self.cursor.from.is_none() {
                return Ok(None);
            }
            self.cursor.fetch().await?;
        }
        Ok(None)
    }
}

/// Records of a range: a blocking iterator for any thread but a worker's. It can be asked at both ends.
pub struct Range {
    cursor: Option<Cursor>,
    /// From the other end, once it was asked there.
    back: Option<Cursor>,
}

impl Range {
    pub(crate) fn new(table: Table, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Self {
        Self { cursor: Some(Cursor::new(table, from, to)), back: None }
    }

    /// Ends after so many records, and reads no more of the leaves than they need. Better than `take`, of which the range
    /// does not know. Call it before the first record is taken.
    #[must_use]
    pub fn at_most(mut self, records: usize) -> Self {
        if let Some(cursor) = &mut self.cursor {
            cursor.pace.at_most(records);
        }
        self
    }

    /// Turns the direction round. Call it before the first record is taken.
    #[must_use]
    pub fn reverse(mut self) -> Self {
        if let Some(cursor) = &mut self.cursor {
            cursor.reverse();
        }
        self
    }

    /// The next record of one of its ends.
    fn advance(end: &mut Option<Cursor>) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        loop {
            let Some(cursor) = end else { return Ok(None) };
            if cursor.pace.is_over() {
                return Ok(None);
            }
            if let Some((key, value, overflow)) = cursor.peek() {
                if cursor.is_past_limit(&key) {
                    cursor.end();
                    return Ok(None);
                }
                if !overflow {
                    cursor.step(true);
                    return Ok(Some((key, value)));
                }
                let task = cursor.table.task();
                let inner = cursor.table.inner().clone();
                let entry = inner.block_on(move || async move {
                    let mut value = value;
                    Ok(task.resolve(&key, &mut value).await?.then_some((key, value)))
                });
                cursor.step(matches!(entry, Ok(Some(_))));
                match entry? {
                    Some(entry) => return Ok(Some(entry)),
                    None => continue,
                }
            }
            if cursor.from.is_none() {
                return Ok(None);
            }
            if !cursor.fetch_inline()? {
                // The cursor travels to a worker and back; an error leaves none, and ends the iteration.
                let Some(mut cursor) = end.take() else { return Ok(None) };
                cursor.pace.asked(0);
                let inner = cursor.table.inner().clone();
                *end = Some(inner.block_on(move || async move {
                    cursor.fetch().await?;
                    Ok(cursor)
                })?);
            }
        }
    }
}

impl Iterator for Range {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = Self::advance(&mut self.cursor).transpose();
        if let (Some(Ok((key, _))), Some(back)) = (&record, &mut self.back) {
            back.given_by_other(key);
        }
        record
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.back.is_none() {
            self.back = self.cursor.as_ref().and_then(Cursor::other_end);
        }
        let record = Self::advance(&mut self.back).transpose();
        if let (Some(Ok((key, _))), Some(front)) = (&record, &mut self.cursor) {
            front.given_by_other(key);
        }
        record
    }
}
