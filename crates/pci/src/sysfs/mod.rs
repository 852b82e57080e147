//! PCI functions as `/sys` shows them, and their drivers.
//!
//! Everything is read below a [`Root`], so that a tree of files can stand for a machine. A missing
//! or unreadable file yields `None` or an empty value.

mod address;
mod bind;
mod function;

pub use address::PciAddress;
pub use bind::{Outcome, access_files, bind, give, override_of, unbind};
pub use function::{Function, Neighbour, Node};
pub use qpair_sysfs::Root;

#[cfg(test)]
pub(crate) use bind::tests as bind_tests;

/// The kernel's driver that gives functions to programs.
pub const VFIO_PCI: &str = "vfio-pci";
/// Base class and subclass of NVMe controllers.
const CLASS_NVME: u32 = 0x0108;
/// Base class and subclass of SAS controllers.
const CLASS_SAS: u32 = 0x0107;
