//! Hardware functions through VFIO: Linux gives a function to a program, and an IOMMU confines it
//! to the memory that the program opens to it.
//!
//! There are two interfaces, and [`open`] uses the one that the machine has: container and group
//! (`/dev/vfio/vfio`, `/dev/vfio/N`), or iommufd (`/dev/iommu`, `/dev/vfio/devices/vfioN`). They
//! differ only until the function's descriptor is open.
//!
//! - One owner: a function can be open once, here or in another program. A second attempt fails
//!   with `Busy`.
//! - The device can access the memory that [`PciFunction::map_dma`] opened, and nothing else.
//! - Functions of one group that are open in one program share a container.

mod check;
mod device;
mod dma;
mod function;
mod group;
mod ioctl;
mod iommufd;
mod iova;
mod msix;
mod region;

use std::sync::Arc;

use qpair_block::Result;

pub(crate) use check::{check_driver, check_iommu, files_of, who_has};

use crate::function::PciFunction;
use crate::sysfs::{Function, PciAddress, Root};
use function::VfioFunction;

/// Opens the function at an address such as `0000:3b:00.0`, which must be bound to vfio-pci.
///
/// On return its memory access and bus mastering are on, and no memory is open to it.
///
/// # Errors
/// Each error has a hint. `Invalid`: not an address. `NotFound`: no such function. `Unsupported`:
/// no IOMMU, no VFIO in the kernel, another driver has the function, or its group cannot be given
/// to programs. `Denied`: the VFIO files belong to another user. `Busy`: the function is open.
pub fn open(address: &str) -> Result<Arc<dyn PciFunction>> {
    let root = Root::system();
    let address: PciAddress = address.parse()?;
    let function = Function::read(&root, address)?;
    check::check(&root, &function)?;
    Ok(Arc::new(VfioFunction::open(&root, &function)?))
}
