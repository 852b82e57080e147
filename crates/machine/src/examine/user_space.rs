//! Findings about the requirements of user-space drivers. Kernel interfaces need none of them.

use super::command::{as_root, at_boot};
use super::not_available;
use crate::adapter::Adapter;
use crate::finding::{Area, Finding, Severity};
use crate::machine::Machine;
use crate::words::counted;

const AREA: Area = Area::UserSpaceDrivers;

pub(super) fn examine(machine: &Machine) -> Vec<Finding> {
    let mut findings = vec![groups(machine), driver(machine), device(machine)];
    findings.extend(machine.adapters.iter().map(|adapter| controller(machine, adapter)));
    findings
}

/// Returns a finding about a SAS controller: its driver, and whether a user-space driver could use
/// it.
fn controller(machine: &Machine, adapter: &Adapter) -> Finding {
    let Adapter { address, driver, disks, in_use } = adapter;
    let subject = format!("SAS controller {address}");
    let state = driver.as_deref().unwrap_or("no driver");
    let disks = match disks.len() {
        0 => "no disks of the kernel's behind it".to_owned(),
        _ => disks.join(", "),
    };
    let finding = |why: String| Finding::new(AREA, &subject, state, Severity::Info, why);
    if driver.as_deref() == Some("vfio-pci") {
        return finding(format!(
            "a program can drive it: scsi:{address}/N (qpair scsi list {address})"
        ));
    }
    if !in_use.is_empty() {
        return finding(format!("{disks}; it stays with the kernel: {}", in_use.join("; ")));
    }
    finding(format!("{disks}; nothing on them is in use"))
        .mend(as_root(machine, &format!("qpair nvme bind {address}")), "gives it to this program")
}

fn groups(machine: &Machine) -> Finding {
    let subject = "IOMMU groups";
    match machine.iommu.groups {
        None => not_available(AREA, subject, "the kernel has no IOMMU support"),
        Some(0) => none(machine, subject),
        Some(count) => {
            let why = "drives can be given to drivers in user space (VFIO)";
            Finding::new(AREA, subject, count, Severity::Good, why)
        }
    }
}

fn none(machine: &Machine, subject: &str) -> Finding {
    let finding = |why: &str| Finding::new(AREA, subject, 0, Severity::Hint, why);
    let intel = machine.processors.vendor.as_deref() == Some("GenuineIntel");
    match (machine.virtualization.is_virtual == Some(true), intel) {
        (true, _) => finding(
            "the hypervisor offers no IOMMU, or the kernel does not use it: a driver in user space is not safe",
        ),
        (false, true) => at_boot(
            machine,
            finding(
                "VT-d is off, in the firmware or the kernel: a driver in user space is not safe",
            ),
            "intel_iommu=on iommu=pt",
        ),
        // The kernel uses an AMD IOMMU by itself once the firmware enables it.
        (false, false) => at_boot(
            machine,
            finding(
                "the IOMMU (AMD-Vi, SMMU) is off: switch it on in the firmware; a driver in user space is not safe",
            ),
            "iommu=pt",
        ),
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
