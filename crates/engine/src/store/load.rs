//! Sorted loads from a thread that is not a worker. The thread gathers the records and passes them
//! to a task part by part.
//!
//! The caller's iterator may wait for a pipe, or read this store: neither may be done on a worker.
//! While the task builds pages of one part, the thread gathers the next one.

use qpair_format::{Error, ErrorKind, Result};

use super::{BulkLoader, Table, TaskTable};
use crate::task::{JoinHandle, OneshotSender, oneshot, refuse_on_worker};

/// The number of records, and of bytes, after which a part is passed to the task.
const PART_RECORDS: usize = 16 << 10;
const PART_BYTES: usize = 1 << 20;

/// A buffer of records, one after the other. The caller's own vectors are freed on the caller's
/// thread.
#[derive(Default)]
struct Records {
    bytes: Vec<u8>,
    /// The lengths of each record's key and value.
    lens: Vec<(usize, usize)>,
}

impl Records {
    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.lens.push((key.len(), value.len()));
    }

    fn is_part(&self) -> bool {
        self.lens.len() >= PART_RECORDS || self.bytes.len() >= PART_BYTES
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.lens.clear();
    }
}

enum Part {
    /// Records, the channel to return their memory through, and the channel of the next part.
    Some(Records, OneshotSender<Records>, JoinHandle<Part>),
    Last(Records),
    Failed(Error),
}

impl Table {
    /// Loads records, in the order of their keys, into this empty table; returns their number. Much
    /// faster than [`Table::put`]. `records` is iterated on the caller's thread, up to 16,384
    /// records or 1 MiB ahead of the writes.
    ///
    /// # Errors
    /// `Invalid` if the table is not empty or the keys do not ascend, and on a worker; the first
    /// error of the iterator; otherwise as [`Table::put`]. After an error the table is empty as
    /// before, unless the last checkpoint failed: then the records are visible, and a crash may
    /// lose them.
    pub fn bulk_load<I>(&self, records: I) -> Result<u64>
    where
        I: IntoIterator<Item = Result<(Vec<u8>, Vec<u8>)>>,
    {
        refuse_on_worker()?;
        let (mut send, first) = oneshot();
        let table = self.task();
        let loading = self.inner().start(move || load(table, first))?;
        let mut part = Records::default();
        let mut taken: Option<JoinHandle<Records>> = None;
        for record in records {
            match record {
                Ok((key, value)) => part.push(&key, &value),
                Err(error) => {
                    send.fill(Ok(Part::Failed(error)));
                    return loading.join()?;
                }
            }
            if !part.is_part() {
                continue;
            }
            let free = match taken.take().map(JoinHandle::join) {
                None => Records::default(),
                Some(Ok(records)) => records,
                // The loading task has ended with an error, which the join below returns.
                Some(Err(_)) => break,
            };
            let ((tell, told), (next, parts)) = (oneshot(), oneshot());
            let full = std::mem::replace(&mut part, free);
            send.fill(Ok(Part::Some(full, tell, parts)));
            (send, taken) = (next, Some(told));
        }
        send.fill(Ok(Part::Last(part)));
        loading.join()?
    }
}

async fn load(table: TaskTable, first: JoinHandle<Part>) -> Result<u64> {
    let mut loader = table.bulk_loader().await?;
    match take(&mut loader, first).await {
        Ok(()) => loader.finish().await,
        Err(error) => {
            loader.abandon().await;
            Err(error)
        }
    }
}

async fn take(loader: &mut BulkLoader, first: JoinHandle<Part>) -> Result<()> {
    let mut next = first;
    loop {
        // Fails if the caller's iterator panicked, since then no part was sent.
        let part = next.await.map_err(|_| {
            Error::new(ErrorKind::Interrupted, "a sorted load was dropped before its end")
        })?;
        let (mut records, more) = match part {
            Part::Some(records, tell, parts) => (records, Some((tell, parts))),
            Part::Last(records) => (records, None),
            Part::Failed(error) => return Err(error),
        };
        let mut rest = records.bytes.as_slice();
        for (key_len, value_len) in &records.lens {
            let (key, after) = rest.split_at(*key_len);
            let (value, after) = after.split_at(*value_len);
            loader.push(key, value).await?;
            rest = after;
        }
        let Some((tell, parts)) = more else { return Ok(()) };
        records.clear();
        tell.fill(Ok(records));
        next = parts;
    }
}
