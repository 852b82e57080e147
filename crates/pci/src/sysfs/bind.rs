//! Gives a function to programs, and back to the kernel.
//!
//! - A step that fails half-way is undone: the function goes back to the driver that had it.
//! - This module does not look at the data on a drive: the caller makes sure that no program uses
//!   it.

use std::io;
use std::path::PathBuf;

use qpair_block::{Error, ErrorKind, Result};

use super::function::{Function, folder};
use super::{PciAddress, VFIO_PCI};
use crate::vfio::{self, who_has};
use qpair_sysfs::Root;

/// The hint for a driver that does not accept a function.
const DMESG: &str = "the kernel says why: dmesg | tail";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub before: Option<String>,
    pub now: Option<String>,
}

/// Returns the files through which programs access a function that vfio-pci has. A program that may
/// read and write them may drive the function.
#[must_use]
pub fn access_files(root: &Root, function: &Function) -> Vec<PathBuf> {
    vfio::files_of(root, function).into_iter().map(|path| root.path(path)).collect()
}

/// Gives a function to the driver vfio-pci, and so to programs. Does nothing if vfio-pci has it
/// already.
///
/// # Errors
/// `NotFound`: no such function. `Unsupported`: no IOMMU, or no vfio-pci. `Denied`: not root. Each
/// has a hint.
pub fn bind(root: &Root, address: PciAddress) -> Result<Outcome> {
    bind_by(root, &|path, word| root.write(path, word), address)
}

/// Gives a function back to the kernel's own driver for it.
///
/// # Errors
/// `NotFound`: no such function. `Invalid`: vfio-pci does not have it. `Busy`: a program uses it.
/// `Denied`: not root.
pub fn unbind(root: &Root, address: PciAddress) -> Result<Outcome> {
    unbind_by(root, &|path, word| root.write(path, word), address)
}

/// Gives a function to the kernel's driver of that name, even if the driver does not list its id.
/// With "" the function goes to its usual driver.
///
/// # Errors
/// `NotFound`: no such function. `Busy`: a program uses it. `Io`: the driver did not take it.
/// `Denied`: not root.
pub fn give(root: &Root, address: PciAddress, driver: &str) -> Result<Outcome> {
    give_by(root, &|path, word| root.write(path, word), address, driver)
}

/// A function that writes a word to one of the kernel's files.
type Say<'a> = &'a dyn Fn(&str, &str) -> io::Result<()>;

fn bind_by(root: &Root, say: Say<'_>, address: PciAddress) -> Result<Outcome> {
    let function = Function::read(root, address)?;
    let before = function.driver.clone();
    if function.is_bound_to_vfio() {
        return Ok(Outcome { now: before.clone(), before });
    }
    vfio::check_iommu(root, &function)?;
    vfio::check_driver(root, address)?;
    let override_before = override_of(root, address);
    let bound = hand_over(say, address, VFIO_PCI, before.is_some());
    let now = root.link_name(format!("{}/driver", folder(address)));
    if bound.is_ok() && now.as_deref() == Some(VFIO_PCI) {
        return Ok(Outcome { before, now });
    }
    let back = hand_over(say, address, &override_before, now.is_some());
    let now = root.link_name(format!("{}/driver", folder(address)));
    let restored = back.is_ok() && now == before;
    let error = bound.err().unwrap_or_else(|| {
        Error::new(ErrorKind::Io, format!("{address}: the driver {VFIO_PCI} did not take it"))
            .hint(DMESG)
    });
    Err(if restored { error } else { not_restored(&error, address, before.as_deref()) })
}

fn unbind_by(root: &Root, say: Say<'_>, address: PciAddress) -> Result<Outcome> {
    let function = Function::read(root, address)?;
    if !function.is_bound_to_vfio() {
        let driver = function.driver.map_or_else(
            || "no driver has it".to_owned(),
            |driver| format!("the kernel's driver {driver} has it"),
        );
        let context = format!("{address} is not bound to {VFIO_PCI}: {driver}");
        return Err(Error::new(ErrorKind::Invalid, context)
            .hint("qpair nvme list and qpair scsi list show which driver has which controller"));
    }
    give_by(root, say, address, "")
}

fn give_by(root: &Root, say: Say<'_>, address: PciAddress, driver: &str) -> Result<Outcome> {
    let function = Function::read(root, address)?;
    // The kernel would wait for the program, and the caller would wait for the kernel.
    if let Some(who) = who_has(root, &function) {
        return Err(Error::new(ErrorKind::Busy, format!("{address} is in use by {who}"))
            .hint("end that program first"));
    }
    hand_over(say, address, driver, function.driver.is_some())?;
    let now = root.link_name(format!("{}/driver", folder(address)));
    if !driver.is_empty() && now.as_deref() != Some(driver) {
        let context = format!("{address}: the driver {driver} did not take it");
        return Err(Error::new(ErrorKind::Io, context).hint(DMESG));
    }
    Ok(Outcome { before: function.driver, now })
}

