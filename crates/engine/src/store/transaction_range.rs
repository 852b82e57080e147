//! Ranges as transactions and snapshots see them.

use qpair_format::Result;

use super::snapshot::Snapshot;
use super::transaction::Transaction;
use crate::tx::{RangeCursor, View, next_inline, next_into};

/// Records of a range as a transaction or snapshot sees them, for tasks.
pub struct TaskTransactionRange<'a> {
    view: View<'a>,
    cursor: RangeCursor,
}

impl Drop for TaskTransactionRange<'_> {
    fn drop(&mut self) {
        if let View::Transaction(core) = &mut self.view {
            let RangeCursor { batch, spare, .. } = &mut self.cursor;
            core.batches = (std::mem::take(batch), std::mem::take(spare));
        }
    }
}

impl<'a> TaskTransactionRange<'a> {
    pub(super) fn new(mut view: View<'a>, mut cursor: RangeCursor) -> Self {
        if let View::Transaction(core) = &mut view {
            (cursor.batch, cursor.spare) = std::mem::take(&mut core.batches);
            cursor.batch.clear();
            cursor.spare.clear();
        }
        Self { view, cursor }
    }

    /// Ends after so many records, and reads no more of the leaves than they need.
    #[must_use]
    pub fn at_most(mut self, records: usize) -> Self {
        self.cursor.pace.at_most(records);
        self
    }

    /// Turns the direction round. Call it before the first record is taken.
    #[must_use]
    pub fn reverse(mut self) -> Self {
        self.cursor.reverse();
        self
    }

    /// The next record.
    ///
    /// # Errors
    /// As [`TaskTransaction::get`](super::TaskTransaction::get).
    pub async fn next(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        Ok(self.next_into(&mut key, &mut value).await?.then_some((key, value)))
    }

    /// Appends the next record to `key` and `value`; `false` at the end. No memory is allocated for it if both have
    /// room.
    ///
    /// # Errors
    /// As [`TaskTransactionRange::next`].
    pub async fn next_into(&mut self, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<bool> {
        next_into(&mut self.cursor, &mut self.view, key, value).await
    }
}

/// Records of a range as a transaction or snapshot sees them: a blocking iterator for threads that are no workers.
pub struct TransactionRange<'a> {
    pub(super) source: Source<'a>,
    pub(super) cursor: Option<RangeCursor>,
}

/// Whose range it is.
pub(super) enum Source<'a> {
    Transaction(&'a mut Transaction),
    Snapshot(&'a Snapshot),
}

impl TransactionRange<'_> {
    /// Ends after so many records, and reads no more of the leaves than they need. Better than `take`, of which the range
    /// does not know.
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

    fn advance(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let Some(cursor) = &mut self.cursor else { return Ok(None) };
        let inline = match &mut self.source {
            Source::Transaction(transaction) => {
                next_inline(cursor, &mut View::Transaction(transaction.core()?))?
            }
            Source::Snapshot(snapshot) => next_inline(cursor, &mut View::Snapshot(&snapshot.core))?,
        };
        if let Some(record) = inline {
            return Ok(record);
        }
        // The cursor travels to a worker and back; an error leaves none, and ends the iteration.
        let Some(mut cursor) = self.cursor.take() else { return Ok(None) };
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let (cursor, record) = match &mut self.source {
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
        self.cursor = Some(cursor);
        Ok(record)
    }
}

impl Iterator for TransactionRange<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}
