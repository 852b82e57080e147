//! `qpair carve list|check|create|delete`.

mod check;
mod create;
mod delete;
mod list;
mod target;

use clap::Subcommand;

use crate::failure::{Exit, Result};

/// Divide a device into named slices; the map of the slices is on the device
///
/// Write carve:name=NAME:DEVICE in place of a device to use a slice. If a target has the device
/// open, let it create the slices: `qpair rpc bdev_scsi_create`.
#[derive(Subcommand, Debug)]
#[command(after_help = "\
Examples:
  qpair carve create /dev/nvme0n1 root --size 20GiB --from debian.raw
  qpair carve create /dev/nvme0n1 data --size 400GiB
  qpair carve list /dev/nvme0n1
  qpair target --disk root=carve:name=root:/dev/nvme0n1 --disk data=carve:name=data:/dev/nvme0n1")]
pub(crate) enum Carve {
    List(list::List),
    Check(check::Check),
    Create(create::Create),
    Delete(delete::Delete),
}

impl Carve {
    pub(crate) fn run(self) -> Result<Exit> {
        match self {
            Self::List(command) => command.run(),
            Self::Check(command) => command.run(),
            Self::Create(command) => command.run(),
            Self::Delete(command) => command.run(),
        }
    }
}
