//! The clock of a unit: it begins at nothing with the power, and goes on from what it is set to.

use std::time::Instant;

use qpair_scsi_wire::timestamp::{ORIGIN_POWER_ON, ORIGIN_SET, Timestamp};

#[derive(Debug)]
pub(crate) struct Clock {
    began: Timestamp,
    since: Instant,
}

impl Clock {
    /// As after power on.
    pub(crate) fn begin(now: Instant) -> Self {
        Self { began: Timestamp { origin: ORIGIN_POWER_ON, ms: 0 }, since: now }
    }

    /// Set by an initiator.
    pub(crate) fn set(ms: u64, now: Instant) -> Self {
        Self { began: Timestamp { origin: ORIGIN_SET, ms }, since: now }
    }

    pub(crate) fn at(&self, now: Instant) -> Timestamp {
        let Timestamp { origin, ms } = self.began;
        Timestamp { origin, ms: ms.wrapping_add((now - self.since).as_millis() as u64) }
    }
}
