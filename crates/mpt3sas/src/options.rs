//! How a controller is driven.

use std::time::Duration;

/// How to drive a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HbaOptions {
    /// Reply queues to use, at most: one more than channels that can be open at once.
    pub queues: u8,
    /// How long a step of a reset may take, ms.
    pub reset_timeout_ms: u32,
    /// How long a card is left alone after it was told to reset, ms.
    pub reset_settle_ms: u32,
    /// How long an answer to the driver's own messages may take, ms.
    pub message_timeout_ms: u32,
    /// How often the controller's state is looked at while channels are polled, ms.
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
