//! The record of a commit in the log of its worker.

use std::cell::Cell;

use qpair_block::format_bytes;
use qpair_format::log::{Operation, RECORD_BYTES_MAX, RecordBuilder};
use qpair_format::{Error, ErrorKind, Result};

use super::windows::parts_max;
use crate::log::Durability;
use crate::shared::Shared;
use crate::task::{Worker, current};
use crate::tx::transaction::{Item, RECORD_HEAD_BYTES, TxState, Write};

/// Returns an upper bound of the size of a record of the writes in memory, in bytes.
///
/// # Errors
/// `TooLarge` if a record cannot have so many.
fn record_bytes_max(core: &TxState) -> Result<usize> {
    let writes = core.writes.iter().map(|item| item.record_bytes_max());
    let bytes = RECORD_HEAD_BYTES + writes.sum::<usize>();
    if bytes <= RECORD_BYTES_MAX {
        return Ok(bytes);
    }
    Err(Error::with_hint(
        ErrorKind::TooLarge,
        format!(
            "the commit needs a log record of up to {}; the limit is {}",
            format_bytes(bytes as u64),
            format_bytes(RECORD_BYTES_MAX as u64)
        ),
        "lower write_set_bytes_max of the transaction's options: what exceeds it goes to the device, and to the log in parts",
    ))
}

/// Makes room in the worker's log for a commit whose record comes after its timestamp.
///
/// # Errors
/// `TooLarge`, `NoSpace`.
pub(super) fn expect(core: &TxState) -> Result<()> {
    let of_device = core.spilled.as_ref().map_or(0, |spilled| spilled.record_bytes());
    // Each part may be written by itself, and does not fill its last block.
    let parts = if of_device > 0 { parts_max(of_device, core.bytes_max) } else { 0 };
    let of_parts = parts * core.shared().wal.geometry().block_bytes as usize;
    let bytes_max = record_bytes_max(core)? + of_device + of_parts;
    current(|worker| worker.expect_commit(bytes_max)).unwrap_or(Ok(()))
}

/// Encodes the writes in memory.
fn encode(core: &TxState, record: &mut RecordBuilder<'_>) {
    for Item { tree, key, write, .. } in core.writes.iter() {
        let tree = tree.id;
        record.push(match write {
            Write::Inline(value) => Operation::Put { tree, key, value },
            Write::Large(descriptor) => Operation::PutLarge {
                tree,
                key,
                descriptor: descriptor.try_into().unwrap_or_default(),
            },
            Write::Delete => Operation::Delete { tree, key },
        });
    }
}

/// Appends the writes in memory as a part of the commit's record that is not the last one.
pub(super) fn append_part(core: &TxState, timestamp: u64) -> Result<()> {
    let appended = current(|worker| worker.append_part(timestamp, |record| encode(core, record)));
    appended.unwrap_or_else(|| Err(not_on_worker()))
}

/// Appends the record of a commit to the worker's log. If the commit was given up after it had its
/// timestamp, the record has no writes.
pub(super) fn append(
    core: &TxState,
    timestamp: impl FnOnce() -> Result<u64>,
    given_up: &Cell<bool>,
) -> Result<u64> {
    current(|worker| {
        let bytes_max = record_bytes_max(core)?;
        let timestamp = worker.append_commit(bytes_max, timestamp, |record| {
            if !given_up.get() {
                encode(core, record);
            }
        })?;
        if core.durability == Durability::Sync {
            worker.pump_log();
        }
        Ok(timestamp)
    })
    .unwrap_or_else(|| match core.shared().wal.options.enabled {
        true => Err(not_on_worker()),
        false => Ok(0),
    })
}

fn not_on_worker() -> Error {
    Error::new(ErrorKind::Invalid, "a commit can only run on a worker")
}

/// Waits until all commits up to this timestamp survive power loss.
pub(crate) async fn wait_durable(shared: &Shared, timestamp: u64) -> Result<()> {
    if !shared.wal.options.enabled {
        return match shared.lifecycle.failure() {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        };
    }
    Worker::wait_durable(timestamp).await
}
