//! Ranges of tables as transactions and snapshots see them.

use qpair_format::Result;

use super::snapshot::Snapshot;
use super::transaction::Transaction;
use crate::tx::{RangeCursor, View, next_inline, next_into};

/// The records of a range as a transaction or snapshot sees them, for tasks.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// table.put(b"a", b"1")?;
/// let (task, of) = (store.task(), table.clone());
/// let first = store.spawn(move || async move {
///     let snapshot = task.snapshot()?;
///     snapshot.range(&of, ..)?.next().await
/// });
/// assert_eq!(first.join()??, Some((b"a".to_vec(), b"1".to_vec())));
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TaskTransactionRange<'a> {
    view: View<'a>,
    cursor: RangeCursor,
}

impl Drop for TaskTransactionRange<'_> {
    fn drop(&mut self) {
        if let View::Transaction(core) = &mut self.view {
            let RangeCursor { end, spare, .. } = &mut self.cursor;
            core.batches = (std::mem::take(&mut end.batch), std::mem::take(spare));
        }
    }
}

impl<'a> TaskTransactionRange<'a> {
    pub(super) fn new(mut view: View<'a>, mut cursor: RangeCursor) -> Self {
        if let View::Transaction(core) = &mut view {
            (cursor.end.batch, cursor.spare) = std::mem::take(&mut core.batches);
            cursor.end.batch.clear();
            cursor.spare.clear();
        }
        Self { view, cursor }
    }

    /// Ends the range after this many records, and reads no more of the leaves than they need.
    #[must_use]
    pub fn limit(mut self, records: usize) -> Self {
        self.cursor.end.pace.limit(records);
        self
    }

    /// Reverses the direction. Call it before the first record is taken.
    #[must_use]
    pub fn reverse(mut self) -> Self {
        self.cursor.end.reverse();
        self
    }

    /// Returns the next record.
    ///
    /// # Errors
    /// As [`TaskTransaction::get`](super::TaskTransaction::get).
    pub async fn next(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        Ok(self.next_into(&mut key, &mut value).await?.then_some((key, value)))
    }

    /// Appends the next record to `key` and `value`; returns `false` at the end. No memory is
    /// allocated if both have room.
    ///
    /// # Errors
    /// As [`TaskTransactionRange::next`].
    pub async fn next_into(&mut self, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<bool> {
        next_into(&mut self.cursor, &mut self.view, key, value).await
    }
}

/// The records of a range as a transaction or snapshot sees them: a blocking iterator for threads
/// that are no workers. It can be read from both ends.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// let scores = store.table("scores")?;
/// scores.put(b"ada", b"7")?;
/// store.transact(|tx| {
///     tx.put(&scores, b"alan", b"9")?;
///     tx.put(&scores, b"barbara", b"8")?;
///     let mut range = tx.range(&scores, ..)?;
///     assert_eq!(range.next().transpose()?.unwrap().0, b"ada");
///     assert_eq!(range.next_back().transpose()?.unwrap().0, b"barbara");
///     assert_eq!(range.next().transpose()?.unwrap().0, b"alan");
///     assert!(range.next_back().is_none());
///     Ok(())
/// })?;
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// table.put(b"a", b"1")?;
/// let mut tx = store.begin();
/// tx.put(&table, b"b", b"2")?;
/// // Its own changes are among the others.
/// assert_eq!(tx.range(&table, ..)?.count(), 2);
/// tx.rollback();
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TransactionRange<'a> {
    source: Source<'a>,
    cursor: Option<RangeCursor>,
    /// The cursor from the other end, once [`DoubleEndedIterator::next_back`] was called.
    back: Option<RangeCursor>,
}

pub(super) enum Source<'a> {
    Transaction(&'a mut Transaction),
    Snapshot(&'a Snapshot),
}

impl<'a> TransactionRange<'a> {
    pub(super) fn new(source: Source<'a>, cursor: RangeCursor) -> Self {
        Self { source, cursor: Some(cursor), back: None }
    }

    /// Ends the range after this many records, and reads no more of the leaves than they need.
    /// Prefer this to `take`, which the range cannot know about.
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

    fn advance(
        source: &mut Source<'_>,
        end: &mut Option<RangeCursor>,
    ) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let Some(cursor) = end else { return Ok(None) };
        let inline = match source {
            Source::Transaction(transaction) => {
                next_inline(cursor, &mut View::Transaction(transaction.core()?))?
            }
            Source::Snapshot(snapshot) => next_inline(cursor, &mut View::Snapshot(&snapshot.core))?,
        };
        if let Some(record) = inline {
            return Ok(record);
        }
        // The cursor moves to a worker and back. After an error there is no cursor, and the
        // iteration ends.
        let Some(mut cursor) = end.take() else { return Ok(None) };
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let (cursor, record) = match source {
            Source::Transaction(transaction) => {
                transaction.on_worker(move |mut core| async move {
                    let mut view = View::Transaction(&mut core);
                    let found = next_into(&mut cursor, &mut view, &mut key, &mut value).await;
                    (core, found.map(|found| (cursor, found.then_some((key, value)))))
                })?
            }
            Source::Snapshot(snapshot) => {
                let core = snapshot.core.clone();
                snapshot.inner.clone().block_on(move || async move {
                    let mut view = View::Snapshot(&core);
                    let found = next_into(&mut cursor, &mut view, &mut key, &mut value).await?;
                    Ok((cursor, found.then_some((key, value))))
                })?
            }
        };
        *end = Some(cursor);
        Ok(record)
    }
}

impl Iterator for TransactionRange<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = Self::advance(&mut self.source, &mut self.cursor).transpose();
        if let (Some(Ok((key, _))), Some(back)) = (&record, &mut self.back) {
            back.end.given_by_other(key);
        }
        record
    }
}

impl DoubleEndedIterator for TransactionRange<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.back.is_none() {
            self.back = self.cursor.as_ref().and_then(RangeCursor::other_end);
        }
        let record = Self::advance(&mut self.source, &mut self.back).transpose();
        if let (Some(Ok((key, _))), Some(front)) = (&record, &mut self.cursor) {
            front.end.given_by_other(key);
        }
        record
    }
}
