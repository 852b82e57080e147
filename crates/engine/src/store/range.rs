//! Iteration over ranges of a table, leaf by leaf.

use std::ops::Bound;

use qpair_format::Result;

use super::Table;
use crate::task::{run, run_inline};
use crate::tree::{RangeEnd, ReadAhead, Scan};

struct Cursor {
    table: Table,
    end: RangeEnd,
}

impl Cursor {
    fn new(table: Table, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Self {
        Self { end: RangeEnd::new(table.tree(), from, to), table }
    }

    /// Returns a cursor from the other end, for the part of the range that this cursor has not
    /// returned.
    fn other_end(&self) -> Option<Self> {
        Some(Self { table: self.table.clone(), end: self.end.other()? })
    }

    /// Returns the next record of the batch, as [`RangeEnd::peek`].
    fn peek(&self) -> Option<(Vec<u8>, Vec<u8>, bool)> {
        self.end.peek().map(|(key, value, overflow)| (key.to_vec(), value.to_vec(), overflow))
    }

    /// Decodes a value of the batch; returns `false` if it has expired.
    fn decode(&self, value: &mut Vec<u8>) -> Result<bool> {
        self.table.inner().shared.value(self.table.tree(), true, value, 0)
    }

    /// Continues after the leaf that was fetched.
    fn taken(&mut self) -> Result<()> {
        self.table.inner().shared.check_table(self.table.tree())?;
        self.end.next = 0;
        self.end.pace.passed();
        self.end.from = self.end.batch.next.take();
        Ok(())
    }

    /// Fetches the next leaf without waiting, on a caller's thread; returns `false` if it would
    /// have to wait.
    fn fetch_inline(&mut self) -> Result<bool> {
        let Some(from) = &self.end.from else { return Ok(false) };
        let shared = self.table.inner().shared.clone();
        let mut scan = Scan::new(
            self.table.tree(),
            self.end.direction,
            from,
            &self.end.to,
            &mut self.end.batch,
        )
        .limited(self.end.pace.left());
        if run_inline(&shared, &mut scan).is_none()
            || !shared.wal.may_give(shared.wal.options.reads_wait, self.end.batch.timestamp)
        {
            self.end.batch.clear();
            return Ok(false);
        }
        self.taken()?;
        Ok(true)
    }

    async fn fetch(&mut self) -> Result<()> {
        let Some(from) = &self.end.from else { return Ok(()) };
        // If the caller drops this future while it waits, the range keeps its position: a leaf
        // counts only once it is taken.
        self.end.next = usize::MAX;
        let shared = self.table.inner().shared.clone();
        if let Some(window) = self.end.pace.window(self.end.batch.leaf_records) {
            let tree = self.table.tree();
            let ahead = ReadAhead::new(tree, self.end.direction, from, &self.end.to, window);
            self.end.pace.asked(run(&shared, ahead).await?);
        }
        let scan = Scan::new(
            self.table.tree(),
            self.end.direction,
            from,
            &self.end.to,
            &mut self.end.batch,
        )
        .limited(self.end.pace.left());
        run(&shared, scan).await?;
        shared.wait_to_give(shared.wal.options.reads_wait, self.end.batch.timestamp).await?;
        self.taken()
    }
}

/// The records of a range, for tasks.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// table.put(b"a", b"1")?;
/// let of = table.task();
/// let first = store.spawn(move || async move { of.range(..)?.limit(1).next().await }).join()??;
/// assert_eq!(first, Some((b"a".to_vec(), b"1".to_vec())));
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TaskRange {
    cursor: Cursor,
}

impl TaskRange {
    pub(crate) fn new(table: Table, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Self {
        Self { cursor: Cursor::new(table, from, to) }
    }

    /// Ends the range after this many records, and reads no more of the leaves than they need.
    /// Prefer this to counting the records, which the range cannot know about. Call it before the
    /// first record is taken.
    #[must_use]
    pub fn limit(mut self, records: usize) -> Self {
        self.cursor.end.pace.limit(records);
        self
    }

    /// Reverses the direction. Call it before the first [`TaskRange::next`].
    #[must_use]
    pub fn reverse(mut self) -> Self {
        self.cursor.end.reverse();
        self
    }

    /// Returns the next record.
    ///
    /// # Errors
    /// As [`Table::get`]. After the error of a leaf, the next call tries to read the leaf again.
    /// After the error of a large value, it continues with the next record.
    pub async fn next(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        while !self.cursor.end.pace.is_over() {
            if let Some(record) = self.cursor.end.next_of_group() {
                return Ok(Some(record));
            }
            if let Some((key, mut value, overflow)) = self.cursor.peek() {
                // If the caller drops this future while it waits, the next call returns the record.
                let there = match overflow {
                    true => self.cursor.table.task().resolve(&key, &mut value).await,
                    false => self.cursor.decode(&mut value),
                };
                // A large value that was deleted since its leaf was read is skipped, as is a value that
                // has expired. They do not count towards the limit.
                let is_group = self.cursor.end.is_group(&key);
                self.cursor.end.step(matches!(there, Ok(true)) && !is_group);
                match there? {
                    true if is_group => self.cursor.end.open(&key, &value)?,
                    true => return Ok(Some((key, value))),
                    false => {}
                }
                continue;
            }
            if self.cursor.end.from.is_none() {
                return Ok(None);
            }
            self.cursor.fetch().await?;
        }
        Ok(None)
    }
}

/// The records of a range: a blocking iterator for any thread but a worker's. It can be read from
/// both ends.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// table.put(b"a", b"1")?;
/// table.put(b"b", b"2")?;
/// table.put(b"c", b"3")?;
/// let mut all = table.iter();
/// assert_eq!(all.next().transpose()?.unwrap().0, b"a");
/// assert_eq!(all.next_back().transpose()?.unwrap().0, b"c");
/// for record in table.range(..&b"c"[..])?.reverse().limit(10) {
///     let (key, value) = record?;
///     println!("{} {}", key.escape_ascii(), value.escape_ascii());
/// }
/// # drop(all);
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Range {
    cursor: Option<Cursor>,
    /// The cursor from the other end, once [`DoubleEndedIterator::next_back`] was called.
    back: Option<Cursor>,
}

impl Range {
    pub(crate) fn new(table: Table, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Self {
        Self { cursor: Some(Cursor::new(table, from, to)), back: None }
    }

    /// Ends the range after this many records, and reads no more of the leaves than they need.
    /// Prefer this to `take`, which the range cannot know about. Call it before the first record is
    /// taken.
    #[must_use]
    pub fn limit(mut self, records: usize) -> Self {
        if let Some(cursor) = &mut self.cursor {
            cursor.end.pace.limit(records);
        }
        self
    }

    /// Reverses the direction. Call it before the first record is taken.
    #[must_use]
    pub fn reverse(mut self) -> Self {
        if let Some(cursor) = &mut self.cursor {
            cursor.end.reverse();
        }
        self
    }

    /// Returns the next record from one end.
    fn advance(end: &mut Option<Cursor>) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        loop {
            let Some(cursor) = end else { return Ok(None) };
            if cursor.end.pace.is_over() {
                return Ok(None);
            }
            if let Some(record) = cursor.end.next_of_group() {
                return Ok(Some(record));
            }
            if let Some((key, mut value, overflow)) = cursor.peek() {
                if cursor.end.is_past_limit(&key) {
                    cursor.end.finish();
                    return Ok(None);
                }
                let is_group = cursor.end.is_group(&key);
                if !overflow {
                    let there = cursor.decode(&mut value);
                    cursor.end.step(!matches!(there, Ok(false)) && !is_group);
                    match there? {
                        true if is_group => cursor.end.open(&key, &value)?,
                        true => return Ok(Some((key, value))),
                        false => {}
                    }
                    continue;
                }
                let task = cursor.table.task();
                let inner = cursor.table.inner().clone();
                let entry = inner.block_on(move || async move {
                    let mut value = value;
                    Ok(task.resolve(&key, &mut value).await?.then_some((key, value)))
                });
                cursor.end.step(matches!(entry, Ok(Some(_))) && !is_group);
                match entry? {
                    Some((key, group)) if is_group => cursor.end.open(&key, &group)?,
                    Some(entry) => return Ok(Some(entry)),
                    None => {}
                }
                continue;
            }
            if cursor.end.from.is_none() {
                return Ok(None);
            }
            if !cursor.fetch_inline()? {
                // The cursor moves to a worker and back. After an error there is no cursor, and the
                // iteration ends.
                let Some(mut cursor) = end.take() else { return Ok(None) };
                cursor.end.pace.asked(0);
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
            back.end.given_by_other(key);
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
            front.end.given_by_other(key);
        }
        record
    }
}
