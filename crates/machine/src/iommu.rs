//! The requirements of user-space drivers: an IOMMU, and VFIO.

use rustix::fs::{Access, access};
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use qpair_sysfs::Root;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Iommu {
    /// The number of IOMMU groups; 0 if the IOMMU is off.
    pub groups: Option<u32>,
    /// Whether the driver `vfio-pci` is available, as a loaded module or built in.
    pub vfio_pci: Option<bool>,
    pub vfio_device: Option<bool>,
    /// Whether this process may open `/dev/vfio/vfio`; `None` if it does not exist.
    pub vfio_allowed: Option<bool>,
}

impl Iommu {
    pub(crate) fn read(root: &Root) -> Self {
        let device = root.path("/dev/vfio/vfio");
        let there = device.exists();
        let modules = root.exists("/sys/module");
        Self {
            groups: root.count("/sys/kernel/iommu_groups"),
            vfio_pci: modules.then(|| root.exists("/sys/module/vfio_pci")),
            vfio_device: root.exists("/dev").then_some(there),
            vfio_allowed: there
                .then(|| access(&device, Access::READ_OK | Access::WRITE_OK).is_ok()),
        }
    }
}
