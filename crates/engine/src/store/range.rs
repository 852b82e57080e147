//! Iteration over ranges, leaf by leaf.

use std::ops::Bound;

use super::Table;
use crate::error::Result;
use crate::task::{run, run_inline};
use crate::tree::{Batch, Direction, ReadAhead, Scan, route};

/// Leaves a scan asks for ahead of itself at most.
const AHEAD_MAX: usize = 32;
/// Leaves a scan reads one by one before it looks ahead: short scans should not read what they do not want.
const LEAVES_BEFORE_AHEAD: u64 = 4;

/// Where a scan is.
struct Cursor {
    table: Table,
    direction: Direction,
    /// Where the next leaf begins, on the side the scan comes from; none at the end.
    from: Option<Bound<Vec<u8>>>,
    to: Bound<Vec<u8>>,
    batch: Batch,
    next: usize,
    /// Leaves fetched.
    leaves: u64,
    /// Leaves ahead that were asked for.
    ahead: usize,
    /// How far the last look ahead was, leaves.
    window: usize,
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
            leaves: 0,
            window: 0,
            ahead: 0,
        }
    }

    fn reverse(&mut self) {
        if let Some(from) = self.from.take() {
            self.from = Some(std::mem::replace(&mut self.to, from));
        }
        self.direction = match self.direction {
            Direction::Forward => Direction::Reverse,
            Direction::Reverse => Direction::Forward,
        };
    }

    /// The next record of the batch: key, value, and whether the value is an overflow descriptor.
    fn take(&mut self) -> Option<(Vec<u8>, Vec<u8>, bool)> {
        if self.next >= self.batch.len() {
            return None;
        }
        let (key, value, overflow) = self.batch.entry(self.next);
        self.next += 1;
        Some((key.to_vec(), value.to_vec(), overflow))
    }

    /// Goes on behind the leaf that was fetched.
    fn taken(&mut self) -> Result<()> {
        self.table.inner().shared.check_table(self.table.tree())?;
        self.next = 0;
        self.leaves += 1;
        self.ahead = self.ahead.saturating_sub(1);
        self.from = self.batch.next.take();
        Ok(())
    }

    /// Fetches the next leaf without waiting, on a caller's thread; `false` if it would have to wait.
    fn fetch_inline(&mut self) -> Result<bool> {
        let Some(from) = &self.from else { return Ok(false) };
        let shared = self.table.inner().shared.clone();
        let mut scan =
            Scan::new(self.table.tree(), self.direction, from, &self.to, &mut self.batch);
        if run_inline(&shared, &mut scan).is_none() {
            return Ok(false);
        }
        self.taken()?;
        Ok(true)
    }

    async fn fetch(&mut self) -> Result<()> {
        let Some(from) = &self.from else { return Ok(()) };
        let shared = self.table.inner().shared.clone();
        // A scan of many leaves is one of many more, most often; the further it has come, the further it looks ahead.
        if self.leaves >= LEAVES_BEFORE_AHEAD && self.ahead <= self.window / 2 {
            self.window = (self.window * 2).clamp(4, AHEAD_MAX);
            let route = route(self.direction, from);
            run(&shared, ReadAhead::new(self.table.tree(), self.direction, route, self.window))
                .await?;
            self.ahead = self.window;
        }
        run(&shared, Scan::new(self.table.tree(), self.direction, from, &self.to, &mut self.batch))
            .await?;
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

    /// Turns the direction round. Call it before the first [`TaskRange::next`].
    #[must_use]
    pub fn reverse(mut self) -> Self {
        self.cursor.reverse();
        self
    }

    /// The next record.
    ///
    /// # Errors
    /// As [`Table::get`]; the iteration can go on from there.
    pub async fn next(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        loop {
            if let Some((key, mut value, overflow)) = self.cursor.take() {
                // A large value that was deleted since its leaf was read is gone from the scan as well.
                if overflow && !self.cursor.table.task().resolve(&key, &mut value).await? {
                    continue;
                }
                return Ok(Some((key, value)));
            }
            if self.cursor.from.is_none() {
                return Ok(None);
            }
            self.cursor.fetch().await?;
        }
    }
}

/// Records of a range: a blocking iterator for any thread but a worker's.
pub struct Range {
    cursor: Option<Cursor>,
}

impl Range {
    pub(crate) fn new(table: Table, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Self {
        Self { cursor: Some(Cursor::new(table, from, to)) }
    }

    /// Turns the direction round. Call it before the first record is taken.
    #[must_use]
    pub fn reverse(mut self) -> Self {
        if let Some(cursor) = &mut self.cursor {
            cursor.reverse();
        }
        self
    }

    fn advance(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        loop {
            let Some(cursor) = &mut self.cursor else { return Ok(None) };
            if let Some((key, value, overflow)) = cursor.take() {
                if !overflow {
                    return Ok(Some((key, value)));
                }
                let task = cursor.table.task();
                let inner = cursor.table.inner().clone();
                let entry = inner.block_on(move || async move {
                    let mut value = value;
                    Ok(task.resolve(&key, &mut value).await?.then_some((key, value)))
                })?;
                match entry {
                    Some(entry) => return Ok(Some(entry)),
                    None => continue,
                }
            }
            if cursor.from.is_none() {
                return Ok(None);
            }
            if !cursor.fetch_inline()? {
                // The cursor travels to a worker and back; an error leaves none, and ends the iteration.
                let Some(mut cursor) = self.cursor.take() else { return Ok(None) };
                cursor.ahead = 0;
                let inner = cursor.table.inner().clone();
                self.cursor = Some(inner.block_on(move || async move {
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
        self.advance().transpose()
    }
}
