//! SCSI disks by address.
//!
//! ```text
//! scsi:[KEY=VALUE,...:]HOST/UNIT
//! HOST   soft, soft:disks=2,size=1GiB,...    a host bus adapter made of software, in this process
//!        vfio-user:/run/x.sock               one served by another process
//!        0000:3b:00.0                        one bound to vfio-pci
//! UNIT   0, or 0.2                           target 0; its unit 2
//!        sas.5000c50012345679, or with .2    the target whose port has that address; its unit 2
//!        naa.5000c50012345678                the unit of that name; so does wwn-0x5000c50012345678
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use qpair_block::keys::{Key, Keys, key, one_of, plain, split_driver_options};
use qpair_block::{Error, ErrorKind, Result};
use qpair_mpt3sas::Mpt3sasDriver;
use qpair_nvme::NvmeTarget;
use qpair_pci::sysfs::PciAddress;
use qpair_pci::{InProcess, PciFunction};
use qpair_scsi::host::{Host, Target, Unit};
use qpair_scsi::{Registry, ScsiDisk, ScsiOptions, scan, units};
use qpair_scsi_wire::luns::Lun;
use qpair_scsi_wire::vpd::UnitName;
use qpair_softdev::{SoftHba, SoftHbaOptions};
use qpair_virtio_scsi::VirtioScsiDriver;

use crate::Drivers;

/// The name of the emulated host.
const SOFT: &str = "soft";

/// The open hosts and disks. A host has one driver, and a disk is one device. They are closed with
/// the last device that uses them.
pub(crate) struct Open {
    drivers: Registry<Arc<dyn PciFunction>>,
    hosts: HashMap<String, Weak<dyn Host>>,
    /// Open disks by the names of their units.
    disks: HashMap<String, (Weak<ScsiDisk>, String)>,
}

impl Default for Open {
    fn default() -> Self {
        let mut drivers = Registry::new();
        drivers.add_driver(Mpt3sasDriver::default());
        drivers.add_driver(VirtioScsiDriver::default());
        Self { drivers, hosts: HashMap::new(), disks: HashMap::new() }
    }
}

#[derive(Debug, PartialEq)]
struct Address<'a> {
    options: ScsiOptions,
    host: &'a str,
    unit: &'a str,
}

fn invalid(name: &str, why: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("scsi:{name}: {why}"))
        .hint("write scsi:soft/0, scsi:vfio-user:PATH/0 or scsi:0000:3b:00.0/0")
}

impl<'a> Address<'a> {
    fn parse(name: &'a str) -> Result<Self> {
        let (options, rest) = split_options(name)?;
        let Some((host, unit)) = rest.rsplit_once('/') else {
            return Err(invalid(name, "it names no unit"));
        };
        if host.is_empty() || unit.is_empty() {
            return Err(invalid(name, "it names no host, or no unit"));
        }
        Ok(Self { options, host, unit })
    }

    /// Returns the unit, if it is given by numbers.
    fn numbers(&self) -> Option<Unit> {
        let (target, lun) = self.unit.split_once('.').unwrap_or((self.unit, "0"));
        Some(Unit { target: target.parse().ok()?, lun: Lun::of(lun.parse().ok()?)? })
    }

    /// Returns the unit, if it is given by the address of a target's port.
    fn by_port(&self, host: &dyn Host, name: &str) -> Result<Option<Unit>> {
        let Some(rest) = self.unit.strip_prefix("sas.") else { return Ok(None) };
        let (port, lun) = rest.split_once('.').unwrap_or((rest, "0"));
        let lun = lun.parse().ok().and_then(Lun::of);
        let lun = lun.ok_or_else(|| invalid(name, "the unit after the port is not a number"))?;
        let wanted = format!("sas.{}", port.to_ascii_lowercase());
        let target = target_called(host, &wanted, |target| target.address.clone(), name)?;
        Ok(Some(Unit { target, lun }))
    }

