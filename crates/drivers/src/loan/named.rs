//! Finds a drive by an address, or by one of its block devices.

use std::fs;
use std::path::Path;

use qpair_block::{DeviceSpec, Error, ErrorKind, Result};
use qpair_pci::sysfs::{Function, PciAddress, Root};

use super::Loan;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The namespace with this number, of an NVMe controller.
    Namespace(u32),
    /// The drive with this SAS address, behind a SAS controller.
    Sas(u64),
}

impl Unit {
    /// Whether a block device belongs to the unit.
    pub(super) fn is_at(self, node: &str) -> bool {
        Self::of(node).is_ok_and(|unit| unit == self)
    }

    pub(super) fn of(node: &str) -> Result<Self> {
        Self::of_at(&Root::system(), node)
    }

    pub(super) fn of_at(root: &Root, node: &str) -> Result<Self> {
        let read = |leaf: &str| {
            let path = format!("/sys/class/block/{node}/{leaf}");
            let text = fs::read_to_string(root.path(&path));
            let text = text.map_err(|cause| Error::os(cause, &*path))?;
            Ok((path, text.trim().to_owned()))
        };
        let (path, unit) = match read("nsid") {
            Ok((path, text)) => (path, text.parse().ok().map(Self::Namespace)),
            Err(_) => {
                // The form in which Linux's SAS drivers report it.
                let (path, text) = read("device/sas_address")?;
                let digits = text.strip_prefix("0x").unwrap_or(&text);
                (path, u64::from_str_radix(digits, 16).ok().map(Self::Sas))
            }
        };
        unit.ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, format!("{path} has an unknown content"))
        })
    }
}

/// A drive of a controller that the kernel's driver has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub address: PciAddress,
    pub unit: Unit,
    /// Model and serial number.
    pub about: String,
}

impl Named {
    /// Finds a drive.
    ///
    /// # Errors
    /// `NotFound`: there is no such device. `Invalid`: it is not an NVMe or SAS drive, or it is a
    /// part of one, or a controller with several drives.
    pub fn find(name: &str) -> Result<Self> {
        find(name)
    }

    /// Returns the name of the drive under this program's own driver: `nvme:0000:3b:00.0/ns1`, or
    /// `scsi:0000:3b:00.0/sas.5000c50012345679`.
    #[must_use]
    pub fn own_spec(&self) -> DeviceSpec {
        let address = self.address;
        match self.unit {
            Unit::Namespace(nsid) => {
                DeviceSpec::Driven { driver: "nvme", name: format!("{address}/ns{nsid}") }
            }
            Unit::Sas(port) => {
                DeviceSpec::Driven { driver: "scsi", name: format!("{address}/sas.{port:016x}") }
            }
        }
    }
}

fn find(name: &str) -> Result<Named> {
    let root = Root::system();
    if let Some(address) = PciAddress::parse(name) {
        let function = Function::read(&root, address)?;
        return match &function.nodes[..] {
            [node] => named(&function, &node.name),
            [] if !function.is_nvme() && !function.is_sas() => Err(no_drive(name)),
            // Most likely the drive is on loan, which this call reports.
            [] => Loan::begin(address).and_then(|_| {
                Err(Error::new(ErrorKind::Invalid, format!("{address} has no block device")))
            }),
            several => {
                let names: Vec<String> =
                    several.iter().map(|node| format!("/dev/{}", node.name)).collect();
                let context = format!("{address} has several drives");
                Err(Error::new(ErrorKind::Invalid, context)
                    .hint(format!("name one of {}", names.join(", "))))
            }
        };
    }
    let path = fs::canonicalize(name).map_err(|cause| Error::os(cause, name))?;
    let leaf =
        path.strip_prefix("/dev").ok().and_then(Path::to_str).ok_or_else(|| no_drive(name))?;
    for function in Function::all_nvme(&root).into_iter().chain(Function::all_sas(&root)) {
        for node in &function.nodes {
            if node.name == leaf {
                return named(&function, leaf);
            }
            if node.partitions.iter().any(|part| part == leaf) {
                return Err(Error::new(ErrorKind::Invalid, format!("{name} is a partition"))
                    .hint(format!("the floor is that of a whole drive: /dev/{}", node.name)));
            }
        }
    }
    Err(no_drive(name))
}

fn no_drive(name: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("{name} is neither an NVMe drive nor a SAS drive of this machine"))
        .hint("qpair nvme list and qpair scsi list show them; --user takes others, such as softnvme:size=1GiB")
}

fn named(function: &Function, node: &str) -> Result<Named> {
    let unit = Unit::of(node)?;
    // For a SAS drive, the block device has the values; for an NVMe drive, the controller has them.
    let told = |leaf: &str| {
        let text = fs::read_to_string(format!("/sys/class/block/{node}/device/{leaf}")).ok();
        text.map(|text| text.trim().to_owned())
    };
    let words = match unit {
        Unit::Namespace(_) => [function.model.clone(), function.serial.clone()],
        Unit::Sas(_) => [told("vendor"), told("model")],
    };
    let words: Vec<String> = words.into_iter().flatten().collect();
    Ok(Named { address: function.address, unit, about: words.join(" ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_specs_are_read_back() {
        let address = PciAddress::parse("0000:3b:00.0").unwrap();
        let of = |unit| Named { address, unit, about: String::new() }.own_spec();
        for (unit, text) in [
            (Unit::Namespace(2), "nvme:0000:3b:00.0/ns2"),
            (Unit::Sas(0x0c50_0123), "scsi:0000:3b:00.0/sas.000000000c500123"),
        ] {
            assert_eq!(of(unit).to_string(), text);
            assert_eq!(DeviceSpec::parse(text).unwrap(), of(unit));
        }
    }

    #[test]
    fn what_is_no_drive() {
        for (name, kind) in [
            ("/dev/null", ErrorKind::Invalid),
            ("/dev/no-such-drive", ErrorKind::NotFound),
            ("Cargo.toml", ErrorKind::Invalid),
            ("fffe:00:00.0", ErrorKind::NotFound),
        ] {
            assert_eq!(find(name).unwrap_err().kind(), kind, "{name}");
        }
    }
}
