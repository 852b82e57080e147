//! `qpair nvme list|bind|unbind|identify|format-check`.

mod bind;
mod format_check;
mod identify;
pub(super) mod list;
mod opened;
mod unbind;

use clap::{Args, Subcommand};
use qpair_pci::sysfs::{Function, PciAddress, Root};

use crate::failure::{Exit, Failure, Result};

/// Manage NVMe drives for this program's own driver
///
/// Write nvme:ADDRESS/nsN in place of a file to use a drive that is bound to the kernel's driver
/// vfio-pci. The machine needs an IOMMU. A bound drive has no block devices in the kernel. bind and
/// unbind also take SAS controllers (qpair scsi list), with all disks behind them.
#[derive(Args, Debug)]
#[command(after_help = "\
Example, from the kernel's driver to this one and back:
  qpair nvme list
  sudo qpair nvme bind 0000:3b:00.0 --owner \"$USER\"
  qpair nvme identify 0000:3b:00.0
  qpair bench peak nvme:0000:3b:00.0/ns1
  sudo qpair nvme unbind 0000:3b:00.0")]
pub(crate) struct Nvme {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    List(list::List),
    Bind(bind::Bind),
    Unbind(unbind::Unbind),
    Identify(identify::Identify),
    FormatCheck(format_check::FormatCheck),
}

impl Nvme {
    pub(crate) fn run(self) -> Result<Exit> {
        match self.what {
            What::List(command) => command.run(),
            What::Bind(command) => command.run(),
            What::Unbind(command) => command.run(),
            What::Identify(command) => command.run(),
            What::FormatCheck(command) => command.run(),
        }
    }
}

/// Parses an address argument.
fn parse_address(text: &str) -> Result<PciAddress, String> {
    text.parse().map_err(|error: qpair_block::Error| error.to_string())
}

/// Returns the NVMe or SAS controller at an address.
fn controller_at(root: &Root, address: PciAddress) -> Result<Function> {
    let function = Function::read(root, address)?;
    if function.is_nvme() || function.is_sas() {
        return Ok(function);
    }
    let class = function.class;
    Err(Failure::usage(format!("{address} is no NVMe and no SAS controller (class {class:06x})"))
        .hint("qpair nvme list and qpair scsi list show those that are"))
}
