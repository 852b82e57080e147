//! `qpair nvme list|bind|unbind|identify|format-check`.

mod bind;
mod format_check;
mod identify;
mod list;
mod opened;
mod unbind;

use clap::Subcommand;

use crate::failure::{Exit, Result};

/// Manage NVMe drives for this program's own driver
///
/// Write nvme:ADDRESS/nsN in place of a file to use a drive that is bound to the kernel's driver
/// vfio-pci. The machine needs an IOMMU. A bound drive has no block devices in the kernel. bind and
/// unbind also take SAS controllers (qpair scsi list), with all disks behind them.
#[derive(Subcommand, Debug)]
#[command(after_help = "\
Example, from the kernel's driver to this one and back:
  qpair nvme list
  sudo qpair nvme bind 0000:3b:00.0 --owner \"$USER\"
  qpair nvme identify 0000:3b:00.0
  qpair bench peak nvme:0000:3b:00.0/ns1
  sudo qpair nvme unbind 0000:3b:00.0")]
pub(crate) enum Nvme {
    List(list::List),
    Bind(bind::Bind),
    Unbind(unbind::Unbind),
    Identify(identify::Identify),
    FormatCheck(format_check::FormatCheck),
}

impl Nvme {
    pub(crate) fn run(self) -> Result<Exit> {
        match self {
            Self::List(command) => command.run(),
            Self::Bind(command) => command.run(),
            Self::Unbind(command) => command.run(),
            Self::Identify(command) => command.run(),
            Self::FormatCheck(command) => command.run(),
        }
    }
}
