//! How commands are seen to their end.

use std::time::Duration;

use crate::canary::Canary;

/// Time-outs and retries of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScsiOptions {
    /// How long a command may take before the error ladder begins, ms.
    pub timeout_ms: u32,
    /// How long each task of the ladder (abort, LUN reset, target reset) may take, ms.
    pub task_timeout_ms: u32,
    /// How often a command is sent again, at most; what a unit refuses for being busy is not counted.
    pub retries_max: u8,
    /// Whether a channel that waits sleeps until the controller interrupts it; else it looks again and again.
    pub sleeps: bool,
    /// A bug to plant.
    #[doc(hidden)]
    pub canary: Option<Canary>,
}

impl ScsiOptions {
    /// Smallest time-out, ms.
    pub const TIMEOUT_MS_MIN: u32 = 10;

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.max(Self::TIMEOUT_MS_MIN).into())
    }
}

impl Default for ScsiOptions {
    fn default() -> Self {
        Self {
            timeout_ms: 30_000,
            task_timeout_ms: 10_000,
            retries_max: 5,
            sleeps: false,
            canary: None,
        }
    }
}
