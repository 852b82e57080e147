//! `qpair nvme unbind`.

use clap::Args;
use qpair_pci::sysfs::{self, PciAddress, Root};

use super::bind::controller_at;
use crate::failure::{Exit, Failure, Result};
use crate::show::output::Output;

/// Give NVMe drives or SAS controllers back to the kernel's driver
///
/// The drive's block devices come back a moment later. The command refuses a drive that a program
/// uses.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  sudo qpair nvme unbind 0000:3b:00.0")]
pub(crate) struct Unbind {
    /// Addresses, as qpair nvme list and qpair scsi list show them
    #[arg(value_name = "ADDRESS", required = true)]
    addresses: Vec<PciAddress>,
}

impl Unbind {
    pub(crate) fn run(self) -> Result<Exit> {
        let root = Root::system();
        let mut out = Output::new();
        for address in self.addresses {
            let module = if controller_at(&root, address)?.is_sas() { "mpt3sas" } else { "nvme" };
            match sysfs::unbind(&root, address)?.now {
                Some(driver) => {
                    qpair_drivers::forget_names(&root, address);
                    out.line(format!("{address} is with the kernel's driver {driver} again"))?;
                }
                None => {
                    out.finish()?;
                    let message =
                        format!("{address} is free of {}, and no driver took it", sysfs::VFIO_PCI);
                    return Err(Failure::new(Exit::Failed, message)
                        .hint(format!("sudo modprobe {module}; then it takes it by itself")));
                }
            }
        }
        out.finish()?;
        Ok(Exit::Done)
    }
}
