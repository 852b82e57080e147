//! Finds out why a function cannot be opened, and what to do about it. The checks come before the
//! kernel is asked, because the kernel answers only with error numbers.

use qpair_block::{Error, ErrorKind, Result};

use super::iommufd;
use crate::sysfs::{Function, PciAddress, Root, VFIO_PCI};

pub(super) fn check(root: &Root, function: &Function) -> Result<()> {
    check_iommu(root, function)?;
    check_driver(root, function.address)?;
    check_bound(function)?;
    match function.in_the_way().next() {
        Some(_) => Err(not_viable(function)),
        None => Ok(()),
    }
}

/// Checks that an IOMMU confines the function to the memory that is opened to it.
pub(crate) fn check_iommu(root: &Root, function: &Function) -> Result<()> {
    let address = function.address;
    let unsupported = |what: &str| Error::new(ErrorKind::Unsupported, format!("{address}: {what}"));
    let Some(group) = function.iommu_group else {
        let off = root.names("/sys/kernel/iommu_groups").is_empty();
        let what = match off {
            true => {
                "this machine has no IOMMU, or it is off: there are no groups in /sys/kernel/iommu_groups"
            }
            false => "no IOMMU stands before it, though the machine has one",
        };
        return Err(unsupported(what).hint(
            "turn VT-d, AMD-Vi or SMMU on in the firmware, and on Intel add intel_iommu=on to the kernel's parameters; a virtual \
             machine needs an IOMMU of its own (QEMU: -device intel-iommu,intremap=on)",
        ));
    };
    let kind = root.text(format!("/sys/kernel/iommu_groups/{group}/name"));
    if kind.as_deref() == Some("vfio-noiommu") {
        let what = "it would be driven without an IOMMU (enable_unsafe_noiommu_mode), which is not supported";
        return Err(
            unsupported(what).hint("turn the IOMMU on: intel_iommu=on, and in the firmware")
        );
    }
    Ok(())
}

pub(crate) fn check_driver(root: &Root, address: PciAddress) -> Result<()> {
    if root.exists(format!("/sys/bus/pci/drivers/{VFIO_PCI}")) {
        return Ok(());
    }
    let context = format!("{address}: the kernel's driver {VFIO_PCI} is not loaded");
    Err(Error::new(ErrorKind::Unsupported, context).hint(modprobe()))
}

fn check_bound(function: &Function) -> Result<()> {
    if function.is_bound_to_vfio() {
        return Ok(());
    }
    let address = function.address;
    let (kind, who) = match &function.driver {
        Some(driver) => (ErrorKind::Busy, format!("the kernel's driver {driver} has it")),
        None => (ErrorKind::Unsupported, "no driver has it".to_owned()),
    };
    let context = format!("{address}: {who}, but programs can only use what {VFIO_PCI} has");
    Err(Error::new(kind, context).hint(format!("sudo qpair nvme bind {address}")))
}

pub(super) fn not_viable(function: &Function) -> Error {
    let (address, group) = (function.address, function.iommu_group.unwrap_or_default());
    let others: Vec<String> = function
        .in_the_way()
        .map(|other| {
            format!("{} (driver {})", other.address, other.driver.as_deref().unwrap_or("none"))
        })
        .collect();
    let others = if others.is_empty() { "others".to_owned() } else { others.join(", ") };
    let context = format!(
        "{address}: the IOMMU cannot keep it apart from {others}: they share group {group}, which goes to programs as a whole or \
         not at all"
    );
    Error::new(ErrorKind::Unsupported, context).hint(format!(
        "NVMe drives: bind them too (qpair nvme bind); others: take them from their driver (echo ADDRESS > \
         /sys/bus/pci/devices/ADDRESS/driver/unbind) if they are not in use, or move {address} to another slot"
    ))
}

pub(super) fn busy(root: &Root, function: &Function) -> Error {
    let who = who_has(root, function).unwrap_or_else(|| "another program".to_owned());
    Error::new(ErrorKind::Busy, format!("{}: {who} has it", function.address))
        .hint("a drive is driven by one program at a time: end that one first")
}

pub(super) fn denied(address: PciAddress, path: &str, cause: std::io::Error) -> Error {
    Error::os(cause, format!("{address}: opening {path}")).hint(match path {
        "/dev/vfio/vfio" => {
            "sudo chmod 666 /dev/vfio/vfio (that file alone gives access to nothing)".to_owned()
        }
        _ => format!("sudo chown \"$USER\" {path}"),
    })
}

pub(super) fn modprobe() -> &'static str {
    "sudo modprobe vfio-pci; in a container, hand /dev/vfio in"
}

pub(super) fn group_path(group: u32) -> String {
    format!("/dev/vfio/{group}")
}

