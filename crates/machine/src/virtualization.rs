//! The environment of the machine: a hypervisor, a container.

use qpair_sysfs::Root;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use crate::processors::field;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Virtualization {
    /// Whether the machine is virtual; `None` if this cannot be determined.
    pub is_virtual: Option<bool>,
    /// The vendor and product of the machine, as the firmware reports them: "QEMU Standard PC",
    /// "Amazon EC2 m7i.large".
    pub vendor: Option<String>,
    /// The container of this process, if there is one: `docker`.
    pub container: Option<String>,
}

/// Words in the firmware's names that only virtual machines have.
const VIRTUAL: [&str; 9] = [
    "QEMU",
    "KVM",
    "VMware",
    "VirtualBox",
    "Virtual Machine",
    "Amazon EC2",
    "Google Compute Engine",
    "Xen",
    "Firecracker",
];

impl Virtualization {
    pub(crate) fn read(root: &Root) -> Self {
        let dmi = |leaf: &str| root.text(format!("/sys/class/dmi/id/{leaf}"));
        let names: Vec<String> =
            ["sys_vendor", "product_name"].iter().filter_map(|l| dmi(l)).collect();
        let vendor = (!names.is_empty()).then(|| names.join(" "));
        let info = root.text("/proc/cpuinfo").unwrap_or_default();
        // On x86, the processor's flags say it; elsewhere only the firmware's names do.
        let by_flag = field(&info, "flags")
            .map(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"));
        let by_name =
            vendor.as_ref().map(|vendor| VIRTUAL.iter().any(|word| vendor.contains(word)));
        // Bare metal rented in a cloud has the cloud's name, but no hypervisor.
        let is_virtual =
            by_flag.or(by_name).or(root.exists("/sys/hypervisor/type").then_some(true));
        Self { is_virtual, vendor, container: container(root) }
    }
}

/// The number of the first PID namespace: `PROC_PID_INIT_INO`, linux/proc_ns.h.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

fn container(root: &Root) -> Option<String> {
    // Some machines are installed from container images, with the container's marks.
    if root.link_name("/proc/self/ns/pid").as_deref() == Some(FIRST_PID_NAMESPACE) {
        return None;
    }
    if let Some(name) = root.text("/run/systemd/container") {
        return Some(name);
    }
    let marks = [("/.dockerenv", "docker"), ("/run/.containerenv", "podman")];
    if let Some((_, name)) = marks.iter().find(|(path, _)| root.exists(path)) {
        return Some((*name).to_owned());
    }
    let groups = root.text("/proc/1/cgroup").unwrap_or_default();
    let words = [("kubepods", "kubernetes"), ("docker", "docker"), ("lxc", "lxc")];
    words.iter().find(|(word, _)| groups.contains(word)).map(|(_, name)| (*name).to_owned())
}
