//! The environment of an experiment: cores, devices, and the interfaces that open on these devices.

use std::ops::Not;
use std::path::PathBuf;

use qpair_block::{DeviceSpec, Error, ErrorKind, Result};
use qpair_drivers::Drivers;
use qpair_machine::{Outcome as Tried, try_interfaces};
use serde::{Deserialize, Serialize};

use crate::config::Mix;
pub(crate) use crate::interface::*;
use crate::means::Means;
use crate::need::Here;

/// The effort of a study.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// Fewer and shorter runs: about a minute, wide intervals.
    Quick,
    /// About three minutes.
    #[default]
    Usual,
    /// More points, more and longer runs, writes long enough to fill a cache of the drive: half an
    /// hour.
    Full,
}

/// An interface, and whether it can be used on the devices of the study.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InterfaceReport {
    /// The name, as in [`Candidate::name`]. For a device that the kernel does not serve, the kind
    /// of the device.
    pub name: String,
    /// A description of the interface.
    pub about: String,
    /// The mode that was actually used, in the words of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran_as: Option<String>,
    /// The reason why the interface cannot be used; `None` if it can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// The steps that would make the interface usable, if they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way_out: Option<String>,
}

/// A device of the study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// The specifier of the device.
    pub spec: String,
    /// A description in one line.
    pub about: String,
    /// Whether the study made the device and will remove it.
    pub own: bool,
    /// Whether the study may write to the device.
    pub may_write: bool,
    /// The smallest unit of addressing in bytes.
    pub logical_block_bytes: u32,
    /// The disks below the device. Devices on the same disk share its limits.
    pub disks: Vec<String>,
    /// The devices below this one; a list, since a specifier may name several.
    pub below: Vec<qpair_machine::Device>,
    /// The specifier for this program's own driver, which drives the device for the points of that
    /// driver: [`crate::Lent`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_driver_spec: Option<String>,
    /// The bytes at the beginning that are kept for stores; other points use those behind.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reserved_bytes: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

impl Device {
    /// Returns the device of a specifier.
    ///
    /// # Errors
    /// `Invalid` if the text is not a specifier; errors of the kernel for paths in it.
    pub fn of(text: &str, may_write: bool, own: bool) -> Result<Self> {
        let spec = DeviceSpec::parse(text)?;
        let look = |path: &std::path::Path| {
            qpair_machine::Device::read(path).map_err(|error| {
                Error::os(error, format!("reading the state of {}", path.display()))
            })
        };
        let below = spec.paths().into_iter().map(look).collect::<Result<Vec<_>>>()?;
        let mut about: Vec<String> = below.iter().map(qpair_machine::Device::one_line).collect();
        if about.is_empty() {
            about.push("a device made of software, with no drive behind it".to_owned());
        } else if !matches!(spec, DeviceSpec::File(_)) {
            about.push("through layers made of software".to_owned());
        }
        let blocks = below
            .iter()
            .flat_map(|device| &device.disks)
            .filter_map(|disk| disk.queue.logical_block_bytes);
        Ok(Self {
            spec: spec.to_string(),
            about: about.join("; "),
            own,
            may_write,
            logical_block_bytes: blocks.max().unwrap_or(512),
            // The lowest layer is the drive.
            disks: below
                .iter()
                .filter_map(|device| device.disks.last())
                .map(|disk| disk.name.clone())
                .collect(),
            below,
            own_driver_spec: None,
            reserved_bytes: 0,
        })
    }

    /// Returns a note if the device is a file with unwritten parts, since reads of those never
    /// reach the drive.
    #[must_use]
    pub fn unwritten(&self) -> Option<String> {
        let Ok(DeviceSpec::File(path)) = self.spec() else { return None };
        let note = qpair_machine::unwritten_note(&path)?;
        Some(format!("{note}; --prefill fills it first"))
    }

    /// Returns the name of the block device, such as `md0` or `nvme0n1`.
    pub(crate) fn first_disk(&self) -> Option<&str> {
        self.below.first()?.disks.first().map(|disk| disk.name.as_str())
    }

    /// Returns the address of the PCI function of the drive below, if it is known.
    pub(crate) fn function(&self) -> Option<&str> {
        self.below.first()?.disks.last()?.pci_address.as_deref()
    }

    /// Returns the size of the disk, if the device is on one.
    pub(crate) fn size_bytes(&self) -> Option<u64> {
        self.below.first()?.disks.first()?.size_bytes
    }

