//! Functions of hardware, through VFIO: Linux gives a function to a program, and an IOMMU keeps it to the memory that the program
//! opens to it.
//!
//! Two ways in, of which [`open`] takes what the machine has: by container and group (`/dev/vfio/vfio`, `/dev/vfio/N`), or by iommufd
//! (`/dev/iommu`, `/dev/vfio/devices/vfioN`). From the function's descriptor on they are the same.
//!
//! - One owner: a function is open once, here or in another program; the second is told `Busy`.
//! - The device reaches what [`PciFunction::map_dma`] opened, and nothing else.
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

/// Opens the function at an address such as `0000:3b:00.0`, which vfio-pci has.
///
/// Memory access and bus mastering are on then, and no memory is open to it.
///
/// # Errors
/// All with the way out: `Invalid`: no address. `NotFound`: no such function. `Unsupported`: no IOMMU, no VFIO in the kernel,
/// another driver has it, or its group cannot be given away. `Denied`: the files of VFIO are another user's. `Busy`: it is open.
pub fn open(address: &str) -> Result<Arc<dyn PciFunction>> {
    let root = Root::system();
    let address: PciAddress = address.parse()?;
    let function = Function::read(&root, address)?;
    check::check(&root, &function)?;
    Ok(Arc::new(VfioFunction::open(&root, &function)?))
}
