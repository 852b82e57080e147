//! The environment of an experiment: cores, devices, and the interfaces that open on these devices.

use std::ops::Not;
use std::path::PathBuf;

use qpair_block::{DeviceSpec, Error, ErrorKind, Result};
use qpair_drivers::Drivers;
use qpair_kernel::Mode;
use qpair_machine::{Outcome as Tried, try_interfaces};
use serde::{Deserialize, Serialize};

use crate::config::Mix;
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

/// An interface that experiments may compare.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// The name, as it is written after `--interface` and in every result.
    pub name: &'static str,
    /// The papers' name for the interface, with a description.
    pub about: &'static str,
}

/// The kernel interfaces, in the order of the papers. `posix` stands for one thread for each
/// request in flight.
pub const INTERFACES: [Candidate; 7] = [
    Candidate { name: "posix", about: "S4's syncio: pread, a thread for each outstanding request" },
    Candidate { name: "libaio", about: "libaio: io_submit, completions from the mapped ring" },
    Candidate { name: "io_uring", about: "S1's iou: interrupts" },
    Candidate { name: "io_uring+p", about: "S1's iou+p: the submitter polls the driver" },
    Candidate { name: "io_uring+k", about: "S1's iou+k: a kernel thread submits" },
    Candidate { name: "io_uring_cmd", about: "NVMe passthrough" },
    Candidate { name: "io_uring_cmd+p", about: "NVMe passthrough, polled" },
];

/// The name of the user-space driver's series. The papers call it SPDK.
pub const USER_SPACE: &str = "nvme";

/// The name of the series of the user-space SCSI stack.
pub const USER_SCSI: &str = "scsi";

/// Stands for all interfaces of the kernel, over which stores are made in files.
pub const STORE_KERNEL: &str = "kernel";

/// The prefix of the series names of the user-space driver over a soft drive.
pub const SOFT_DRIVE: &str = "softnvme";

/// The size of a single soft drive in MiB: larger than the processor's caches, and small enough to
/// fill quickly.
const SOFT_DRIVE_MIB: usize = 256;

/// The size of each further soft drive in MiB, if there are several.
const SOFT_DRIVES_MIB: usize = 64;

/// libaio as the papers' tools use it: completions come by a separate call.
pub(crate) const LIBAIO_CALLS: &str = "libaio:mapped=off";

/// A system call that does nothing, in place of I/O.
pub(crate) const BARE_CALL: &str = "call";

/// A search for completions where no request is in flight, by the user-space driver on a soft
/// drive.
pub(crate) const EMPTY_POLL: &str = "empty poll";

/// The switch from one thread to another on one core.
pub(crate) const THREAD_SWITCH: &str = "thread switch";

/// The switch from one task of the storage engine to another.
pub const TASK_SWITCH: &str = "task switch";

/// The prefix of points that fio runs: `fio:libaio`.
pub(crate) const FIO: &str = "fio:";

/// The prefix of durable writes to a file system, or to the block device below.
pub(crate) const DURABLE: &str = "durable:";

/// The block device below the file systems.
pub(crate) const DURABLE_RAW: &str = "durable:raw";

/// Prebuilt commands, run by the user-space driver on the first device; with a suffix, on a soft
/// drive.
pub const FLOOR: &str = "floor";
pub const SOFT_FLOOR: &str = "floor:softnvme";

/// Synchronous I/O: the submitting thread makes the call and waits.
pub(crate) const SYNC: &str = "posix:threads=0";

