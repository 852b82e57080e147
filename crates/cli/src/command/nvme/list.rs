//! `qpair nvme list`.

use clap::Args;
use qpair_pci::sysfs::{Function, Root};

use crate::failure::{Exit, Result};
use crate::show::controllers::controllers;

/// List NVMe controllers: driver, IOMMU group and content
///
/// Nothing is changed, and root is not needed.
#[derive(Args, Debug)]
#[command(after_help = "\
States:
  bound    bound to vfio-pci: a program can use it
  free     the kernel's driver has it, and it is not in use: it can be bound
  in use   mounted, partitioned, held or used as swap
  no IOMMU cannot be bound: see qpair doctor

Examples:
  qpair nvme list
  qpair nvme list --json | jq -r '.[] | select(.state == \"free\") | .address'")]
pub(crate) struct List {
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

impl List {
    pub(crate) fn run(self) -> Result<Exit> {
        controllers(&Function::all_nvme(&Root::system()), "no NVMe controllers", self.json)
    }
}
