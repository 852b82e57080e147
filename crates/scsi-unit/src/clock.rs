//! The clock of a unit: it begins at nothing with the power, and goes on from what it is set to.

use std::time::Instant;

use qpair_scsi_wire::timestamp::{ORIGIN_POWER_ON, ORIGIN_SET, Timestamp};

#[derive(Debug)]
pub(crate) struct Clock {
    began: Timestamp,
    since: Instant,
}

impl Default for Clock {
    /// As after power on.
    fn default() -> Self {
        Self { began: Timestamp { origin: ORIGIN_POWER_ON, ms: 0 }, since: Instant::now() }
    }
}

impl Clock {
    /// Set by an initiator.
    pub(crate) fn set(ms: u64) -> Self {
        Self { began: Timestamp { origin: ORIGIN_SET, ms }, since: Instant::now() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        let Timestamp { origin, ms } = self.began;
        Timestamp { origin, ms: ms.wrapping_add(self.since.elapsed().as_millis() as u64) }
    }
}
