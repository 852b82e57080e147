//! `qpair scsi list|info|sense|reset|locate`.

mod disk;
mod info;
mod list;
mod locate;
mod reset;
mod sense;

use clap::Subcommand;

use crate::failure::{Exit, Result};

/// Manage SCSI disks behind SAS controllers
///
/// Write scsi:HOST/UNIT in place of a file. HOST is soft (an emulated controller), vfio-user:PATH,
/// or the PCI address of a controller bound to vfio-pci (qpair nvme bind). UNIT is a target's
/// number (3, or 3.2 for its unit 2), its port's address (sas.5000c50012345679), or the unit's name
/// (naa.5000c50012345678, or wwn-0x5000c50012345678 as in /dev/disk/by-id).
#[derive(Subcommand, Debug)]
#[command(after_help = "\
Examples:
  qpair scsi list soft:disks=2,size=1GiB
  qpair scsi info vfio-user:/run/hba.sock/0
  qpair scsi sense 72 05 24 00 00 00 00 08 02 06 00 00 c0 00 01 00")]
pub(crate) enum Scsi {
    List(list::List),
    Info(info::Info),
    Sense(sense::SenseData),
    Reset(reset::Reset),
    Locate(locate::Locate),
}

impl Scsi {
    pub(crate) fn run(self) -> Result<Exit> {
        match self {
            Self::List(command) => command.run(),
            Self::Info(command) => command.run(),
            Self::Sense(command) => command.run(),
            Self::Reset(command) => command.run(),
            Self::Locate(command) => command.run(),
        }
    }
}
