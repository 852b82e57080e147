//! The clock of a unit: it starts at zero when power comes on, and continues from any value that it
//! is set to.

use std::time::Instant;

use qpair_scsi_wire::timestamp::{ORIGIN_POWER_ON, ORIGIN_SET, Timestamp};

#[derive(Debug)]
pub(crate) struct Clock {
    began: Timestamp,
    since: Instant,
}

impl Clock {
    /// Starts the clock as after power on.
    pub(crate) fn begin(now: Instant) -> Self {
        Self { began: Timestamp { origin: ORIGIN_POWER_ON, ms: 0 }, since: now }
    }

    /// Sets the clock to an initiator's value.
    pub(crate) fn set(ms: u64, now: Instant) -> Self {
        Self { began: Timestamp { origin: ORIGIN_SET, ms }, since: now }
    }

    pub(crate) fn at(&self, now: Instant) -> Timestamp {
        let Timestamp { origin, ms } = self.began;
        Timestamp { origin, ms: ms.wrapping_add((now - self.since).as_millis() as u64) }
    }
}