/// Takes a function from its driver and lets the kernel probe for another: the driver of that name,
/// or with "" the usual one.
fn hand_over(say: Say<'_>, address: PciAddress, driver: &str, has_driver: bool) -> Result<()> {
    let folder = folder(address);
    let say = |path: &str, word: &str| {
        say(path, word).map_err(|cause| {
            let denied = cause.kind() == io::ErrorKind::PermissionDenied
                || cause.kind() == io::ErrorKind::ReadOnlyFilesystem;
            let error = Error::os(cause, format!("{address}: writing {path}"));
            if denied { error.hint("run it as root: sudo qpair nvme ...") } else { error }
        })
    };
    say(&format!("{folder}/driver_override"), &format!("{driver}\n"))?;
    if has_driver {
        say(&format!("{folder}/driver/unbind"), &address.to_string())?;
    }
    say("/sys/bus/pci/drivers_probe", &address.to_string())
}

/// Returns the driver that `driver_override` names for this function, or "".
#[must_use]
pub fn override_of(root: &Root, address: PciAddress) -> String {
    root.text(format!("{}/driver_override", folder(address)))
        .filter(|name| name != "(null)")
        .unwrap_or_default()
}

fn not_restored(error: &Error, address: PciAddress, before: Option<&str>) -> Error {
    let (folder, driver) = (folder(address), before.unwrap_or("no driver"));
    Error::new(error.kind(), format!("{error}; then it could not be given back to {driver}")).hint(
        format!("echo > {folder}/driver_override; echo {address} > /sys/bus/pci/drivers_probe"),
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn target() -> std::path::PathBuf {
        std::env::current_exe().unwrap().parent().unwrap().to_owned()
    }

    /// A tree of files that stands for a machine with two drives. The first drive shares its group
    /// with a bridge and a network card.
    pub(crate) struct Machine(tempfile::TempDir);

    impl Machine {
        pub(crate) fn new() -> Self {
            let machine = Self(tempfile::tempdir_in(target()).unwrap());
            let bus = "sys/bus/pci";
            for driver in ["nvme", "vfio-pci", "e1000e", "pcieport"] {
                machine.folder(&format!("{bus}/drivers/{driver}"));
                machine.file(&format!("{bus}/drivers/{driver}/unbind"), "");
            }
            machine.file(&format!("{bus}/drivers_probe"), "");
            let functions = [
                ("0000:00:1c.0", "0x060400", "pcieport", Some(7)),
                ("0000:03:00.0", "0x010802", "nvme", Some(7)),
                ("0000:04:00.0", "0x010802", "nvme", None),
                ("0000:05:00.0", "0x020000", "e1000e", Some(7)),
            ];
            for (address, class, driver, group) in functions {
                let folder = format!("{bus}/devices/{address}");
                machine.folder(&folder);
                machine.file(&format!("{folder}/class"), class);
                machine.file(&format!("{folder}/vendor"), "0x144d");
                machine.file(&format!("{folder}/device"), "0xa80a");
                machine.file(&format!("{folder}/driver_override"), "(null)");
                machine
                    .file(&format!("{folder}/numa_node"), if group.is_some() { "-1" } else { "1" });
                machine.link(&format!("{folder}/driver"), &format!("{bus}/drivers/{driver}"));
                if let Some(group) = group {
                    let group = format!("sys/kernel/iommu_groups/{group}");
                    machine.folder(&format!("{group}/devices"));
                    machine.link(&format!("{folder}/iommu_group"), &group);
                    machine.link(&format!("{group}/devices/{address}"), &folder);
                }
            }
            let controller = format!("{bus}/devices/0000:03:00.0/nvme/nvme0");
            machine.folder(&format!("{controller}/nvme0n1"));
            machine.folder(&format!("{controller}/ng0n1"));
            machine.file(&format!("{controller}/model"), "A drive   \n");
            for part in ["nvme0n1p1", "nvme0n1p2"] {
                machine.folder(&format!("sys/class/block/nvme0n1/{part}"));
                machine.file(&format!("sys/class/block/nvme0n1/{part}/partition"), "1");
            }
            machine.file("sys/class/block/nvme0n1/size", "2048\n");
            machine.folder("dev/vfio");
            machine.file("dev/vfio/vfio", "");
            machine.file("dev/vfio/7", "");
            machine
        }

        pub(crate) fn root(&self) -> Root {
            Root::at(self.0.path())
        }

        pub(crate) fn path(&self, path: &str) -> std::path::PathBuf {
            self.0.path().join(path)
        }

        pub(crate) fn folder(&self, path: &str) {
            fs::create_dir_all(self.path(path)).unwrap();
        }

        pub(crate) fn file(&self, path: &str, text: &str) {
            fs::write(self.path(path), text).unwrap();
        }

        pub(crate) fn link(&self, path: &str, to: &str) {
            symlink(self.path(to), self.path(path)).unwrap();
        }

        pub(crate) fn set_driver(&self, address: PciAddress, driver: Option<&str>) {
            let link = format!("sys/bus/pci/devices/{address}/driver");
            let _ = fs::remove_file(self.path(&link));
            if let Some(driver) = driver {
                self.link(&link, &format!("sys/bus/pci/drivers/{driver}"));
            }
        }

        /// Does what the kernel would do with a word. With `refuses`, vfio-pci accepts no function.
        fn hears(&self, path: &str, word: &str, refuses: bool) -> io::Result<()> {
            self.root().write(path, word)?;
            if path.ends_with("/unbind") {
                self.set_driver(PciAddress::parse(word).unwrap(), None);
            } else if path.ends_with("drivers_probe") {
                let address = PciAddress::parse(word).unwrap();
                let wanted = match override_of(&self.root(), address).as_str() {
                    "" => "nvme".to_owned(),
                    wanted => wanted.to_owned(),
                };
                if !(refuses && wanted == VFIO_PCI) {
                    self.set_driver(address, Some(&wanted));
                }
            } else {
                self.file(path.trim_start_matches('/'), word);
            }
            Ok(())
        }
    }

    fn drive() -> PciAddress {
        PciAddress::parse("0000:03:00.0").unwrap()
    }

    fn driver_of(machine: &Machine) -> Option<String> {
        Function::read(&machine.root(), drive()).unwrap().driver
    }

    #[test]
    fn there_and_back() {
        let machine = Machine::new();
        let say = |path: &str, word: &str| machine.hears(path, word, false);
        let outcome = bind_by(&machine.root(), &say, drive()).unwrap();
        assert_eq!(outcome.before.as_deref(), Some("nvme"));
        assert_eq!(driver_of(&machine).as_deref(), Some(VFIO_PCI));
        let again = bind_by(&machine.root(), &say, drive()).unwrap();
        assert_eq!(again.before.as_deref(), Some(VFIO_PCI), "is as it should be");
        let outcome = unbind_by(&machine.root(), &say, drive()).unwrap();
        assert_eq!(outcome.now.as_deref(), Some("nvme"));
        assert_eq!(override_of(&machine.root(), drive()), "");
        let error = unbind_by(&machine.root(), &say, drive()).unwrap_err();
        assert!(error.to_string().contains("the kernel's driver nvme has it"), "{error}");
    }

    #[test]
    fn to_a_driver_by_name_and_back() {
        let machine = Machine::new();
        let say = |path: &str, word: &str| machine.hears(path, word, false);
        let give = |driver: &str| give_by(&machine.root(), &say, drive(), driver);
        machine.folder("sys/bus/pci/drivers/hwperf");
        machine.file("sys/bus/pci/drivers/hwperf/unbind", "");
        assert_eq!(give("hwperf").unwrap().before.as_deref(), Some("nvme"));
        assert_eq!(driver_of(&machine).as_deref(), Some("hwperf"));
        assert_eq!(give("").unwrap().now.as_deref(), Some("nvme"));
        assert_eq!(override_of(&machine.root(), drive()), "");
        // If a driver refuses the function, the function has no driver, and the error says so.
        let refuses = |path: &str, word: &str| machine.hears(path, word, true);
        let error = give_by(&machine.root(), &refuses, drive(), VFIO_PCI).unwrap_err();
        assert!(error.to_string().contains("vfio-pci did not take it"), "{error}");
    }

    #[test]
    fn what_fails_is_undone() {
        let machine = Machine::new();
        let say = |path: &str, word: &str| machine.hears(path, word, true);
        let error = bind_by(&machine.root(), &say, drive()).unwrap_err();
        assert!(error.to_string().contains("did not take it"), "{error}");
        assert!(!error.to_string().contains("could not be given back"), "{error}");
        assert_eq!(driver_of(&machine).as_deref(), Some("nvme"));
        assert_eq!(override_of(&machine.root(), drive()), "");
    }

    #[test]
    fn what_cannot_be_undone_is_said() {
        let machine = Machine::new();
        let say = |path: &str, word: &str| {
            if path.ends_with("drivers_probe") {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            machine.hears(path, word, false)
        };
        let error = bind_by(&machine.root(), &say, drive()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("could not be given back to nvme"), "{text}");
        assert!(text.contains("drivers_probe"), "{text}");
    }

    #[test]
    fn not_root() {
        let machine = Machine::new();
        let say = |_: &str, _: &str| Err(io::ErrorKind::PermissionDenied.into());
        let error = bind_by(&machine.root(), &say, drive()).unwrap_err();
        assert!(error.to_string().contains("root"), "{error}");
    }

    #[test]
    fn no_iommu_no_driver() {
        let machine = Machine::new();
        let say = |path: &str, word: &str| machine.hears(path, word, false);
        let without_group = PciAddress::parse("0000:04:00.0").unwrap();
        let error = bind_by(&machine.root(), &say, without_group).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("IOMMU"), "{error}");
        fs::remove_dir_all(machine.path("sys/bus/pci/drivers/vfio-pci")).unwrap();
        let error = bind_by(&machine.root(), &say, drive()).unwrap_err();
        assert!(error.to_string().contains("modprobe vfio-pci"), "{error}");
    }
}
