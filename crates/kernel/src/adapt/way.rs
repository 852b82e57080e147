//! The ways among which `auto` changes.

use std::fmt;

use crate::interface::Interface;
use crate::mode::{Mode, Polling, SubmissionThread};

/// A way to the drive: a mode that `auto` may take while a device is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Way {
    /// `io_uring`, whose completions come by interrupts.
    #[default]
    Interrupts,
    /// The calls of the submitter: `posix:threads=0`.
    Calls,
    /// `libaio`.
    Libaio,
    /// `io_uring` with IOPOLL.
    Polling,
    /// `io_uring` with a submission thread for each channel.
    OwnThread,
    /// `io_uring` with one submission thread for all channels of the process.
    SharedThread,
}

/// The time without requests after which a submission thread sleeps, in milliseconds.
///
/// This time bounds the cost of a program that becomes idle. A thread that sleeps costs its channel
/// one system call when requests come again.
const IDLE_MS: u32 = 20;

impl Way {
    pub(crate) const ALL: [Self; 6] = [
        Self::Interrupts,
        Self::Calls,
        Self::Libaio,
        Self::Polling,
        Self::OwnThread,
        Self::SharedThread,
    ];

    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// Returns the mode of the way.
    #[must_use]
    pub const fn mode(self) -> Mode {
        let ring = Mode::new(Interface::IoUring);
        match self {
            Self::Interrupts => ring,
            Self::Calls => Mode { threads: 0, ..Mode::new(Interface::Posix) },
            Self::Libaio => Mode::new(Interface::Libaio),
            Self::Polling => Mode { polling: Polling::Poll, ..ring },
            Self::OwnThread => Mode { submission_thread: Some(thread(false)), ..ring },
            Self::SharedThread => Mode { submission_thread: Some(thread(true)), ..ring },
        }
    }

    /// Returns the way that is this mode, or the nearest one that differs in numbers only.
    pub(crate) fn of(mode: &Mode) -> Option<Self> {
        match (mode.interface, mode.polling, mode.submission_thread) {
            (Interface::IoUring, Polling::Interrupt, None) => Some(Self::Interrupts),
            (Interface::IoUring, _, None) => Some(Self::Polling),
            (Interface::IoUring, Polling::Interrupt, Some(thread)) if thread.shared => {
                Some(Self::SharedThread)
            }
            (Interface::IoUring, Polling::Interrupt, Some(_)) => Some(Self::OwnThread),
            (Interface::Libaio, ..) => Some(Self::Libaio),
            (Interface::Posix, ..) if mode.threads == 0 => Some(Self::Calls),
            _ => None,
        }
    }

    pub(crate) const fn has_thread(self) -> bool {
        matches!(self, Self::OwnThread | Self::SharedThread)
    }

    /// Whether a processor is busy while requests are awaited.
    pub(crate) const fn spins(self) -> bool {
        matches!(self, Self::Polling | Self::OwnThread | Self::SharedThread)
    }
}

const fn thread(shared: bool) -> SubmissionThread {
    SubmissionThread { idle_ms: IDLE_MS, cpu: None, shared }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Interrupts => "io_uring",
            Self::Calls => "posix:threads=0",
            Self::Libaio => "libaio",
            Self::Polling => "io_uring+p",
            Self::OwnThread => "io_uring+k",
            Self::SharedThread => "io_uring+k:shared=on",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_a_mode_and_back() {
        for (index, way) in Way::ALL.into_iter().enumerate() {
            way.mode().check().unwrap();
            assert_eq!(Way::of(&way.mode()), Some(way));
            assert_eq!(Way::of(&way.to_string().parse().unwrap()), Some(way));
            assert_eq!(way.index(), index);
        }
        assert_eq!(Way::of(&Mode::new(Interface::Posix)), None);
        assert_eq!(Way::of(&Mode::new(Interface::Passthrough)), None);
    }
}
