//! How files and block devices are opened as devices.

use std::path::Path;
use std::sync::Arc;

use clap::Args;
use qpair_block::{BlockDevice, DeviceSpec, Result};
use qpair_drivers::Drivers;
use qpair_kernel::{FileOptions, Interface, Mode};

#[derive(Args, Debug)]
pub(crate) struct FileArgs {
    /// Interface and mode for files and block devices: auto, io_uring, libaio, posix, with switches
    /// after a colon
    #[arg(long = "interface", alias = "io", value_name = "MODE", default_value = "auto")]
    pub(crate) io: Mode,

    /// Go through the page cache, for file systems without direct I/O
    #[arg(long)]
    pub(crate) buffered: bool,

    #[arg(skip = crate::interrupt::drivers())]
    pub(crate) drivers: Drivers,
}

impl FileArgs {
    pub(crate) fn open(&self, spec: &DeviceSpec, read_only: bool) -> Result<Arc<dyn BlockDevice>> {
        let files = |path: &Path| {
            let file = FileOptions { read_only, direct: !self.buffered, ..FileOptions::new(path) };
            Ok(Arc::new(qpair_kernel::open(&file, self.io)?) as Arc<dyn BlockDevice>)
        };
        let lent = match self.io.interface {
            Interface::Auto => Some(self.drivers.find_lent(spec)?.0),
            _ => None,
        };
        lent.as_ref().unwrap_or(spec).open(&self.drivers.opening(files))
    }
}
