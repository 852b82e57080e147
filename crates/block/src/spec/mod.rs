//! The names of devices: one syntax for the command line, configuration, RPC and code.
//!
//! [`KINDS`] lists the kinds of devices. A path is a file; any other device is a word and a colon,
//! its options, and the devices below.
//!
//! Options have defaults and may be omitted, together with their colon. The device inside is the
//! rest of the text, so paths may contain commas and colons. A stripe member that contains `+`,
//! `[`, `]` or `\` is written in brackets, with a backslash before these characters in a path (and
//! only in a path): `stripe:[stripe:unit=4KiB:a+b]+[odd\+name]`. Text that starts like `word:` but
//! names no device is an error and not a file.

pub mod keys;
mod kinds;
mod text;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::kinds::{CARVE, DELAY, FAULT, NULL, RAM, STRIPE, StripeUnit};
pub use self::kinds::{DRIVERS, KINDS, Kind};
use self::text::{
    IN_BRACKETS, is_pci_address, is_plain_path, quote, split_members, split_options, split_scheme,
    unquote,
};
use crate::devices::carve::{Carving, is_slice_name};
use crate::devices::delay::{DelayDevice, DelayOptions};
use crate::devices::fault::{FaultDevice, FaultOptions};
use crate::devices::null::{NullDevice, NullOptions};
use crate::devices::ram::{RamDevice, RamOptions};
use crate::devices::slice::SliceDevice;
use crate::devices::stripe::{Member, StripeDevice};
use crate::seam::device::BlockDevice;
use crate::seam::error::{Error, ErrorKind, Result};

/// The name of a device. `Display` writes it in a form that [`DeviceSpec::parse`] reads as the same
/// device.
#[derive(Clone, Debug, PartialEq)]
pub enum DeviceSpec {
    /// A file or block device; the kernel crate opens it.
    File(PathBuf),
    /// A [`RamDevice`].
    Ram(RamOptions),
    /// A [`NullDevice`].
    Null(NullOptions),
    /// A [`DelayDevice`].
    Delay {
        /// The added latencies.
        options: DelayOptions,
        /// The device below.
        inner: Box<DeviceSpec>,
    },
    /// A [`FaultDevice`].
    Fault {
        /// The fault rates and the seed.
        options: FaultOptions,
        /// The device below.
        inner: Box<DeviceSpec>,
    },
    /// A slice of a device, from the slice map on the device.
    Carved {
        /// The name of the slice.
        name: String,
        /// The device with the slice.
        inner: Box<DeviceSpec>,
    },
    /// A device that all threads use through one thread, or under one lock, for comparison with a
    /// channel for each thread.
    Shared {
        /// The way of sharing.
        way: SharedWay,
        /// The device below.
        inner: Box<DeviceSpec>,
    },
    /// A [`StripeDevice`].
    Stripe {
        /// The size of a stripe unit in bytes.
        unit_bytes: u64,
        /// The devices, in order.
        members: Vec<DeviceSpec>,
    },
    /// A device with a driver in this program. The driver defines the syntax of its names.
    Driven {
        /// The name of the driver, one of [`DRIVERS`].
        driver: &'static str,
        /// The name of the device, for the driver.
        name: String,
    },
}

/// The ways in which threads share a device instead of having a channel each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedWay {
    /// One thread does all I/O for the others.
    IoThread,
    /// A lock is held to submit requests and to poll for completions.
    OneLock,
}

impl SharedWay {
    /// Returns the word of a specifier, without its colon.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::IoThread => "iothread",
            Self::OneLock => "onelock",
        }
    }
}

/// Opens the devices that need a kernel or a driver, which the block layer does not have. Functions
/// of a path implement this trait, and open only files.
pub trait Opener {
    /// Opens a file or block device.
    ///
    /// # Errors
    /// Returns the error of the interface.
    fn open_file(&self, path: &Path) -> Result<Arc<dyn BlockDevice>>;

    /// Opens a device by the name of its driver, one of [`DRIVERS`], and the name of the device.
    ///
    /// # Errors
    /// Returns the driver's error; `Unsupported` without drivers.
    fn open_driven(&self, driver: &str, name: &str) -> Result<Arc<dyn BlockDevice>> {
        Err(Error::new(
            ErrorKind::Unsupported,
            format!("{driver}:{name} cannot be opened: this program has no drivers"),
        ))
    }

    /// Creates a device that lets threads share `inner`, instead of giving each a channel of its
    /// own.
    ///
    /// # Errors
    /// The error of a device that cannot be created; `Unsupported` if these ways are not available.
    fn open_shared(
        &self,
        way: SharedWay,
        inner: Arc<dyn BlockDevice>,
    ) -> Result<Arc<dyn BlockDevice>> {
        let context = format!("{}:{} can't be opened here", way.word(), inner.info().name);
        Err(Error::new(ErrorKind::Unsupported, context).hint("leave the first word out"))
    }
}

