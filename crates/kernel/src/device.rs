//! The control plane: [`open`] and [`KernelDevice`].

use std::sync::Arc;

use qpair_block::{BlockDevice, ChannelOptions, DeviceInfo, Error, ErrorKind, IoChannel, Result};

use crate::file::{File, FileOptions, Kind};
use crate::interface::{Choice, Interface};
use crate::{io_uring, libaio, posix};

/// A file or block device on one of the kernel's interfaces.
#[derive(Debug)]
pub struct KernelDevice {
    file: Arc<File>,
    info: DeviceInfo,
    choice: Choice,
}

/// Opens a file or block device.
///
/// An interface asked for by name is the one that runs; [`Interface::Auto`] takes the first on which a channel
/// can really be opened here.
///
/// # Errors
/// `NotFound`, `Exists`, `Denied`, `Busy` (locked, mounted), `Invalid` (a directory, say), `NoSpace` (creating) about
/// the file; `Unsupported`, `Denied` or `Limit` about the interface or direct I/O, with the way out.
pub fn open(options: &FileOptions, interface: Interface) -> Result<KernelDevice> {
    let file = Arc::new(File::open(options)?);
    on_interface(file, interface).inspect_err(|_| {
        if options.create.is_some() {
            let _ = std::fs::remove_file(&options.path);
        }
    })
}

fn on_interface(file: Arc<File>, interface: Interface) -> Result<KernelDevice> {
    let mut reasons = Vec::new();
    let candidates = match interface {
        Interface::Auto => &Interface::CONCRETE[..],
        Interface::IoUring => &[Interface::IoUring],
        Interface::Libaio => &[Interface::Libaio],
        Interface::Posix => &[Interface::Posix],
    };
    for &candidate in candidates {
        match try_interface(&file, candidate) {
            Ok(mode) => {
                let info = info(&file, candidate, &mode);
                return Ok(KernelDevice {
                    file,
                    info,
                    choice: Choice { interface: candidate, reasons },
                });
            }
            Err(error) if interface == candidate => return Err(error),
            Err(error) => reasons.push((candidate, error)),
        }
    }
    let told: Vec<String> =
        reasons.iter().map(|(name, error)| format!("{name}: {error}")).collect();
    Err(Error::new(ErrorKind::Unsupported, format!("no interface works here; {}", told.join("; "))))
}

/// Opens a channel and drops it; the mode in words.
fn try_interface(file: &Arc<File>, interface: Interface) -> Result<String> {
    let options = ChannelOptions { depth: 1, ..ChannelOptions::default() };
    match interface {
        Interface::IoUring | Interface::Auto => io_uring::try_open(file.clone(), &options),
        Interface::Libaio => libaio::try_open(file.clone(), &options),
        Interface::Posix => posix::try_open(file.clone(), &options),
    }
}

fn open_channel(
    file: &Arc<File>,
    interface: Interface,
    options: &ChannelOptions,
) -> Result<Box<dyn IoChannel>> {
    file.limits.check_channel(options)?;
    match interface {
        Interface::IoUring | Interface::Auto => io_uring::open(file.clone(), options),
        Interface::Libaio => libaio::open(file.clone(), options),
        Interface::Posix => posix::open(file.clone(), options),
    }
}

fn info(file: &File, interface: Interface, mode: &str) -> DeviceInfo {
    let cache = if file.direct { "O_DIRECT" } else { "page cache" };
    DeviceInfo {
        interface: interface.name().to_owned(),
        mode: format!("{mode}, {cache}"),
        ..file.limits.clone()
    }
}

impl KernelDevice {
    /// The interface in use, and why not an earlier one.
    #[must_use]
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Names the device by the specifier that people gave for it.
    #[must_use]
    pub fn with_name(mut self, specifier: impl Into<String>) -> Self {
        self.info.name = specifier.into();
        self
    }

    /// Whether it is a block device, not a file.
    #[must_use]
    pub fn is_block_device(&self) -> bool {
        self.file.kind == Kind::BlockDevice
    }
}

impl BlockDevice for KernelDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn size_bytes(&self) -> u64 {
        self.file.size_bytes()
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        self.file.grow(size_bytes)
    }

    fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
        open_channel(&self.file, self.choice.interface, options)
    }
}
