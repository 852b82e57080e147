//! Options for driving a controller.

use std::fmt;
use std::time::Duration;

use qpair_pci::TimeoutPolicy;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WaitMode {
    /// The channel polls the completion queue; the controller sends no interrupts.
    #[default]
    Poll,
    /// The channel sleeps until the controller's interrupt (MSI-X), which an event signals.
    Sleep,
    /// The program above decides for each channel ([`NvmeDevice::open_channel_that`]). A channel
    /// for which it does not decide sleeps, if the controller has interrupts.
    ///
    /// [`NvmeDevice::open_channel_that`]: crate::NvmeDevice::open_channel_that
    Auto,
}

impl fmt::Display for WaitMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Poll => "poll",
            Self::Sleep => "sleep",
            Self::Auto => "auto",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerOptions {
    /// How channels wait for completions. Default: by polling.
    pub wait: WaitMode,
    /// The number of entries of each I/O queue; `None`, the default: as many as a channel's depth
    /// needs.
    pub queue_entries: Option<u32>,
    /// The time after which a command is aborted, in milliseconds. Clamped to the range from 10 ms
    /// to an hour. Default: 10,000.
    pub timeout_ms: u32,
    /// The number of I/O queue pairs to request from the controller: the maximum number of channels
    /// that can be open at once. Default: 64.
    pub queues: u16,
    /// The time limit for the controller to become ready, in milliseconds. `None`, the default: the
    /// time that the controller states, but at least a second.
    pub ready_timeout_ms: Option<u32>,
    /// The timeout policy, which may end a wait for a silent controller before the time-out.
    /// Default: none.
    pub timeout_policy: TimeoutPolicy,
}

impl ControllerOptions {
    /// The smallest time-out, in milliseconds.
    pub const TIMEOUT_MS_MIN: u32 = 10;
    /// The largest time-out, in milliseconds: an hour.
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
            timeout_policy: TimeoutPolicy::default(),
        }
    }
}
