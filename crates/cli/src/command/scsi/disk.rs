//! The argument that names a disk.

use std::sync::Arc;

use clap::Args;
use qpair_drivers::Drivers;
use qpair_scsi::ScsiDisk;

use crate::failure::Result;

// What is said of a flattened group would stand in the command's help.
#[derive(Args, Debug)]
pub(super) struct Disk {
    /// HOST/UNIT, as in the name of the device
    #[arg(value_name = "DISK")]
    disk: String,

    #[arg(skip = crate::interrupt::drivers())]
    drivers: Drivers,
}

impl Disk {
    /// Returns the name behind `scsi:`.
    pub(super) fn name(&self) -> &str {
        self.disk.strip_prefix("scsi:").unwrap_or(&self.disk)
    }

    pub(super) fn open(&self) -> Result<Arc<ScsiDisk>> {
        Ok(self.drivers.scsi_disk(self.name())?)
    }
}
