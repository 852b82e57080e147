//! `qpair scsi list|info|sense`.

mod info;
mod list;
mod sense;

use clap::{Args, Subcommand};

use crate::failure::{Exit, Result};

/// SCSI disks behind SAS controllers that this program drives: list them, ask one, decode sense data
///
/// A disk is scsi:HOST/UNIT wherever a file could stand. HOST: soft (a controller made of software), vfio-user:PATH, or the PCI
/// address of a controller that vfio-pci has. UNIT: the number of a target, or the name of a unit.
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
}

impl Scsi {
    pub(crate) fn run(self) -> Result<Exit> {
        match self.what {
            What::List(command) => command.run(),
            What::Info(command) => command.run(),
            What::Sense(command) => command.run(),
        }
    }
}