    /// Whether the address means the unit of that name.
    fn names(&self, name: &UnitName) -> bool {
        let name = name.to_string();
        let world_wide = self.unit.strip_prefix("wwn-");
        let hex = world_wide.map(|text| text.trim_start_matches("0x").to_ascii_lowercase());
        hex.map_or(name == self.unit, |hex| name.split_once('.').is_some_and(|(_, its)| its == hex))
    }
}

const TABLE: &[Key<ScsiOptions>] = &[
    key("wait", "how to wait for completions", |o| {
        one_of(&mut o.sleeps, &[("poll", false), ("sleep", true)])
    }),
    key("timeout_ms", "time limit of a command", |o| plain(&mut o.timeout_ms, MS)),
    key("task_timeout_ms", "time limit of recovery steps", |o| plain(&mut o.task_timeout_ms, MS)),
];

/// The keys of the options.
pub(crate) const KEYS: Keys<ScsiOptions> = Keys { of: "scsi:", repeats: true, keys: TABLE };

const MS: &str = "whole milliseconds";

/// Splits off the options before the host.
fn split_options(name: &str) -> Result<(ScsiOptions, &str)> {
    let (head, rest) = split_driver_options(name);
    Ok((KEYS.read(head)?, rest))
}

impl Drivers {
    /// Returns the disk with that name: an open one, or a new one.
    ///
    /// # Errors
    /// `Invalid` for an invalid name; `Busy` if the disk is open by another path; `NotFound`; the
    /// driver's errors.
    pub fn scsi_disk(&self, name: &str) -> Result<Arc<ScsiDisk>> {
        let address = Address::parse(name)?;
        let mut open = self.scsi().lock();
        open.disks.retain(|_, (disk, _)| disk.strong_count() > 0);
        let host = open.host(address.host, self)?;
        let place = format!("{}/{}", address.host, address.unit);
        let unit = match address.numbers() {
            Some(unit) => {
                let wanted = unit.target.to_string();
                target_called(&*host, &wanted, |target| target.number.to_string(), name)?;
                Some(unit)
            }
            None => address.by_port(&*host, name)?,
        };
        let disk = match unit {
            Some(unit) => ScsiDisk::open(host, unit, format!("scsi:{name}"), address.options)?,
            None => find_named(&host, &address, name)?,
        };
        let key = disk.facts().name.to_string();
        if let Some((known, its)) = open.disks.get(&key)
            && let Some(known) = known.upgrade()
        {
            let is_same = Arc::ptr_eq(known.host(), disk.host()) && known.unit() == disk.unit();
            if !is_same {
                let context = format!("scsi:{name}: {key} is open as scsi:{its}");
                return Err(Error::new(ErrorKind::Busy, context).hint(
                    "two paths to a disk are not used together here: use the one that is open",
                ));
            }
            return Ok(known);
        }
        let disk = Arc::new(disk);
        open.disks.insert(key, (Arc::downgrade(&disk), place));
        Ok(disk)
    }

    /// Returns the host with that name: an open one, or a new one.
    ///
    /// # Errors
    /// `Invalid` for an invalid name; the errors of the function and the driver.
    pub fn scsi_host(&self, name: &str) -> Result<Arc<dyn Host>> {
        self.scsi().lock().host(name, self)
    }

    /// Opens the host at `[OPTIONS:]HOST`, which is a disk's name without its unit. Returns the
    /// same host if it is already open.
    ///
    /// # Errors
    /// As [`Drivers::scsi_host`].
    pub fn scsi_controller(&self, address: &str) -> Result<ScsiController> {
        let (options, host) = split_options(address)?;
        if host.is_empty() {
            return Err(invalid(address, "it names no host"));
        }
        let (drivers, host) = (self.clone(), self.scsi_host(host)?);
        Ok(ScsiController { drivers, address: address.to_owned(), options, host })
    }
}

