//! `qpair scsi list|info|sense|reset|locate`.

mod disk;
mod info;
mod list;
mod locate;
mod reset;
mod sense;

use clap::{Args, Subcommand};

use crate::failure::{Exit, Result};

/// SCSI disks behind SAS controllers that this program drives: list them, ask one, reset it, find it, decode sense data
///
/// A disk is scsi:HOST/UNIT wherever a file could stand. HOST: soft (a controller made of software), vfio-user:PATH, or the PCI
/// address of a controller that vfio-pci has. UNIT: a target's number (3, or 3.2 for its unit 2), the address of its port
/// (sas.5000c50012345679), or the name of the unit (naa.5000c50012345678, or wwn-0x5000c50012345678 as /dev/disk/by-id has it).
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair scsi list soft:disks=2,size=1GiB
  qpair scsi info vfio-user:/run/hba.sock/0
  qpair scsi sense 72 05 24 00 00 00 00 08 02 06 00 00 c0 00 01 00")]
pub(crate) struct Scsi {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    List(list::List),
    Info(info::Info),
    Sense(sense::SenseData),
    Reset(reset::Reset),
    Locate(locate::Locate),
}

impl Scsi {
    pub(crate) fn run(self) -> Result<Exit> {
        match self.what {
            What::List(command) => command.run(),
            What::Info(command) => command.run(),
            What::Sense(command) => command.run(),
            What::Reset(command) => command.run(),
            What::Locate(command) => command.run(),
        }
    }
}
