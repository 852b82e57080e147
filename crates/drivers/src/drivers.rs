//! The drivers of a program: their timeout policy, and the devices that they have open.

use qpair_block::locks::Mutex;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use qpair_block::{BlockDevice, DeviceSpec, Error, ErrorKind, Opener, Result, SharedWay};
use qpair_nvme::{Controller, NvmeAddress, NvmeDevice};
use qpair_pci::TimeoutPolicy;
use qpair_pci::sysfs::Root;

use crate::adaptive::Adaptive;
use crate::{nbd, nvme, nvme_tcp, scsi, soft, vhost_user};

/// The drivers of a program and the devices that they have open.
///
/// A PCI function has one driver in a process, however many of its namespaces or units are in use.
/// Names that lead to one NVMe controller or SCSI host share it if one `Drivers` opens them. A
/// program should therefore create one value and give clones of it to all code that opens devices;
/// a clone is a handle to the same drivers. Two values that were created separately do not know
/// each other: if the first has a function open, opening it with the second fails with `Busy`.
///
/// Devices keep the drivers that they need, and may outlive the `Drivers` that opened them.
///
/// ```
/// use qpair_drivers::Drivers;
///
/// let drivers = Drivers::new();
/// let first = drivers.open("scsi", "soft:size=1MiB,disks=2/0")?;
/// let second = drivers.open("scsi", "soft:size=1MiB,disks=2/1")?; // on the same host
/// assert_eq!(first.size_bytes(), second.size_bytes());
/// # Ok::<(), qpair_block::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Drivers(Arc<State>);

#[derive(Default)]
struct State {
    timeout_policy: TimeoutPolicy,
    controllers: Mutex<nvme::Controllers>,
    scsi: Mutex<scsi::Open>,
    lent: Mutex<soft::Lent>,
}

impl Drivers {
    /// Makes drivers without open devices. They wait for a silent device as long as its time-outs
    /// say.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes drivers without open devices. While a driver waits for a silent device, it asks
    /// `timeout_policy` whether to continue.
    #[must_use]
    pub fn with_timeout_policy(timeout_policy: TimeoutPolicy) -> Self {
        Self(Arc::new(State { timeout_policy, ..State::default() }))
    }

    /// Opens a device by its driver's name and its own.
    ///
    /// # Errors
    /// `Invalid` for a name that the driver cannot parse; `Unsupported` for an unknown driver; the
    /// driver's errors.
    pub fn open(&self, driver: &str, name: &str) -> Result<Arc<dyn BlockDevice>> {
        match driver {
            "scsi" => Ok(self.scsi_disk(name)?),
            "vhost-user" => vhost_user::open(name, self.timeout_policy()),
            "nbd" => nbd::open(name),
            _ => match nvme_tcp::split(name).filter(|_| driver == "nvme") {
                Some(split) => nvme_tcp::open(split),
                None => Ok(Adaptive::over(self.nvme_device(driver, name)?)),
            },
        }
    }

    /// Opens a device as [`Drivers::open`] does, if it is one of the NVMe driver.
    ///
    /// # Errors
    /// As [`Drivers::open`]; `Unsupported` for a device of another driver.
    pub fn nvme_device(&self, driver: &str, name: &str) -> Result<Arc<NvmeDevice>> {
        match driver {
            "nvme" => self.namespace(name),
            "softnvme" => match self.lent(name) {
                Some(device) => Ok(device),
                None => Ok(self.soft_drive(name)?.device),
            },
            "scsi" | "vhost-user" | "nbd" => {
                let context = format!("{driver} is not a device of the NVMe driver");
                Err(Error::new(ErrorKind::Unsupported, context))
            }
            _ => Err(Error::new(
                ErrorKind::Unsupported,
                format!("this program has no driver {driver}"),
            )),
        }
    }

    /// Returns the NVMe controller with the device of that name. For a soft drive, that is a new
    /// controller.
    ///
    /// # Errors
    /// As [`Drivers::open`].
    pub fn controller_named(&self, driver: &str, name: &str) -> Result<Arc<Controller>> {
        match driver {
            "softnvme" => Ok(soft::controller(name, self.timeout_policy())?.0),
            _ => self.controller(&NvmeAddress::parse(name)?),
        }
    }