impl<F: Fn(&Path) -> Result<Arc<dyn BlockDevice>>> Opener for F {
    fn open_file(&self, path: &Path) -> Result<Arc<dyn BlockDevice>> {
        self(path)
    }
}

impl DeviceSpec {
    /// Parses a specifier.
    ///
    /// # Errors
    /// `Invalid`, with the fault and the valid choices.
    pub fn parse(text: &str) -> Result<Self> {
        Self::parse_at(text, false, 0)
    }

    /// Returns the devices that have no device below them, in the order of the specifier.
    #[must_use]
    pub fn lowest(&self) -> Vec<&Self> {
        match self {
            Self::File(_) | Self::Ram(_) | Self::Null(_) | Self::Driven { .. } => vec![self],
            Self::Delay { inner, .. }
            | Self::Fault { inner, .. }
            | Self::Carved { inner, .. }
            | Self::Shared { inner, .. } => inner.lowest(),
            Self::Stripe { members, .. } => members.iter().flat_map(Self::lowest).collect(),
        }
    }

    /// Returns the path of every file or block device that the specifier names.
    #[must_use]
    pub fn paths(&self) -> Vec<&Path> {
        let lowest = self.lowest().into_iter();
        lowest
            .filter_map(|device| match device {
                Self::File(path) => Some(path.as_path()),
                _ => None,
            })
            .collect()
    }

    /// Returns the specifier with some of its files replaced: `replace` returns the device to open
    /// in place of a file, or `None` for the file itself.
    ///
    /// # Errors
    /// The first error of `replace`.
    pub fn try_map_files(
        &self,
        replace: &mut dyn FnMut(&Path) -> Result<Option<Self>>,
    ) -> Result<Self> {
        let mut spec = self.clone();
        spec.replace_files(replace)?;
        Ok(spec)
    }

    fn replace_files(
        &mut self,
        replace: &mut dyn FnMut(&Path) -> Result<Option<Self>>,
    ) -> Result<()> {
        match self {
            Self::File(path) => {
                if let Some(other) = replace(path)? {
                    *self = other;
                }
                Ok(())
            }
            Self::Ram(_) | Self::Null(_) | Self::Driven { .. } => Ok(()),
            Self::Delay { inner, .. }
            | Self::Fault { inner, .. }
            | Self::Carved { inner, .. }
            | Self::Shared { inner, .. } => inner.replace_files(replace),
            Self::Stripe { members, .. } => {
                members.iter_mut().try_for_each(|member| member.replace_files(replace))
            }
        }
    }

    /// Opens the device and all devices below it.
    ///
    /// # Errors
    /// Returns the error of a device that cannot be opened.
    pub fn open(&self, opener: &dyn Opener) -> Result<Arc<dyn BlockDevice>> {
        Ok(match self {
            Self::File(path) => opener.open_file(path)?,
            Self::Ram(options) => Arc::new(RamDevice::new(*options)?),
            Self::Null(options) => Arc::new(NullDevice::new(*options)?),
            Self::Delay { options, inner } => {
                Arc::new(DelayDevice::new(inner.open(opener)?, *options)?)
            }
            Self::Fault { options, inner } => {
                Arc::new(FaultDevice::new(inner.open(opener)?, *options)?)
            }
            Self::Carved { name, inner } => Arc::new(open_slice(&inner.open(opener)?, name)?),
            Self::Shared { way, inner } => opener.open_shared(*way, inner.open(opener)?)?,
            Self::Stripe { unit_bytes, members } => {
                let open = |spec: &Self| Ok(Member { device: spec.open(opener)?, start_bytes: 0 });
                let members = members.iter().map(open).collect::<Result<_>>()?;
                Arc::new(StripeDevice::new(*unit_bytes, members)?)
            }
            Self::Driven { driver, name } => opener.open_driven(driver, name)?,
        })
    }

