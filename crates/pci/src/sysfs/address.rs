//! The address of a function on the machine's buses.

use std::fmt;
use std::str::FromStr;

use qpair_block::{Error, ErrorKind};

/// Domain, bus, device and function: `0000:3b:00.0`. Addresses are ordered numerically.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PciAddress {
    /// The domain; it has more than 16 bits behind some host adapters (VMD).
    pub domain: u32,
    pub bus: u8,
    /// Device on the bus, below 32.
    pub device: u8,
    /// Function of the device, below 8.
    pub function: u8,
}

impl PciAddress {
    /// Parses `0000:3b:00.0`, or `3b:00.0` for domain 0. Returns `None` if the text is not an
    /// address.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let number = |digits: &str, len_max: usize| {
            let digits_only = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            (digits_only && digits.len() <= len_max)
                .then(|| u32::from_str_radix(digits, 16).ok())
                .flatten()
        };
        let (before, function) = text.rsplit_once('.')?;
        let (before, device) = before.rsplit_once(':')?;
        let (domain, bus) = before.rsplit_once(':').unwrap_or(("0", before));
        Some(Self {
            domain: number(domain, 8)?,
            bus: u8::try_from(number(bus, 2)?).ok()?,
            device: u8::try_from(number(device, 2)?).ok().filter(|device| *device < 32)?,
            function: u8::try_from(number(function, 1)?).ok().filter(|function| *function < 8)?,
        })
    }
}

impl FromStr for PciAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, format!("\"{text}\" is not the address of a PCI function"))
                .hint("they look like 0000:3b:00.0; qpair nvme list shows those of NVMe drives, qpair scsi list those of SAS controllers")
        })
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

#[cfg(test)]
mod tests {
    use super::PciAddress;

    #[test]
    fn addresses_read_as_written() {
        for (text, whole) in [
            ("0000:3b:00.0", "0000:3b:00.0"),
            ("3b:00.0", "0000:3b:00.0"),
            ("1:2:3.4", "0001:02:03.4"),
            ("10000:01:1F.7", "10000:01:1f.7"),
        ] {
            assert_eq!(PciAddress::parse(text).unwrap().to_string(), whole);
        }
        for text in [
            "",
            "3b",
            "3b:00",
            "3b:00.8",
            "3b:20.0",
            "100:00.0",
            "+1:00.0",
            "/dev/nvme0",
            "a:b:c:d.0",
        ] {
            assert_eq!(PciAddress::parse(text), None, "{text}");
        }
        let error = "nvme0".parse::<PciAddress>().unwrap_err();
        assert!(error.to_string().contains("0000:3b:00.0"), "{error}");
    }
}
