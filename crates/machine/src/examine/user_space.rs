//! What drivers in user space need. Interfaces of the kernel do without all of it.

use super::command::{as_root, at_boot};
use super::not_available;
use crate::finding::{Area, Finding, Severity};
use crate::machine::Machine;
use crate::words::counted;

const AREA: Area = Area::UserSpaceDrivers;

pub(super) fn examine(machine: &Machine) -> Vec<Finding> {
    vec![groups(machine), driver(machine), device(machine)]
}

fn groups(machine: &Machine) -> Finding {
    let subject = "IOMMU groups";
    match machine.iommu.groups {
        None => not_available(AREA, subject, "the kernel has no IOMMU support"),
        Some(0) => {
            let virtual_machine = machine.virtualization.is_virtual == Some(true);
            let why = if virtual_machine {
                "there is no IOMMU: the hypervisor must offer one before a driver in user space is safe"
            } else {
                "the IOMMU is off, in the firmware or the kernel: a driver in user space would not be safe"
            };
            let finding = Finding::new(AREA, subject, 0, Severity::Hint, why);
            match machine.processors.vendor.as_deref() {
                Some("GenuineIntel") => at_boot(machine, finding, "intel_iommu=on iommu=pt"),
                Some("AuthenticAMD") => at_boot(machine, finding, "amd_iommu=on iommu=pt"),
                _ => finding,
            }
        }
        Some(count) => {
            let why = "drives can be given to drivers in user space (VFIO)";
            Finding::new(AREA, subject, count, Severity::Good, why)
        }
    }
}

fn driver(machine: &Machine) -> Finding {
    let subject = "vfio-pci";
    match machine.iommu.vfio_pci {
        None => not_available(AREA, subject, "modules do not show here"),
        Some(true) => {
            Finding::new(AREA, subject, "there", Severity::Good, "it can take a drive over")
        }
        Some(false) => {
            let why = "the kernel's side of drivers in user space is not loaded";
            Finding::new(AREA, subject, "not loaded", Severity::Hint, why)
                .mend(as_root(machine, "modprobe vfio-pci"), "now, until the next start")
        }
    }
}

fn device(machine: &Machine) -> Finding {
    let subject = "/dev/vfio/vfio";
    match (machine.iommu.vfio_device, machine.iommu.vfio_allowed) {
        (None, _) => not_available(AREA, subject, "/dev does not show here"),
        (Some(false), _) => {
            let why = "it comes with the module vfio; a container must be given it (--device)";
            Finding::new(AREA, subject, "not there", Severity::Info, why)
        }
        (Some(true), Some(true)) => {
            let groups = machine.iommu.groups.unwrap_or(0);
            let why = format!("it can be opened; {} in all", counted(groups, "group"));
            Finding::new(AREA, subject, "accessible", Severity::Good, why)
        }
        (Some(true), _) => {
            let why = "this user may not open it";
            Finding::new(AREA, subject, "permission denied", Severity::Hint, why)
                .mend(as_root(machine, "chmod 0666 /dev/vfio/vfio"), "now, until the next start")
        }
    }
}
