//! SAS controllers and their disks.

use qpair_sysfs::Root;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use crate::device::Device;

/// The PCI class of SAS controllers, as written in `/sys`.
const CLASS: &str = "0x0107";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Adapter {
    pub address: String,
    pub driver: Option<String>,
    /// The names of its disks in the kernel.
    pub disks: Vec<String>,
    /// The users of these disks: "sda1 is mounted at /".
    pub in_use: Vec<String>,
}

impl Adapter {
    pub(crate) fn all(root: &Root) -> Vec<Self> {
        let functions = root.names("/sys/bus/pci/devices");
        let is_sas = |address: &String| {
            let class = root.text(format!("/sys/bus/pci/devices/{address}/class"));
            class.is_some_and(|class| class.starts_with(CLASS))
        };
        functions.into_iter().filter(is_sas).map(|address| Self::read(root, address)).collect()
    }

    fn read(root: &Root, address: String) -> Self {
        let mut disks = root.names("/sys/block");
        disks.retain(|name| {
            let path = root.canonical(format!("/sys/block/{name}/device"));
            path.is_some_and(|path| path.iter().any(|part| part.to_str() == Some(&address)))
        });
        let in_use = disks.iter().filter_map(|name| Device::named(root, name));
        Self {
            driver: root.link_name(format!("/sys/bus/pci/devices/{address}/driver")),
            in_use: in_use.flat_map(|device| device.in_use).collect(),
            address,
            disks,
        }
    }
}
