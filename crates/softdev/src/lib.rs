//! Soft devices: models of drives in software, for this process or served over vfio-user.
//!
//! - [`nvme`]: an NVMe drive, as a `qpair_pci::PciDevice`.
//! - [`hba`]: a SAS host bus adapter with disks, as a `qpair_pci::PciDevice`.
//! - [`virtio`]: a virtio SCSI host with the same disks, as a `qpair_pci::PciDevice`.
//! - [`medium`]: the storage that keeps the blocks of namespaces and disks.
//! - [`flash`]: a timing model of flash drives, in virtual time.
//! - [`faults`]: fault injection by a seed.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod digest;
pub mod faults;
pub mod flash;
pub mod hba;
pub mod medium;
pub mod nvme;
mod platter;
mod scsi;
pub mod virtio;

pub use hba::{SoftHba, SoftHbaOptions};
pub use medium::MediumOptions;
pub use nvme::{Doorbells, NamespaceOptions, SoftNvme, SoftNvmeOptions};
pub use virtio::{SoftVirtioScsi, SoftVirtioScsiOptions};