    /// Returns the specifier by which `interface` opens the device.
    ///
    /// # Errors
    /// `Invalid` if a specifier is malformed, which can happen in a stored report.
    pub fn spec_under(&self, interface: &str) -> Result<DeviceSpec> {
        match &self.own_driver_spec {
            Some(spec) if [USER_SPACE, USER_SCSI].contains(&interface) => DeviceSpec::parse(spec),
            _ => Ok(spec_for(&self.spec()?, interface)),
        }
    }

    /// Whether a hypervisor provides the disk, or the disk is not hardware, such as zram and loop
    /// devices.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        let names = ["vd", "xvd", "zram", "loop", "ram"];
        self.disks.iter().any(|disk| names.iter().any(|name| disk.starts_with(name)))
    }

    /// Parses the specifier.
    ///
    /// # Errors
    /// `Invalid` if it is malformed, which can happen in a stored report.
    pub fn spec(&self) -> Result<DeviceSpec> {
        DeviceSpec::parse(&self.spec)
    }

    /// Tries all interfaces on the device.
    #[must_use]
    pub fn interfaces(&self) -> Vec<InterfaceReport> {
        let about = |name: &str| {
            INTERFACES
                .iter()
                .find(|candidate| candidate.name == name)
                .map_or_else(String::new, |candidate| candidate.about.to_owned())
        };
        let Some(device) = self.below.first() else {
            // A device that the kernel does not serve has one interface only.
            let name = self.spec.split(':').next().unwrap_or_default();
            return vec![InterfaceReport {
                name: name.to_owned(),
                about: "a device that is not behind the kernel".to_owned(),
                ..InterfaceReport::default()
            }];
        };
        let report = |trial: qpair_machine::Trial| {
            let works = trial.outcome == Tried::Works;
            InterfaceReport {
                about: about(&trial.mode),
                name: trial.mode,
                ran_as: works.then(|| trial.detail.clone()),
                unavailable: (!works).then_some(trial.detail),
                way_out: trial.way_out,
            }
        };
        let mut all: Vec<InterfaceReport> =
            try_interfaces(device).modes.into_iter().map(report).collect();
        let own = self.own_driver_spec.as_deref();
        let lent = own.is_some();
        let is_scsi = own.is_some_and(|spec| spec.starts_with("scsi:"));
        let (name, about) = match is_scsi {
            true => (USER_SCSI, "a SCSI disk driven from user space"),
            false => (USER_SPACE, "NVMe driven from user space, as SPDK does"),
        };
        all.push(InterfaceReport {
            name: name.to_owned(),
            about: about.to_owned(),
            ran_as: self.own_driver_spec.clone(),
            unavailable: lent.not().then(|| "the kernel drives this device".to_owned()),
            way_out: lent.not().then(|| {
                "for an NVMe or SAS drive: --rebind, or qpair nvme bind ADDRESS and --device nvme:ADDRESS or scsi:ADDRESS/N; the experiment \
                 user-space has the driver on a soft drive"
                    .to_owned()
            }),
        });
        all
    }
}

/// Returns the interfaces of several devices together. An interface that cannot be used on one of
/// them cannot be used at all.
#[must_use]
pub fn interfaces(devices: &[Device]) -> Vec<InterfaceReport> {
    let mut all: Vec<InterfaceReport> = Vec::new();
    for device in devices {
        for interface in device.interfaces() {
            match all.iter_mut().find(|known| known.name == interface.name) {
                None => all.push(interface),
                Some(known) => {
                    if known.unavailable.is_none() && interface.unavailable.is_some() {
                        *known = interface;
                    }
                }
            }
        }
    }
    // An interface that only some devices know: the other devices are not on that side of the
    // kernel.
    let under = |device: &Device, name: &str| match is_kernel_s(name) {
        true => !device.below.is_empty(),
        false => device.below.is_empty() || device.own_driver_spec.is_some(),
    };
    let count = |name: &str| devices.iter().filter(|device| under(device, name)).count();
    for interface in &mut all {
        if interface.unavailable.is_none() && count(&interface.name) < devices.len() {
            interface.unavailable = Some("not on all of the devices".to_owned());
        }
    }
    all
}

