//! Options for time-outs and retries of commands.

use std::time::Duration;

use crate::canary::Canary;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScsiOptions {
    /// The time after which the error ladder begins for a command, ms. At least 10; default:
    /// 30,000.
    pub timeout_ms: u32,
    /// The time limit of each task of the ladder (abort, LUN reset, target reset), ms. Default:
    /// 10,000.
    pub task_timeout_ms: u32,
    /// The maximum number of retries of a command. Refusals by a busy unit do not count. Default:
    /// 5.
    pub retries_max: u8,
    /// Whether a waiting channel sleeps until the controller interrupts it, instead of polling.
    /// Default: false.
    pub sleeps: bool,
    #[doc(hidden)]
    pub canary: Option<Canary>,
}

impl ScsiOptions {
    /// The smallest time-out, ms.
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