pub(crate) fn files_of(root: &Root, function: &Function) -> Vec<String> {
    let group = function.iommu_group.map(group_path).filter(|path| root.exists(path));
    group.into_iter().chain(iommufd::file_of(root, function.address)).collect()
}

/// Names the processes that have a function, or another one of its group, open, as far as this
/// process may see them: "process 12 (name)".
pub(crate) fn who_has(root: &Root, function: &Function) -> Option<String> {
    let files = files_of(root, function);
    let is_open = |pid: &str| {
        let fds = format!("/proc/{pid}/fd");
        root.names(&fds).iter().any(|fd| {
            let target = std::fs::read_link(root.path(format!("{fds}/{fd}")));
            target.is_ok_and(|target| files.iter().any(|file| target.as_os_str() == file.as_str()))
        })
    };
    let processes = root.names("/proc");
    let numbers = processes.iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    let found: Vec<String> = numbers
        .filter(|pid| is_open(pid))
        .map(|pid| {
            let name = root.text(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("process {pid} ({name})")
        })
        .collect();
    (!found.is_empty()).then(|| found.join(", "))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::sysfs::bind_tests::Machine;

    fn checked(machine: &Machine, address: &str) -> Result<()> {
        let address = PciAddress::parse(address).unwrap();
        check(&machine.root(), &Function::read(&machine.root(), address)?)
    }

    fn refused(machine: &Machine, address: &str, kind: ErrorKind, words: &[&str]) {
        let error = checked(machine, address).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), kind, "{text}");
        assert!(error.way_out().is_some(), "{text}");
        words.iter().for_each(|word| assert!(text.contains(word), "{word}: {text}"));
    }

    #[test]
    fn each_cause_has_its_words() {
        const DRIVE: &str = "0000:03:00.0";
        let machine = Machine::new();
        let unsupported = ErrorKind::Unsupported;
        refused(&machine, "0000:04:00.0", unsupported, &["no IOMMU stands before it"]);
        refused(&machine, DRIVE, ErrorKind::Busy, &["driver nvme", "qpair nvme bind 0000:03:00.0"]);
        let drive = PciAddress::parse(DRIVE).unwrap();
        machine.set_driver(drive, None);
        refused(&machine, DRIVE, unsupported, &["no driver has it", "qpair nvme bind"]);
        machine.set_driver(drive, Some("vfio-pci"));
        refused(&machine, DRIVE, unsupported, &["0000:05:00.0 (driver e1000e)", "group 7"]);
        machine.set_driver(PciAddress::parse("0000:05:00.0").unwrap(), None);
        checked(&machine, DRIVE).unwrap();
        machine.file("sys/kernel/iommu_groups/7/name", "vfio-noiommu\n");
        refused(&machine, DRIVE, unsupported, &["not supported", "intel_iommu=on"]);
        fs::remove_file(machine.path("sys/kernel/iommu_groups/7/name")).unwrap();
        fs::remove_dir_all(machine.path("sys/bus/pci/drivers/vfio-pci")).unwrap();
        refused(&machine, DRIVE, unsupported, &["not loaded", "modprobe vfio-pci"]);
        fs::remove_dir_all(machine.path("sys/kernel/iommu_groups")).unwrap();
        refused(&machine, "0000:04:00.0", unsupported, &["has no IOMMU, or it is off"]);
        refused(&machine, "0000:09:00.0", ErrorKind::NotFound, &["no PCI function"]);
    }

    #[test]
    fn names_who_has_it() {
        let machine = Machine::new();
        let address = PciAddress::parse("0000:03:00.0").unwrap();
        let function = Function::read(&machine.root(), address).unwrap();
        assert_eq!(who_has(&machine.root(), &function), None);
        machine.folder("proc/12/fd");
        machine.folder("proc/13/fd");
        machine.file("proc/12/comm", "qpair\n");
        std::os::unix::fs::symlink("/dev/vfio/7", machine.path("proc/12/fd/3")).unwrap();
        std::os::unix::fs::symlink("/dev/vfio/77", machine.path("proc/13/fd/3")).unwrap();
        let error = busy(&machine.root(), &function);
        assert!(error.to_string().contains("process 12 (qpair) has it"), "{error}");
        assert_eq!(error.kind(), ErrorKind::Busy);
    }

    #[test]
    fn rights_that_are_missing() {
        let address = PciAddress::parse("0000:03:00.0").unwrap();
        let cause = || std::io::Error::from_raw_os_error(13);
        let error = denied(address, "/dev/vfio/7", cause());
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert_eq!(error.way_out(), Some("sudo chown \"$USER\" /dev/vfio/7"));
        assert!(denied(address, "/dev/vfio/vfio", cause()).to_string().contains("chmod"));
    }
}
