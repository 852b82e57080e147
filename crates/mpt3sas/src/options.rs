//! Options for driving a controller.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HbaOptions {
    /// The maximum number of reply queues: one more than the channels that can be open at once.
    /// Default: 64.
    pub queues: u8,
    /// The time limit of a step of a reset, ms. Default: 20,000.
    pub reset_timeout_ms: u32,
    /// The pause after a controller was told to reset, ms. Default: 50.
    pub reset_settle_ms: u32,
    /// The time limit for the answer to one of the driver's own messages, ms. Default: 30,000.
    pub message_timeout_ms: u32,
    /// The interval at which the controller's state is checked while channels are polled, ms.
    /// Default: 1000.
    pub watch_ms: u32,
}

impl HbaOptions {
    pub(crate) fn reset_timeout(&self) -> Duration {
        Duration::from_millis(self.reset_timeout_ms.into())
    }

    pub(crate) fn settle(&self) -> Duration {
        Duration::from_millis(self.reset_settle_ms.into())
    }

    pub(crate) fn message_timeout(&self) -> Duration {
        Duration::from_millis(self.message_timeout_ms.into())
    }
}

impl Default for HbaOptions {
    fn default() -> Self {
        Self {
            queues: 64,
            reset_timeout_ms: 20_000,
            reset_settle_ms: 50,
            message_timeout_ms: 30_000,
            watch_ms: 1000,
        }
    }
}
