//! The log: entries by index, in a row without a hole. A crash leaves a prefix of the commits, so
//! an append is durable only with all that was written before it.

use crate::codec::{encode, index_key, index_of};
use crate::group::{Group, key};
use qpair::Result;
use qpair::transaction::Commit;
use serde::Serialize;
use std::ops::{Bound, RangeBounds};

/// The bytes of entries that one transaction appends. A larger append takes several, in order.
const APPEND_BYTES_MAX: usize = 16 << 20;
/// The entries that one transaction removes.
const REMOVED_ENTRIES_MAX: u64 = 20_000;
/// The bytes after which a limited read ends.
pub(crate) const READ_BYTES_MAX: usize = 4 << 20;

impl Group {
    /// Appends encoded entries. They can be read when the call returns, and are durable with the
    /// commit, which is `None` if there are no entries.
    pub(crate) async fn append(&self, entries: Vec<(u64, Vec<u8>)>) -> Result<Option<Commit>> {
        let mut last = None;
        let mut entries = entries.into_iter().peekable();
        while entries.peek().is_some() {
            let mut transaction = self.begin();
            let mut bytes = 0;
            while bytes < APPEND_BYTES_MAX
                && let Some((index, entry)) = entries.next()
            {
                transaction.put(self.log(), &index_key(index), &entry)?;
                bytes += entry.len() + 64;
            }
            last = Some(transaction.commit_async().await?);
        }
        Ok(last)
    }

    /// Encoded entries of a range, in order, at most `bytes_max` of them after the first.
    pub(crate) fn read_log(
        &self,
        range: impl RangeBounds<u64>,
        bytes_max: usize,
    ) -> Result<Vec<Vec<u8>>> {
        let start = match range.start_bound() {
            Bound::Included(&index) => index,
            Bound::Excluded(&index) => index.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&index) => Bound::Included(index_key(index)),
            Bound::Excluded(&index) if index <= start => return Ok(Vec::new()),
            Bound::Excluded(&index) => Bound::Excluded(index_key(index)),
            Bound::Unbounded => Bound::Unbounded,
        };
        let mut transaction = self.begin_read();
        let mut found = Vec::new();
        let mut bytes = 0;
        for record in transaction.range(self.log(), (Bound::Included(index_key(start)), end))? {
            let (_, entry) = record?;
            bytes += entry.len();
            if bytes > bytes_max && !found.is_empty() {
                break;
            }
            found.push(entry);
        }
        Ok(found)
    }

    /// The last entry, encoded.
    pub(crate) fn last_entry(&self) -> Result<Option<Vec<u8>>> {
        let mut transaction = self.begin_read();
        let last = transaction.range(self.log(), ..)?.reverse().next().transpose()?;
        Ok(last.map(|(_, entry)| entry))
    }

    fn end_of_log(&self, last: bool) -> Result<Option<u64>> {
        let mut transaction = self.begin_read();
        let range = transaction.range(self.log(), ..)?;
        let found = if last { range.reverse().next() } else { range.limit(1).next() };
        found.transpose()?.map(|(key, _)| index_of(&key)).transpose()
    }

    /// Removes all entries from an index on, the last ones first, so that a crash between two
    /// transactions leaves no hole. Durable when the call returns.
    pub(crate) async fn truncate(&self, from: u64) -> Result<()> {
        let Some(last) = self.end_of_log(true)? else { return Ok(()) };
        let mut end = last.saturating_add(1);
        let mut commit = None;
        while end > from {
            let start = end.saturating_sub(REMOVED_ENTRIES_MAX).max(from);
            let mut transaction = self.begin();
            transaction
                .delete_range(self.log(), (Bound::Included(index_key(start)), Bound::Unbounded))?;
            commit = Some(transaction.commit_async().await?);
            end = start;
        }
        match commit {
            Some(commit) => self.durable(commit).await,
            None => Ok(()),
        }
    }

    /// Removes all entries up to an index, inclusive. The position goes first: entries below it
    /// do not belong to the log, and opening the group removes those that a crash left.
    pub(crate) async fn purge<T: Serialize>(&self, index: u64, log_id: &T) -> Result<()> {
        let purged = encode("the purged position", &(index, encode("a log id", log_id)?))?;
        let mut first = true;
        let mut start = self.end_of_log(false)?.unwrap_or(u64::MAX);
        while first || start <= index {
            let end = index.min(start.saturating_add(REMOVED_ENTRIES_MAX - 1));
            let mut transaction = self.begin();
            if first {
                transaction.put(self.positions(), key::PURGED, &purged)?;
            }
            transaction.delete_range(self.log(), ..=index_key(end))?;
            // Not waited for: if a crash undoes it, the entries are there and so is the position before.
            transaction.commit_async().await?;
            first = false;
            start = start.saturating_add(REMOVED_ENTRIES_MAX);
        }
        Ok(())
    }

    /// The index and the encoded log id of the last entry that was purged.
    pub(crate) fn purged(&self) -> Result<Option<(u64, Vec<u8>)>> {
        self.position(key::PURGED)
    }

    pub(crate) fn finish_purge(&self) -> Result<()> {
        if let Some((index, _)) = self.purged()? {
            self.log().delete_range(..=index_key(index))?;
        }
        Ok(())
    }
}
