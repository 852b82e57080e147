//! A function: its properties, its driver, and the functions that share its IOMMU group.

use qpair_block::{Error, ErrorKind, Result};

use super::{CLASS_NVME, CLASS_SAS, PciAddress, VFIO_PCI};
use qpair_sysfs::Root;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    pub address: PciAddress,
    /// Class, subclass and programming interface: 0x010802.
    pub class: u32,
    pub vendor: u16,
    pub device: u16,
    /// The current driver: `nvme`, `vfio-pci`.
    pub driver: Option<String>,
    /// The IOMMU group; `None` if no IOMMU stands between the function and the memory.
    pub iommu_group: Option<u32>,
    /// The other functions of the IOMMU group.
    pub neighbours: Vec<Neighbour>,
    pub numa_node: Option<u32>,
    /// The model, as the kernel's driver read it.
    pub model: Option<String>,
    /// The serial number, as the kernel's driver read it.
    pub serial: Option<String>,
    /// The block devices that the kernel's driver has made of the function.
    pub nodes: Vec<Node>,
}

/// Another function of the same IOMMU group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    pub address: PciAddress,
    pub driver: Option<String>,
    /// Whether the function is a bridge: bridges may keep their driver.
    pub is_bridge: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The name in `/dev`: `nvme0n1`.
    pub name: String,
    pub size_bytes: u64,
    /// The partitions: `nvme0n1p1`.
    pub partitions: Vec<String>,
}

impl Node {
    /// Whether the kernel or a program has claimed the device or a part of it: a mount, a swap
    /// space, a layer above, a program that opened it exclusively. Only root can find out.
    #[must_use]
    pub fn is_claimed(&self, root: &Root) -> bool {
        use std::os::unix::fs::OpenOptionsExt;
        let exclusive = rustix::fs::OFlags::EXCL.bits() as i32;
        let all = std::iter::once(&self.name).chain(&self.partitions);
        let mut opened = all.map(|name| {
            let path = root.path(format!("/dev/{name}"));
            std::fs::OpenOptions::new().read(true).custom_flags(exclusive).open(path)
        });
        opened.any(|opened| {
            opened.is_err_and(|error| {
                error.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error())
            })
        })
    }
}

impl Neighbour {
    /// Whether the group cannot be given to a program while this function keeps its driver.
    #[must_use]
    pub fn is_in_the_way(&self) -> bool {
        let harmless = [VFIO_PCI, "pci-stub"];
        !self.is_bridge
            && self.driver.as_ref().is_some_and(|driver| !harmless.contains(&driver.as_str()))
    }
}

impl Function {
    #[must_use]
    pub fn all_nvme(root: &Root) -> Vec<Self> {
        Self::all(root, Self::is_nvme)
    }

    #[must_use]
    pub fn all_sas(root: &Root) -> Vec<Self> {
        Self::all(root, Self::is_sas)
    }

    fn all(root: &Root, which: impl Fn(&Self) -> bool) -> Vec<Self> {
        let mut all: Vec<Self> = root
            .names("/sys/bus/pci/devices")
            .iter()
            .filter_map(|name| PciAddress::parse(name))
            .filter_map(|address| Self::read_if_there(root, address))
            .filter(which)
            .collect();
        all.sort_by_key(|function| function.address);
        all
    }