/// `io_uring` without registered buffers, files and rings, for S4's comparison of the savings by
/// registration.
pub const UNREGISTERED: &str = "io_uring:buffers=off,file=off,ring=off";

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

    /// Returns the size of the disk, if the device is on one.
    pub(crate) fn size_bytes(&self) -> Option<u64> {
        self.below.first()?.disks.first()?.size_bytes
    }

    /// Returns the specifier by which `interface` opens the device.
    pub(crate) fn spec_under(&self, interface: &str) -> Result<DeviceSpec> {
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
        let lent = self.own_driver_spec.is_some();
        all.push(InterfaceReport {
            name: USER_SPACE.to_owned(),
            about: "NVMe driven from user space, as SPDK does".to_owned(),
            ran_as: self.own_driver_spec.clone(),
            unavailable: lent.not().then(|| "the kernel drives this device".to_owned()),
            way_out: lent.not().then(|| {
                "for an NVMe drive: --rebind, or qpair nvme bind ADDRESS and --device nvme:ADDRESS; the experiment user-space has the driver \
                 on a soft drive"
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

/// Whether an interface is a kernel interface, with any options.
pub(crate) fn is_kernel_s(interface: &str) -> bool {
    let name = interface.split(':').next().unwrap_or_default();
    INTERFACES.iter().any(|candidate| candidate.name == name)
}

/// Whether an interface is the user-space driver over a soft drive.
pub(crate) fn is_soft(interface: &str) -> bool {
    interface.starts_with(SOFT_DRIVE)
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

    /// Whether stores can be run over an interface: [`STORE_KERNEL`] or [`USER_SPACE`].
    pub(crate) fn stores_over(&self, interface: &str) -> bool {
        self.means.stores.iter().any(|one| one == interface)
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

/// Returns the mode that runs an interface at a depth. `kernel_thread_cpu` is the processor of its
/// kernel thread.
///
/// # Errors
/// `Invalid` if there is no mode of that name, which can happen in a stored report.
pub(crate) fn mode(interface: &str, depth: u32, kernel_thread_cpu: Option<usize>) -> Result<Mode> {
    let mut mode: Mode = match (interface, depth) {
        // The interface is this program's own driver; modes exist only for kernel interfaces.
        (soft, _) if is_soft(soft) => Mode::default(),
        // With one request in flight, the submitter makes the calls itself; with more, each has a
        // thread.
        ("posix", 1) => "posix:threads=0".parse()?,
        ("posix", depth) => format!("posix:threads={}", depth.min(POSIX_THREADS_MAX)).parse()?,
        (other, _) => match other.parse() {
            Ok(mode) => mode,
            // The name is the kind of a device that bypasses the kernel; modes exist only for
            // kernel interfaces.
            Err(_) if !other.contains([':', '+']) => Mode::default(),
            Err(error) => return Err(error),
        },
    };
    if let Some(thread) = &mut mode.submission_thread {
        thread.cpu = kernel_thread_cpu.and_then(|cpu| u16::try_from(cpu).ok());
    }
    Ok(mode)
}

/// The maximum number of threads that are started for `posix` at any depth.
pub(crate) const POSIX_THREADS_MAX: u32 = 128;

/// Returns the soft drive number `drive` for `softnvme:OPTIONS`; `None` for other interfaces.
#[must_use]
pub(crate) fn soft_drive(interface: &str, drive: usize) -> Option<DeviceSpec> {
    let options = interface.strip_prefix(SOFT_DRIVE)?.replacen(':', ",", 1);
    if let Some(sized) = options.strip_prefix(",").filter(|it| it.starts_with("size=")) {
        return Some(DeviceSpec::Driven { driver: SOFT_DRIVE, name: sized.to_owned() });
    }
    // Equal specifiers would name the same drive, so sizes differ.
    let mib = if drive == 0 { SOFT_DRIVE_MIB } else { SOFT_DRIVES_MIB + drive };
    let name = format!("size={mib}MiB{options}");
    Some(DeviceSpec::Driven { driver: SOFT_DRIVE, name })
}

/// Returns the device by which an interface reaches a namespace: `/dev/ng0n1` for `/dev/nvme0n1`
/// with passthrough, otherwise the device itself.
#[must_use]
pub(crate) fn spec_for(spec: &DeviceSpec, interface: &str) -> DeviceSpec {
    let DeviceSpec::File(path) = spec else { return spec.clone() };
    let Some(name) = path.to_str().and_then(|path| path.strip_prefix("/dev/nvme")) else {
        return spec.clone();
    };
    if interface.starts_with("io_uring_cmd") {
        return DeviceSpec::File(PathBuf::from(format!("/dev/ng{name}")));
    }
    spec.clone()
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
    fn every_interface_has_a_mode() {
        for candidate in INTERFACES {
            mode(candidate.name, 16, Some(1)).unwrap();
        }
        mode(UNREGISTERED, 1, None).unwrap();
        assert_eq!(mode("posix", 1, None).unwrap().to_string(), "posix:threads=0");
        assert_eq!(mode("posix", 999, None).unwrap().to_string(), "posix:threads=128");
        assert_eq!(mode("io_uring+k", 4, Some(3)).unwrap().to_string(), "io_uring+k:cpu=3");
        assert_eq!(mode("io_uring", 4, Some(3)).unwrap().to_string(), "io_uring");
        assert_eq!(mode("ram", 4, None).unwrap(), Mode::default());
        assert!(mode("io_uring:nonsense", 4, None).is_err());
    }

    #[test]
    fn passthrough_has_a_device_of_its_own() {
        let spec = DeviceSpec::parse("/dev/nvme0n1").unwrap();
        assert_eq!(spec_for(&spec, "io_uring_cmd+p").to_string(), "/dev/ng0n1");
        assert_eq!(spec_for(&spec, "io_uring+p").to_string(), "/dev/nvme0n1");
        let spec = DeviceSpec::parse("/data/file").unwrap();
        assert_eq!(spec_for(&spec, "io_uring_cmd").to_string(), "/data/file");
    }

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
