//! The kernel's interfaces by name, the ones that work here, and the choice among them.

use std::fmt;
use std::str::FromStr;

use qpair_block::{Error, ErrorKind, Result};

use crate::mode::Mode;
use crate::{io_uring, libaio};

/// An interface of the kernel.
///
/// ```
/// use qpair_kernel::Interface;
///
/// assert_eq!("libaio".parse::<Interface>()?, Interface::Libaio);
/// assert_eq!(Interface::IoUring.to_string(), "io_uring");
/// # Ok::<(), qpair_block::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Interface {
    /// The first of the other interfaces that works, in their order here. Around the page cache it
    /// may change while a device is open (docs/design/auto.md).
    #[default]
    Auto,
    /// `io_uring(7)`.
    IoUring,
    /// Linux asynchronous I/O: `io_submit(2)`.
    Libaio,
    /// `pread(2)` and `pwrite(2)` on a few threads.
    Posix,
    /// NVMe commands over `/dev/ngXnY` through `io_uring(7)`; used only if asked for by name.
    Passthrough,
}

impl Interface {
    /// The interfaces that [`Interface::Auto`] tries, in order.
    pub const CONCRETE: [Self; 3] = [Self::IoUring, Self::Libaio, Self::Posix];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::IoUring => "io_uring",
            Self::Libaio => "libaio",
            Self::Posix => "posix",
            Self::Passthrough => "io_uring_cmd",
        }
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Interface {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let name = if name == "iou" { "io_uring" } else { name };
        [Self::Auto, Self::IoUring, Self::Libaio, Self::Posix, Self::Passthrough]
            .into_iter()
            .find(|interface| interface.name() == name)
            .ok_or_else(|| {
                Error::new(ErrorKind::Invalid, format!("there is no interface \"{name}\"")).hint(
                    "the interfaces are auto, io_uring (or iou), libaio, posix and io_uring_cmd",
                )
            })
    }
}

/// The interface that a device runs on, and why an earlier one was passed over.
#[derive(Debug)]
pub struct Choice {
    /// The interface in use; never [`Interface::Auto`].
    pub interface: Interface,
    pub mode: Mode,
    /// The interfaces that [`Interface::Auto`] passed over, in order, each with its reason. Empty
    /// if an interface was asked for by name.
    pub reasons: Vec<(Interface, Error)>,
    /// The reason to begin with this mode, and what it may change to, if [`Interface::Auto`] may
    /// change it while the device is open.
    pub why: Option<String>,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.interface.fmt(f)?;
        for (interface, reason) in &self.reasons {
            write!(f, "; not {interface}: {reason}")?;
        }
        if let Some(why) = &self.why {
            write!(f, "; {why}")?;
        }
        Ok(())
    }
}

/// Tries each interface without a file. Returns each with its result.
#[must_use]
pub fn probe() -> Vec<(Interface, Result<()>)> {
    Interface::CONCRETE
        .into_iter()
        .map(|interface| {
            let outcome = match interface {
                Interface::IoUring => io_uring::check(),
                Interface::Libaio => libaio::check(),
                // Every kernel has this interface.
                Interface::Auto | Interface::Posix | Interface::Passthrough => Ok(()),
            };
            (interface, outcome)
        })
        .collect()
}