    /// Reads the function at an address.
    ///
    /// # Errors
    /// `NotFound` if no function has the address.
    pub fn read(root: &Root, address: PciAddress) -> Result<Self> {
        Self::read_if_there(root, address).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("there is no PCI function {address}"))
                .hint("qpair nvme list shows the NVMe drives that there are, qpair scsi list the SAS controllers")
        })
    }

    fn read_if_there(root: &Root, address: PciAddress) -> Option<Self> {
        let folder = folder(address);
        if !root.exists(&folder) {
            return None;
        }
        let of = |leaf: &str| format!("{folder}/{leaf}");
        let id = |leaf: &str| root.hex(of(leaf)).and_then(|id| u16::try_from(id).ok());
        let controller = root.names(of("nvme")).into_iter().next();
        let told = |leaf: &str| root.text(of(&format!("nvme/{}/{leaf}", controller.as_deref()?)));
        let class = root.hex(of("class")).unwrap_or(0);
        Some(Self {
            address,
            class,
            vendor: id("vendor").unwrap_or(0),
            device: id("device").unwrap_or(0),
            driver: root.link_name(of("driver")),
            iommu_group: root.link_name(of("iommu_group")).and_then(|name| name.parse().ok()),
            neighbours: neighbours(root, address),
            numa_node: root.text(of("numa_node")).and_then(|node| node.parse().ok()),
            model: told("model"),
            serial: told("serial"),
            nodes: match controller {
                Some(name) => namespaces(root, &of(&format!("nvme/{name}"))),
                None if class >> 8 == CLASS_SAS => disks(root, address),
                None => Vec::new(),
            },
        })
    }

    #[must_use]
    pub fn is_nvme(&self) -> bool {
        self.class >> 8 == CLASS_NVME
    }

    #[must_use]
    pub fn is_sas(&self) -> bool {
        self.class >> 8 == CLASS_SAS
    }

    /// Whether vfio-pci has the function, so that programs can open it.
    #[must_use]
    pub fn is_bound_to_vfio(&self) -> bool {
        self.driver.as_deref() == Some(VFIO_PCI)
    }

    /// Returns the functions of the group whose drivers keep the group from programs.
    pub fn in_the_way(&self) -> impl Iterator<Item = &Neighbour> {
        self.neighbours.iter().filter(|neighbour| neighbour.is_in_the_way())
    }
}

pub(super) fn folder(address: PciAddress) -> String {
    format!("/sys/bus/pci/devices/{address}")
}

fn neighbours(root: &Root, address: PciAddress) -> Vec<Neighbour> {
    root.names(format!("{}/iommu_group/devices", folder(address)))
        .iter()
        .filter_map(|name| PciAddress::parse(name))
        .filter(|other| *other != address)
        .map(|address| {
            let folder = folder(address);
            let class = root.hex(format!("{folder}/class")).unwrap_or(0);
            let driver = root.link_name(format!("{folder}/driver"));
            Neighbour { address, driver, is_bridge: class >> 16 == 0x06 }
        })
        .collect()
}

fn namespaces(root: &Root, controller: &str) -> Vec<Node> {
    let names = root.names(controller).into_iter().filter_map(|name| head_name(&name));
    names.map(|name| node(root, name)).collect()
}

/// Returns the disks behind a SAS controller: those whose device lies below it.
fn disks(root: &Root, address: PciAddress) -> Vec<Node> {
    let address = address.to_string();
    let is_below = |name: &String| {
        let folder = format!("/sys/class/block/{name}");
        let path = root.link(&folder).unwrap_or_default();
        path.iter().any(|part| part.to_str() == Some(&address))
            && !root.exists(format!("{folder}/partition"))
    };
    root.names("/sys/class/block").into_iter().filter(is_below).map(|it| node(root, it)).collect()
}

fn node(root: &Root, name: String) -> Node {
    let folder = format!("/sys/class/block/{name}");
    let partitions = root
        .names(&folder)
        .into_iter()
        .filter(|name| root.exists(format!("{folder}/{name}/partition")))
        .collect();
    let sectors = root.text(format!("{folder}/size")).and_then(|text| text.parse().ok());
    let size_bytes = sectors.map_or(0, |sectors: u64| sectors.saturating_mul(512));
    Node { name, size_bytes, partitions }
}