/// The cores, devices and interfaces of a study, and its effort.
#[derive(Clone, Debug)]
pub struct Lab {
    /// Processors this process may run on.
    pub cpus: Vec<usize>,
    /// The drivers of this program.
    pub drivers: Drivers,
    /// The devices, in the order given.
    pub devices: Vec<Device>,
    /// All interfaces, including those that cannot be used.
    pub interfaces: Vec<InterfaceReport>,
    /// The effort of the study.
    pub effort: Effort,
    pub means: Means,
    /// The folder for files that the study makes.
    pub folder: PathBuf,
    /// The requests of the points of Figure 2 of S1.
    pub mix: Mix,
}

impl Lab {
    #[must_use]
    pub fn cores(&self) -> u32 {
        self.cpus.len() as u32
    }

    /// Returns the machine and its devices, as the needs of findings see them, without a stored
    /// study to compare with.
    #[must_use]
    pub fn here(&self) -> Here<'_> {
        Here {
            cores: self.cores(),
            devices: &self.devices,
            interfaces: &self.interfaces,
            means: &self.means,
            boots: None,
        }
    }

    /// Whether drives are rebound from one driver to another during the study.
    pub(crate) fn rebinds(&self) -> bool {
        self.devices.iter().any(|device| device.own_driver_spec.is_some())
    }

    /// Returns the names of the interfaces that can be used.
    pub fn usable(&self) -> impl Iterator<Item = &str> {
        self.interfaces
            .iter()
            .filter(|interface| interface.unavailable.is_none())
            .map(|interface| interface.name.as_str())
    }

    /// Whether an interface can be used.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.usable().any(|usable| usable == name)
    }

    /// Returns the interface for experiments that do not compare interfaces: `io_uring` if it can
    /// be used.
    #[must_use]
    pub fn main_interface(&self) -> Option<&str> {
        ["io_uring", "libaio"]
            .into_iter()
            .find(|name| self.has(name))
            .or_else(|| self.usable().next())
    }

    /// Returns the number of different disks below the devices. A device whose disks are unknown
    /// counts as one.
    #[must_use]
    pub fn disks(&self) -> usize {
        disks(&self.devices)
    }
}

/// Returns the number of different disks below `devices`. A device whose disks are unknown counts
/// as one.
pub(crate) fn disks(devices: &[Device]) -> usize {
    let mut known: Vec<&String> = devices.iter().flat_map(|device| &device.disks).collect();
    let unknown = devices.iter().filter(|device| device.disks.is_empty()).count();
    known.sort_unstable();
    known.dedup();
    known.len() + unknown
}

/// Returns the processors that this process may run on.
///
/// # Errors
/// The errors of the kernel.
pub fn cpus() -> Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None)
        .map_err(|error| Error::os(error.into(), "reading which processors may be used"))?;
    let cpus: Vec<usize> =
        (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect();
    if cpus.is_empty() {
        return Err(Error::new(ErrorKind::Unsupported, "no processor may be used"));
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_were_never_written_are_told() {
        let build = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(build.parent().unwrap()).unwrap();
        let path = folder.path().join("d");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(64 << 20).unwrap();
        let device = || Device::of(path.to_str().unwrap(), false, false).unwrap();
        assert!(device().unwritten().unwrap().contains("100 %"));
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        assert_eq!(device().unwritten(), None);
        assert_eq!(Device::of("ram:size=1MiB", true, false).unwrap().unwritten(), None);
    }

    #[test]
    fn files_of_one_folder_are_on_one_disk() {
        let build = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(build.parent().unwrap()).unwrap();
        let device = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, b"x").unwrap();
            Device::of(path.to_str().unwrap(), false, false).unwrap()
        };
        let mut devices = vec![device("a"), device("b")];
        // In a container the disk may not be visible; the test then has nothing to check.
        if devices[0].disks.is_empty() {
            println!("skipped: the disk of {} does not show", devices[0].spec);
        } else {
            assert_eq!(disks(&devices), 1);
        }
        let file_interfaces = interfaces(&devices);
        assert_eq!(file_interfaces.len(), INTERFACES.len() + 1);
        assert!(file_interfaces.iter().any(|interface| interface.name == "posix"));
        devices.push(Device::of("ram:size=1MiB", true, false).unwrap());
        assert!(interfaces(&devices).iter().all(|interface| interface.unavailable.is_some()));
        let ram = interfaces(&devices[2..]);
        assert!(ram[0].name == "ram" && ram[0].unavailable.is_none() && ram.len() == 1);
        assert!(Device::of("/no/such/file", false, false).is_err());
    }
}
