//! The ways among which `auto` changes, and their names for a family of devices.

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
        f.pad((KERNEL.name_of)(*self))
    }
}

/// Devices whose ways have the same names and costs. Channels of one thread to devices of one
/// family change together.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The name that sets the family apart from others.
    pub name: &'static str,
    /// Returns the name of a way, for reasons and metrics.
    pub name_of: fn(Way) -> &'static str,
    /// Whether polling needs a core that nobody else uses: the thread that waits never sleeps in
    /// the kernel.
    pub polling_needs_core: bool,
}

/// The files and block devices of this crate.
pub(crate) static KERNEL: Family = Family {
    name: "kernel",
    name_of: |way| match way {
        Way::Interrupts => "io_uring",
        Way::Calls => "posix:threads=0",
        Way::Libaio => "libaio",
        Way::Polling => "io_uring+p",
        Way::OwnThread => "io_uring+k",
        Way::SharedThread => "io_uring+k:shared=on",
    },
    polling_needs_core: false,
};

impl Family {
    /// Returns the cores that a way needs for itself, and the words for what needs them; `None` if
    /// it shares its core with anybody.
    pub(crate) fn needs(&self, way: Way) -> Option<(f64, &'static str)> {
        match way {
            Way::OwnThread | Way::SharedThread => Some((2.0, "a submission thread")),
            Way::Polling if self.polling_needs_core => Some((1.0, "a thread that polls")),
            _ => None,
        }
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