/// Returns the block device of an entry below a controller: `nvme0n1` for `nvme0n1` and for a path
/// to it (`nvme0c1n1`), `None` for other entries (`ng0n1`).
fn head_name(name: &str) -> Option<String> {
    let rest = name.strip_prefix("nvme")?;
    let (before, namespace) = rest.rsplit_once('n')?;
    let subsystem = before.split_once('c').map_or(before, |(subsystem, _)| subsystem);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(namespace) && is_number(subsystem)).then(|| format!("nvme{subsystem}n{namespace}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysfs::bind::tests::Machine;

    #[test]
    fn names_of_namespaces() {
        assert_eq!(head_name("nvme0n1").as_deref(), Some("nvme0n1"));
        assert_eq!(head_name("nvme2c3n10").as_deref(), Some("nvme2n10"));
        for name in ["ng0n1", "nvme0", "hwmon1", "nvme0n", "nvmexn1"] {
            assert_eq!(head_name(name), None, "{name}");
        }
    }

    #[test]
    fn lists_controllers_with_what_is_on_them() {
        let machine = Machine::new();
        let all = Function::all_nvme(&machine.root());
        let addresses: Vec<String> = all.iter().map(|one| one.address.to_string()).collect();
        assert_eq!(addresses, ["0000:03:00.0", "0000:04:00.0"]);
        let first = &all[0];
        assert_eq!((first.vendor, first.device, first.class), (0x144d, 0xa80a, 0x01_0802));
        assert_eq!((first.driver.as_deref(), first.iommu_group), (Some("nvme"), Some(7)));
        assert_eq!((first.numa_node, first.model.as_deref()), (None, Some("A drive")));
        assert_eq!(first.nodes.len(), 1);
        assert_eq!(first.nodes[0].name, "nvme0n1");
        assert_eq!(first.nodes[0].partitions, ["nvme0n1p1", "nvme0n1p2"]);
        assert_eq!(first.nodes[0].size_bytes, 1 << 20);
        let others: Vec<_> = first.neighbours.iter().map(|n| n.address.to_string()).collect();
        assert_eq!(others, ["0000:00:1c.0", "0000:05:00.0"]);
        let blocking: Vec<_> = first.in_the_way().map(|n| n.address.to_string()).collect();
        assert_eq!(blocking, ["0000:05:00.0"], "bridges are not in the way");
        assert_eq!((all[1].numa_node, all[1].iommu_group), (Some(1), None));
    }

    #[test]
    fn disks_behind_a_sas_controller() {
        let machine = Machine::new();
        let pci = "sys/bus/pci/devices/0000:06:00.0";
        machine.folder(pci);
        machine.file(&format!("{pci}/class"), "0x010700");
        let mut nodes = Vec::new();
        for disk in ["sda", "sdb"] {
            let folder = format!("{pci}/host0/target0:0:0/0:0:0:0/block/{disk}");
            machine.folder(&folder);
            machine.file(&format!("{folder}/size"), "2048");
            machine.link(&format!("sys/class/block/{disk}"), &folder);
            nodes.push(folder);
        }
        // A partition has a node of its own below its disk, and a disk may be behind another
        // controller.
        machine.folder(&format!("{}/sda1", nodes[0]));
        machine.file(&format!("{}/sda1/partition", nodes[0]), "1");
        machine.link("sys/class/block/sda1", &format!("{}/sda1", nodes[0]));
        machine.folder("sys/devices/0000:16:00.0/sdc");
        machine.link("sys/class/block/sdc", "sys/devices/0000:16:00.0/sdc");
        let all = Function::all_sas(&machine.root());
        assert_eq!(all.len(), 1);
        let names: Vec<&str> = all[0].nodes.iter().map(|node| &*node.name).collect();
        assert_eq!(names, ["sda", "sdb"]);
        assert_eq!(all[0].nodes[0].partitions, ["sda1"]);
        assert_eq!(all[0].nodes[1].size_bytes, 1 << 20);
        assert!(
            Function::all_nvme(&machine.root()).iter().all(|one| one.address != all[0].address)
        );
    }

    #[test]
    fn a_function_that_is_not_there() {
        let machine = Machine::new();
        let address = PciAddress::parse("0000:09:00.0").unwrap();
        let error = Function::read(&machine.root(), address).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}
