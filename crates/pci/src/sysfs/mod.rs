//! PCI functions as `/sys` shows them, and which driver has them.
//!
//! All is read below a [`Root`], so that a tree of files can stand for a machine. What is missing or unreadable is `None` or empty.

mod address;
mod bind;
mod function;
mod root;

pub use address::PciAddress;
pub use bind::{Outcome, access_files, bind, give, override_of, unbind};
pub use function::{Function, Neighbour, Node};
pub use root::Root;

#[cfg(test)]
pub(crate) use bind::tests as bind_tests;

/// The driver of the kernel that hands functions to programs.
pub const VFIO_PCI: &str = "vfio-pci";
/// Base class and subclass of NVMe controllers.
const CLASS_NVME: u32 = 0x0108;
/// That of SAS controllers.
const CLASS_SAS: u32 = 0x0107;
