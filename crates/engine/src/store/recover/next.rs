//! The end of a recovery, at which the next incarnation's logs begin.
//!
//! Invariant: until a durable record names the new logs, a crash finds the old record, and
//! everything that it leads to.

use std::sync::atomic::Ordering;

use qpair_format::{ErrorKind, Result};

use super::scan::{Analysis, Logs};
use super::stages::Room;
use crate::canary::Canary;
use crate::checkpoint::checkpoint;
use crate::incarnation::Behind;
use crate::store::StoreInner;

/// Begins the logs of the new incarnation, after all changes in the old logs were applied to the
/// trees. If possible, the new logs follow the old ones, which `behind` names; otherwise a
/// checkpoint is made. Returns whether a checkpoint is due afterwards.
pub(super) async fn begin(
    inner: &StoreInner,
    behind: Behind,
    logs: &Logs,
    found: &Analysis,
    room: Room,
) -> Result<bool> {
    let shared = &inner.shared;
    inner.incarnation.begin_change()?;
    let stays = room == Room::Enough && shared.wal.options.enabled && logs.may_stay();
    let begun = match stays {
        true => {
            let ended = match shared.planted.is(Canary::EndlessLogs) {
                true => behind.logs,
                false => logs.ended_at(found.end.next_timestamp - 1),
            };
            inner.incarnation.begin_logs(false, Some(Behind { logs: ended, ..behind })).await
        }
        false => inner.incarnation.begin_logs(false, None).await,
    };
    match begun {
        Err(error) if error.kind() == ErrorKind::NoSpace => {
            checkpoint(shared, false).await?;
            // The checkpoint has freed the space of the old logs.
            inner.incarnation.begin_logs(true, None).await?;
            Ok(false)
        }
        Err(error) => Err(error),
        Ok(()) if !shared.wal.options.enabled => checkpoint(shared, false).await.map(|()| false),
        Ok(()) => {
            if stays {
                shared.wal.bytes.fetch_add(found.bytes, Ordering::Relaxed);
            }
            Ok(stays)
        }
    }
}