/// Returns the number of the target with this name, if the target can be used.
fn target_called(
    host: &dyn Host,
    wanted: &str,
    called: impl Fn(&Target) -> String,
    name: &str,
) -> Result<u32> {
    let targets = host.scan()?;
    let Some(target) = targets.iter().find(|target| called(target) == wanted) else {
        let all: Vec<String> = targets.iter().map(called).collect();
        let all = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
        let context = format!("scsi:{name}: there is no target {wanted}");
        return Err(Error::new(ErrorKind::NotFound, context).hint(format!("there are: {all}")));
    };
    match &target.refused {
        Some(why) => Err(Error::new(ErrorKind::Unsupported, format!("scsi:{name}: {why}"))),
        None => Ok(target.number),
    }
}

fn find_named(host: &Arc<dyn Host>, address: &Address<'_>, name: &str) -> Result<ScsiDisk> {
    let found = scan(host, address.options, |_, _| format!("scsi:{name}"))?;
    found
        .into_iter()
        .filter_map(|found| found.disk.ok())
        .find(|disk| address.names(&disk.facts().name))
        .ok_or_else(|| {
            let context = format!("scsi:{name}: there is no unit {}", address.unit);
            Error::new(ErrorKind::NotFound, context)
                .hint("units are numbers (0, or 0.2 for unit 2 of target 0), ports (sas.5000c50012345679) or names (naa.5000c50012345678, wwn-0x5000c50012345678)")
        })
}

/// A SCSI host, opened by its address. Its disks are opened by target and unit.
#[derive(Debug)]
pub struct ScsiController {
    drivers: Drivers,
    address: String,
    options: ScsiOptions,
    host: Arc<dyn Host>,
}

impl ScsiController {
    #[must_use]
    pub fn host(&self) -> &Arc<dyn Host> {
        &self.host
    }

    /// Returns the present units, each with the reason why it cannot be used, if there is one. Asks
    /// each target for its list of units.
    ///
    /// # Errors
    /// The errors of the host's scan.
    pub fn units(&self) -> Result<Vec<(Unit, Option<String>)>> {
        let mut all = Vec::new();
        for target in self.host.scan()? {
            let unit = |lun| Unit { target: target.number, lun };
            if target.refused.is_some() {
                all.push((unit(Lun::default()), target.refused));
                continue;
            }
            match units(&self.host, target.number, self.options) {
                Ok(found) => all.extend(found.into_iter().map(|lun| (unit(lun), None))),
                // The target was removed after the scan, or does not answer.
                Err(error) => all.push((unit(Lun::default()), Some(error.to_string()))),
            }
        }
        Ok(all)
    }

    /// Opens a unit.
    ///
    /// # Errors
    /// As [`Drivers::scsi_disk`].
    pub fn open(&self, unit: Unit) -> Result<Arc<ScsiDisk>> {
        let lun = unit.lun.number().unwrap_or(u16::MAX);
        self.drivers.scsi_disk(&format!("{}/{}.{lun}", self.address, unit.target))
    }
}

impl Open {
    fn host(&mut self, name: &str, drivers: &Drivers) -> Result<Arc<dyn Host>> {
        self.hosts.retain(|_, host| host.strong_count() > 0);
        if let Some(host) = self.hosts.get(name).and_then(Weak::upgrade) {
            return Ok(host);
        }
        let Some(host) = self.drivers.add_device(function(name, drivers)?) else {
            // No driver will be added here later.
            self.drivers.forget_waiting();
            let drivers: Vec<&str> = self.drivers.drivers().collect();
            let context = format!("scsi:{name} is not a SCSI controller that this program drives");
            return Err(Error::new(ErrorKind::Unsupported, context).hint(format!(
                "the drivers are {}; NVMe drives are nvme:NAME",
                drivers.join(", ")
            )));
        };
        let host = host?;
        self.hosts.insert(name.to_owned(), Arc::downgrade(&host));
        Ok(host)
    }
}

fn function(name: &str, drivers: &Drivers) -> Result<Arc<dyn PciFunction>> {
    let (head, rest) = name.split_once(':').unwrap_or((name, ""));
    match head {
        SOFT => {
            let card = SoftHba::new(SoftHbaOptions::parse(rest)?)?;
            Ok(Arc::new(InProcess::new(format!("scsi:{name}"), card)))
        }
        "vfio-user" => drivers.function(&NvmeTarget::VfioUser(rest.into()), false),
        _ => match PciAddress::parse(name) {
            Some(address) => drivers.function(&NvmeTarget::Pci(address.to_string()), false),
            None => Err(invalid(name, "it names a host that does not exist")),
        },
    }
}

