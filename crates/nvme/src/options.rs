//! How a controller is driven.

use std::fmt;
use std::time::Duration;

use qpair_pci::Patience;

/// How a channel waits for completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WaitMode {
    /// It looks at the completion queue until something is there; the controller sends no interrupts.
    #[default]
    Poll,
    /// It sleeps until the controller's interrupt (MSI-X), which arrives as an event.
    Sleep,
}

impl fmt::Display for WaitMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Poll => "poll",
            Self::Sleep => "sleep",
        })
    }
}

/// How to drive a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerOptions {
    /// How channels wait.
    pub wait: WaitMode,
    /// Entries of each I/O queue; `None`: as many as a channel's depth needs.
    pub queue_entries: Option<u32>,
    /// How long a command may take before it is aborted, ms.
    pub timeout_ms: u32,
    /// I/O queue pairs to ask the controller for: the most channels that can be open at once.
    pub queues: u16,
    /// How long the controller may take to become ready, ms; `None`: as long as it says, and at least a second.
    pub ready_timeout_ms: Option<u32>,
    /// The judge that may end a wait for a controller without an answer, before the time-out.
    pub patience: Patience,
}

impl ControllerOptions {
    /// Smallest time-out, ms.
    pub const TIMEOUT_MS_MIN: u32 = 10;
    /// Largest time-out, ms: an hour.
    pub const TIMEOUT_MS_MAX: u32 = 3_600_000;

    pub(crate) fn timeout(&self) -> Duration {
        let ms = self.timeout_ms.clamp(Self::TIMEOUT_MS_MIN, Self::TIMEOUT_MS_MAX);
        Duration::from_millis(ms.into())
    }
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            wait: WaitMode::Poll,
            queue_entries: None,
            timeout_ms: 10_000,
            queues: 64,
            ready_timeout_ms: None,
            patience: Patience::default(),
        }
    }
}
