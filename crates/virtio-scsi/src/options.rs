//! How a device is driven.

use std::time::Duration;

/// How to drive a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtioScsiOptions {
    /// Request queues to use, at most: channels that can be open at once.
    pub queues: u16,
    /// How long a reset may take, ms.
    pub reset_timeout_ms: u32,
    /// How long the answers to a scan may take, ms.
    pub scan_timeout_ms: u32,
    /// How often the device's status is looked at while channels are polled, ms.
    pub watch_ms: u32,
}

impl VirtioScsiOptions {
    pub(crate) fn reset_timeout(&self) -> Duration {
        Duration::from_millis(self.reset_timeout_ms.into())
    }

    pub(crate) fn scan_timeout(&self) -> Duration {
        Duration::from_millis(self.scan_timeout_ms.into())
    }
}

impl Default for VirtioScsiOptions {
    fn default() -> Self {
        Self { queues: 64, reset_timeout_ms: 20_000, scan_timeout_ms: 30_000, watch_ms: 1000 }
    }
}
