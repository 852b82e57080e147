//! Options for driving a device.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtioScsiOptions {
    /// The maximum number of request queues: channels that can be open at once. Default: 64.
    pub queues: u16,
    /// The time limit of a reset, ms. Default: 20,000.
    pub reset_timeout_ms: u32,
    /// The time limit for the answers to a scan, ms. Default: 30,000.
    pub scan_timeout_ms: u32,
    /// The interval at which the device's status is checked while channels are polled, ms. Default:
    /// 1000.
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
