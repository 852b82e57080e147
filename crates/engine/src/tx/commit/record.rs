//! The record of a commit in the log of its worker.

use std::cell::Cell;

use qpair_format::log::Operation;
use qpair_format::{Error, ErrorKind, Result};

use crate::log::Durability;
use crate::shared::Shared;
use crate::task::{Worker, current};
use crate::tx::transaction::{Item, TxState, Write, written};

/// Returns an upper bound of the size of a commit's record, in bytes.
pub(super) fn record_bytes_max(core: &TxState) -> usize {
    /// An upper bound of the record's header, and of each write without its key and value.
    const HEAD_BYTES: usize = 64;
    core.writes.iter().fold(HEAD_BYTES, |bytes, item| {
        bytes + HEAD_BYTES + item.key.len() + written(&item).map_or(0, |(value, _)| value.len())
    })
}

/// Appends the record of a commit to the worker's log. If the commit was given up after it had its
/// timestamp, the record has no writes.
pub(super) fn append(
    core: &TxState,
    timestamp: impl FnOnce() -> Result<u64>,
    given_up: &Cell<bool>,
) -> Result<u64> {
    current(|worker| {
        let bytes_max = record_bytes_max(core);
        let timestamp = worker.append_commit(bytes_max, timestamp, |record| {
            if given_up.get() {
                return;
            }
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
        })?;
        if core.durability == Durability::Sync {
            worker.pump_log();
        }
        Ok(timestamp)
    })
    .unwrap_or_else(|| match core.shared().wal.options.enabled {
        true => Err(Error::new(ErrorKind::Invalid, "a commit can only run on a worker")),
        false => Ok(0),
    })
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
