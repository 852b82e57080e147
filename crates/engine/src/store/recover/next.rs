//! The end of a recovery: the next life's logs begin.
//!
//! What always holds: until a durable record names the new logs, a crash finds the old record, and all that it leads to.

use std::sync::atomic::Ordering;

use qpair_format::{ErrorKind, Result};

use super::scan::{Analysis, Logs};
use super::stages::Room;
use crate::canary::Canary;
use crate::checkpoint::checkpoint;
use crate::incarnation::Behind;
use crate::store::StoreInner;

/// Begins the logs of the life that begins, all that the old ones said being in the trees. If it can, behind the old logs, which `behind`
/// names; else with a checkpoint. Whether one is due afterwards.
pub(super) async fn begin(
    inner: &StoreInner,
    behind: Behind,
    logs: &Logs,
    found: &Analysis,
    room: Room,
) -> Result<bool> {
    let shared = &inner.shared;
    inner.incarnation.begin_change()?;
    let stays = room == Room::Enough && shared.log.enabled && logs.may_stay();
    let begun = match stays {
        true => {
            let ended = match shared.has_canary(Canary::EndlessLogs) {
                true => behind.logs,
                false => logs.ended_at(found.end.next_stamp - 1),
            };
            inner.incarnation.begin_logs(false, Some(Behind { logs: ended, ..behind })).await
        }
        false => inner.incarnation.begin_logs(false, None).await,
    };
    match begun {
        Err(error) if error.kind() == ErrorKind::NoSpace => {
            checkpoint(shared, false).await?;
            // With what the old logs were in.
            inner.incarnation.begin_logs(true, None).await?;
            Ok(false)
        }
        Err(error) => Err(error),
        Ok(()) if !shared.log.enabled => checkpoint(shared, false).await.map(|()| false),
        Ok(()) => {
            if stays {
                shared.log_bytes.fetch_add(found.bytes, Ordering::Relaxed);
            }
            Ok(stays)
        }
    }
}