    /// Returns an [`Opener`] for all devices: `files` opens files, and these drivers open other
    /// devices.
    pub fn opening<F>(&self, files: F) -> Opening<'_, F>
    where
        F: Fn(&Path) -> Result<Arc<dyn BlockDevice>>,
    {
        Opening { drivers: self, files }
    }

    /// Replaces, in a specifier that `auto` opens, each file that is the name of a drive which the
    /// kernel has lent. Returns the specifier to open, and a sentence for each such drive.
    ///
    /// A file that exists stays as it is, so a drive that the kernel has is never taken.
    ///
    /// # Errors
    /// `Invalid` if a name is that of several lent drives, `NotFound` for the address of a
    /// controller that is not lent.
    pub fn find_lent(&self, spec: &DeviceSpec) -> Result<(DeviceSpec, Vec<String>)> {
        crate::loan::with_lent(&Root::system(), spec)
    }

    pub(crate) fn timeout_policy(&self) -> TimeoutPolicy {
        self.0.timeout_policy.clone()
    }

    pub(crate) fn controllers(&self) -> &Mutex<nvme::Controllers> {
        &self.0.controllers
    }

    pub(crate) fn scsi(&self) -> &Mutex<scsi::Open> {
        &self.0.scsi
    }

    pub(crate) fn all_lent(&self) -> &Mutex<soft::Lent> {
        &self.0.lent
    }
}

impl fmt::Debug for Drivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drivers")
            .field("timeout_policy", &self.0.timeout_policy)
            .finish_non_exhaustive()
    }
}

/// An [`Opener`] of files, and of devices that [`Drivers`] drive. Made by [`Drivers::opening`].
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a, F> {
    drivers: &'a Drivers,
    files: F,
}

impl<F: Fn(&Path) -> Result<Arc<dyn BlockDevice>>> Opener for Opening<'_, F> {
    fn open_file(&self, path: &Path) -> Result<Arc<dyn BlockDevice>> {
        (self.files)(path)
    }

    fn open_shared(
        &self,
        way: SharedWay,
        inner: Arc<dyn BlockDevice>,
    ) -> Result<Arc<dyn BlockDevice>> {
        qpair_baselines::share(way, inner)
    }

    fn open_driven(&self, driver: &str, name: &str) -> Result<Arc<dyn BlockDevice>> {
        self.drivers.open(driver, name)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;

    #[test]
    fn drivers_made_apart_know_nothing_of_each_other() {
        let (one, other) = (Drivers::new(), Drivers::new());
        // A soft drive that is shared by name.
        let name = "size=1MiB,serial=apart";
        let drive = one.nvme_device("softnvme", name).unwrap();
        one.lend_soft(name, &drive);
        assert!(Arc::ptr_eq(&drive, &one.clone().nvme_device("softnvme", name).unwrap()));
        assert!(!Arc::ptr_eq(&drive, &other.nvme_device("softnvme", name).unwrap()));
        // A disk behind a soft host.
        let name = "soft:size=1MiB,serial=apart/0";
        let disk = one.scsi_disk(name).unwrap();
        assert!(Arc::ptr_eq(&disk, &one.clone().scsi_disk(name).unwrap()));
        let others = other.scsi_disk(name).unwrap();
        assert!(!Arc::ptr_eq(&disk, &others));
        assert!(!Arc::ptr_eq(disk.host(), others.host()));
    }

    #[test]
    fn devices_outlive_their_drivers() {
        let drivers = Drivers::new();
        let disk = drivers.open("scsi", "soft:size=1MiB/0").unwrap();
        drop(drivers);
        assert_eq!(disk.size_bytes(), 1 << 20);
        assert!(disk.open_channel(&Default::default()).is_ok());
    }

    #[test]
    fn each_has_its_timeout_policy() {
        let ends = Drivers::with_timeout_policy(TimeoutPolicy::new(|_| ControlFlow::Break(())));
        assert_eq!(ends.timeout_policy(), ends.clone().timeout_policy());
        assert_ne!(ends.timeout_policy(), Drivers::new().timeout_policy());
        assert_eq!(Drivers::new().timeout_policy(), TimeoutPolicy::default());
    }

    #[test]
    fn other_drivers_are_named() {
        let drivers = Drivers::new();
        let kind = |driver| drivers.nvme_device(driver, "x").unwrap_err().kind();
        assert_eq!([kind("scsi"), kind("tape")], [ErrorKind::Unsupported; 2]);
    }
}