    /// Parses a specifier. `quoted` is set inside brackets, where paths have backslashes.
    fn parse_at(text: &str, quoted: bool, nesting: u32) -> Result<Self> {
        // Each level uses stack, both when it is parsed and when it is used.
        if nesting > 16 {
            return Err(Error::new(
                ErrorKind::Invalid,
                "a specifier cannot nest devices more than 16 deep",
            ));
        }
        let path = |text: &str| {
            if text.is_empty() {
                let kinds = KINDS.map(|kind| format!("{}:", kind.word))[1..].join(", ");
                return Err(Error::new(ErrorKind::Invalid, "the device name is empty")
                    .hint(format!("name a path, or {kinds}")));
            }
            plain(text, quoted).map(|text| Self::File(text.into()))
        };
        let Some((scheme, rest)) = split_scheme(text) else { return path(text) };
        let inner = |rest| Ok(Box::new(Self::parse_at(rest, quoted, nesting + 1)?));
        let (head, below) = split_options(rest);
        match scheme {
            "file" => path(rest),
            "ram" => Ok(Self::Ram(RAM.read(rest)?)),
            "null" => Ok(Self::Null(NULL.read(rest)?)),
            "delay" => Ok(Self::Delay { options: DELAY.read(head)?, inner: inner(below)? }),
            "fault" => Ok(Self::Fault { options: FAULT.read(head)?, inner: inner(below)? }),
            "carve" => {
                let name = CARVE.read(head)?;
                if !is_slice_name(&name) {
                    let context = format!("no slice is named in \"{text}\"");
                    return Err(Error::new(ErrorKind::Invalid, context).hint(
                        "write carve:name=NAME:DEVICE; qpair carve list DEVICE has the names",
                    ));
                }
                Ok(Self::Carved { name, inner: inner(below)? })
            }
            "iothread" => Ok(Self::Shared { way: SharedWay::IoThread, inner: inner(rest)? }),
            "onelock" => Ok(Self::Shared { way: SharedWay::OneLock, inner: inner(rest)? }),
            "stripe" => {
                let StripeUnit(unit_bytes) = STRIPE.read(head)?;
                let members = split_members(below)?
                    .into_iter()
                    .map(|(text, bracketed)| Self::parse_at(text, quoted || bracketed, nesting + 1))
                    .collect::<Result<_>>()?;
                Ok(Self::Stripe { unit_bytes, members })
            }
            _ => {
                if let Some(driver) = DRIVERS.iter().find(|known| **known == scheme) {
                    return Ok(Self::Driven { driver, name: plain(rest, quoted)? });
                }
                // The opener knows whether a program may open the device there.
                if is_pci_address(text) {
                    return path(text);
                }
                let context = format!("\"{text}\" names an unknown kind of device, \"{scheme}:\"");
                let kinds = KINDS.map(|kind| format!("{}:", kind.word));
                let [before @ .., last] = &kinds;
                Err(Error::new(ErrorKind::Invalid, context).hint(format!(
                    "the kinds are {} and {last}; a file of that name is file:{text}",
                    before.join(", ")
                )))
            }
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, quoted: bool) -> fmt::Result {
        match self {
            Self::File(path) => {
                let path = path.to_string_lossy();
                let scheme = if is_plain_path(&path) { "" } else { "file:" };
                let path = if quoted { quote(&path, &IN_BRACKETS) } else { path };
                write!(f, "{scheme}{path}")
            }
            Self::Ram(ram) => write!(f, "ram:{}", RAM.write(ram, &RamOptions::default())),
            Self::Null(null) => write!(f, "null:{}", NULL.write(null, &NullOptions::default())),
            Self::Delay { options, inner } => {
                write!(f, "delay:{}:", DELAY.write(options, &DelayOptions::default()))?;
                inner.write(f, quoted)
            }
            Self::Fault { options, inner } => {
                write!(f, "fault:{}:", FAULT.write(options, &FaultOptions::default()))?;
                inner.write(f, quoted)
            }
            Self::Carved { name, inner } => {
                write!(f, "carve:{}:", CARVE.write(name, &String::new()))?;
                inner.write(f, quoted)
            }
            Self::Shared { way, inner } => {
                write!(f, "{}:", way.word())?;
                inner.write(f, quoted)
            }
            Self::Stripe { unit_bytes, members } => {
                let unit = StripeUnit(*unit_bytes);
                write!(f, "stripe:{}:", STRIPE.write(&unit, &StripeUnit::default()))?;
                for (number, member) in members.iter().enumerate() {
                    if number > 0 {
                        write!(f, "+")?;
                    }
                    // First write the member without brackets, to find out whether it needs them.
                    let bare = Bare(member).to_string();
                    if bare.contains(['+', '[', ']', '\\']) {
                        write!(f, "[")?;
                        member.write(f, true)?;
                        write!(f, "]")?;
                    } else {
                        write!(f, "{bare}")?;
                    }
                }
                Ok(())
            }
            Self::Driven { driver, name } => {
                let name = if quoted { quote(name, &IN_BRACKETS) } else { name.into() };
                write!(f, "{driver}:{name}")
            }
        }
    }
}

/// Returns a path, or a driver's name for a device, without the backslashes that brackets require.
fn plain(text: &str, quoted: bool) -> Result<String> {
    let text = if quoted { unquote(text)? } else { text.to_owned() };
    if text.contains('\0') {
        return Err(Error::new(ErrorKind::Invalid, "a device name cannot have a NUL byte"));
    }
    Ok(text)
}

/// Opens a slice of a device by its name.
///
/// # Errors
/// `NotFound` if the device has no map, or the map has no such slice; the errors of
/// [`Carving::open`].
pub fn open_slice(device: &Arc<dyn BlockDevice>, name: &str) -> Result<SliceDevice> {
    let carving = Carving::open(device)?.ok_or_else(|| {
        let context = format!("{} has no map of slices", device.info().name);
        Error::new(ErrorKind::NotFound, context).hint("qpair carve create makes one")
    })?;
    carving.slice(name)
}

/// Formats a specifier outside brackets.
struct Bare<'a>(&'a DeviceSpec);

impl fmt::Display for Bare<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, false)
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, false)
    }
}

impl std::str::FromStr for DeviceSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}