/// Whether the data on a disk is lost when the program ends.
pub(crate) fn is_volatile(name: &str) -> bool {
    Address::parse(name).is_ok_and(|address| address.host.split(':').next() == Some(SOFT))
}

#[cfg(test)]
mod tests {
    use qpair_block::BlockDevice;

    use super::*;

    #[test]
    fn names_are_read() {
        let address = Address::parse("vfio-user:/run/a/b.sock/3.2").unwrap();
        assert_eq!((address.host, address.unit), ("vfio-user:/run/a/b.sock", "3.2"));
        assert_eq!(address.numbers(), Some(Unit { target: 3, lun: Lun::of(2).unwrap() }));
        let address = Address::parse("timeout_ms=500:soft:size=1MiB/0").unwrap();
        assert_eq!((address.host, address.options.timeout_ms), ("soft:size=1MiB", 500));
        assert!(Address::parse("wait=sleep:soft/0").unwrap().options.sleeps);
        assert_eq!(Address::parse("soft/naa.5").unwrap().numbers(), None);
        assert_eq!(Drivers::new().scsi_disk("hard/0").unwrap_err().kind(), ErrorKind::Invalid);
        for name in
            ["soft", "/0", "soft/", "timeout_ms=x:soft/0", "tea=1:soft/0", "wait=not:soft/0"]
        {
            assert_eq!(Address::parse(name).unwrap_err().kind(), ErrorKind::Invalid, "{name}");
        }
    }

    #[test]
    fn a_disk_is_one_device() {
        let drivers = Drivers::new();
        let open = |name: &str| drivers.scsi_disk(name);
        let host = "soft:size=1MiB,disks=2,serial=one";
        let first = open(&format!("{host}/0")).unwrap();
        assert_eq!(first.size_bytes(), 1 << 20);
        assert!(Arc::ptr_eq(&first, &open(&format!("{host}/0")).unwrap()), "one disk");
        assert!(!Arc::ptr_eq(&first, &open(&format!("{host}/1")).unwrap()));
        // Another controller with a path to the same disk.
        let error = open(&format!("{host},queues=8/0")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        assert!(error.to_string().contains(&format!("scsi:{host}/0")), "{error}");
        let error = open(&format!("{host}/7")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(is_volatile("soft/0") && !is_volatile("vfio-user:/x/0"));
    }

    #[test]
    fn a_unit_by_its_name() {
        let drivers = Drivers::new();
        let open = |name: &str| drivers.scsi_disk(name);
        let disk = open("soft:size=1MiB,serial=two/0").unwrap();
        let found = scan(
            &drivers.scsi_host("soft:size=1MiB,serial=two").unwrap(),
            ScsiOptions::default(),
            |target, lun| format!("{target}.{lun}"),
        );
        let found = found.unwrap();
        let name = found[0].disk.as_ref().unwrap().facts().name.to_string();
        let named = open(&format!("soft:size=1MiB,serial=two/{name}")).unwrap();
        assert!(Arc::ptr_eq(&disk, &named));
        let digits = name.trim_start_matches("naa.").to_uppercase();
        let port =
            drivers.scsi_host("soft:size=1MiB,serial=two").unwrap().scan().unwrap().remove(0);
        for unit in [format!("wwn-0x{digits}"), port.address.clone(), format!("{}.0", port.address)]
        {
            let other = open(&format!("soft:size=1MiB,serial=two/{unit}")).unwrap();
            assert!(Arc::ptr_eq(&disk, &other), "{unit}");
        }
        let error = open("soft:size=1MiB,serial=two/sas.1").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.way_out().is_some_and(|way| way.contains(&port.address)), "{error}");
        let error = open("soft:size=1MiB,serial=two/wwn-0x1").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let error = open("soft:size=1MiB,serial=two/naa.1").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}
