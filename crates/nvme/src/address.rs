//! The names of a controller and of a namespace on it.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use qpair_block::keys::{Key, Keys, key, maybe, one_of, split_driver_options};
use qpair_block::{Error, ErrorKind, Result};

use crate::options::{ControllerOptions, WaitMode};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NvmeTarget {
    Pci(String),
    /// A controller that another process serves over vfio-user, named by its socket.
    VfioUser(PathBuf),
}

impl Default for NvmeTarget {
    fn default() -> Self {
        Self::Pci(String::new())
    }
}

/// A controller, the options to drive it with, and a namespace on it.
///
/// The text form is `[KEY=VALUE,...:]ADDRESS[/nsN]`, with [`NvmeAddress::KEYS`] and ADDRESS a PCI
/// address or `vfio-user:PATH`. A last component `nsN` of a socket's path is taken as the
/// namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NvmeAddress {
    /// The way in which channels wait; `None`: the driver's default.
    pub wait: Option<WaitMode>,
    /// The number of entries of each I/O queue; `None`: the driver's default.
    pub queue_entries: Option<u32>,
    /// The time limit of a command in milliseconds; `None`: the driver's default.
    pub timeout_ms: Option<u32>,
    /// Whether only memory of reserved huge pages is shared with the process behind the socket.
    pub huge_pages: bool,
    pub target: NvmeTarget,
    /// The namespace; `None`: the only one on the controller.
    pub nsid: Option<u32>,
}

const HUGE: &str = ",memory=huge";
const FORM: &str = "write [KEY=VALUE,...:]0000:3b:00.0[/nsN], or vfio-user:/path/to.sock[/nsN] in place of the PCI address";
const TIMEOUT_MS: RangeInclusive<u64> =
    ControllerOptions::TIMEOUT_MS_MIN as u64..=ControllerOptions::TIMEOUT_MS_MAX as u64;

fn invalid(context: String) -> Error {
    Error::new(ErrorKind::Invalid, context).hint(FORM)
}

const TABLE: &[Key<NvmeAddress>] = &[
    key(
        "wait",
        "how to wait for completions: poll is the default, auto changes with the load",
        |a| {
            one_of(
                &mut a.wait,
                &[
                    ("poll", Some(WaitMode::Poll)),
                    ("sleep", Some(WaitMode::Sleep)),
                    ("auto", Some(WaitMode::Auto)),
                ],
            )
        },
    ),
    key("queue_entries", "entries of each I/O queue", |a| maybe(&mut a.queue_entries, 2..=65536)),
    key("timeout_ms", "time limit of a command", |a| maybe(&mut a.timeout_ms, TIMEOUT_MS)),
    key("memory", "share huge pages only", |a| one_of(&mut a.huge_pages, &[("huge", true)])),
];

impl NvmeAddress {
    /// The keys of the options. All but the last hold for soft drives too.
    pub const KEYS: Keys<Self> = Keys { of: "nvme:", repeats: true, keys: TABLE };

    /// Parses an address.
    ///
    /// # Errors
    /// `Invalid` if the text is not an address.
    pub fn parse(text: &str) -> Result<Self> {
        let (options, rest) = split_driver_options(text);
        let mut address = Self::KEYS.read(options)?;
        let (rest, is_last) = match rest.strip_suffix(HUGE) {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        let (place, nsid) = split_namespace(rest)?;
        address.nsid = nsid;
        // The option may also stand where it does in the name of a vhost-user disk, after the
        // socket.
        address.huge_pages |= is_last || place.ends_with(HUGE);
        let place = place.strip_suffix(HUGE).unwrap_or(place);
        address.target = match place.strip_prefix("vfio-user:") {
            Some("") => return Err(invalid(format!("'{text}' names no socket"))),
            Some(path) => NvmeTarget::VfioUser(path.into()),
            None => NvmeTarget::Pci(pci_address(place).ok_or_else(|| {
                invalid(format!("'{place}' is neither a PCI address nor vfio-user:PATH"))
            })?),
        };
        if address.huge_pages && matches!(address.target, NvmeTarget::Pci(_)) {
            return Err(invalid(format!("'{text}': memory=huge is for vfio-user")));
        }
        Ok(address)
    }

    #[must_use]
    pub fn options(&self) -> ControllerOptions {
        let defaults = ControllerOptions::default();
        ControllerOptions {
            wait: self.wait.unwrap_or(defaults.wait),
            queue_entries: self.queue_entries,
            timeout_ms: self.timeout_ms.unwrap_or(defaults.timeout_ms),
            ..defaults
        }
    }
}

/// Splits `/nsN` off the end.
fn split_namespace(text: &str) -> Result<(&str, Option<u32>)> {
    let Some((place, digits)) = text.rsplit_once("/ns") else { return Ok((text, None)) };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok((text, None));
    }
    match digits.parse() {
        Ok(nsid @ 1..=0xFFFF_FFFE) => Ok((place, Some(nsid))),
        _ => Err(invalid(format!("'/ns{digits}' is not a namespace"))),
    }
}

/// Normalizes `DDDD:BB:DD.F` or `BB:DD.F` to `DDDD:BB:DD.F` in lower case.
fn pci_address(text: &str) -> Option<String> {
    let hex = |digits: &str, len: usize, most: u32| {
        let number = u32::from_str_radix(digits, 16).ok()?;
        let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        (plain && digits.len() == len && number <= most).then_some(number)
    };
    let parts: Vec<&str> = text.split(':').collect();
    let (domain, bus, device) = match parts[..] {
        [domain, bus, device] => (hex(domain, 4, 0xFFFF)?, bus, device),
        [bus, device] => (0, bus, device),
        _ => return None,
    };
    let (device, function) = device.split_once('.')?;
    let (bus, device, function) = (hex(bus, 2, 0xFF)?, hex(device, 2, 0x1F)?, hex(function, 1, 7)?);
    Some(format!("{domain:04x}:{bus:02x}:{device:02x}.{function}"))
}

impl fmt::Display for NvmeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = Self::KEYS.write(self, &Self::default());
        if !options.is_empty() {
            write!(f, "{options}:")?;
        }
        match &self.target {
            NvmeTarget::Pci(address) => f.write_str(address)?,
            NvmeTarget::VfioUser(path) => write!(f, "vfio-user:{}", path.display())?,
        }
        match self.nsid {
            Some(nsid) => write!(f, "/ns{nsid}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_written() {
        for text in [
            "0000:3b:00.0",
            "0000:3b:00.0/ns3",
            "vfio-user:/run/x.sock",
            "vfio-user:/run/x.sock/ns1",
            "wait=sleep:0000:3b:00.0",
            "wait=auto:0000:3b:00.0/ns1",
            "wait=poll,queue_entries=256,timeout_ms=500:vfio-user:/run/a:b=c/ns7",
            "vfio-user:ns/nsx",
            "memory=huge:vfio-user:/run/x.sock/ns1",
        ] {
            assert_eq!(NvmeAddress::parse(text).unwrap().to_string(), text);
        }
        let behind = NvmeAddress::parse("vfio-user:/run/x.sock,memory=huge/ns1").unwrap();
        assert_eq!(behind.to_string(), "memory=huge:vfio-user:/run/x.sock/ns1");
        let last = NvmeAddress::parse("vfio-user:/run/x.sock/ns1,memory=huge").unwrap();
        assert_eq!(last, behind);
        let short = NvmeAddress::parse("3B:1f.7").unwrap();
        assert_eq!(short.target, NvmeTarget::Pci("0000:3b:1f.7".into()));
        assert_eq!((short.nsid, short.wait), (None, None));
        let sleepy = NvmeAddress::parse("wait=sleep,timeout_ms=50:3b:00.0").unwrap().options();
        assert_eq!((sleepy.wait, sleepy.timeout_ms), (WaitMode::Sleep, 50));
    }

    #[test]
    fn refuses_what_is_none() {
        for text in [
            "",
            "/dev/nvme0n1",
            "0000:3b:20.0",
            "0000:3b:00.8",
            "3b:00",
            "+000:3b:00.0",
            "vfio-user:",
            "0000:3b:00.0/ns0",
            "0000:3b:00.0/ns4294967295",
            "0000:3b:00.0/ns99999999999",
            "wait=doze:0000:3b:00.0",
            "queue_entries=1:0000:3b:00.0",
            "depth=4:0000:3b:00.0",
            "memory=huge:0000:3b:00.0",
            "memory=small:vfio-user:/run/x.sock",
            "wait=poll,:0000:3b:00.0",
        ] {
            let error = NvmeAddress::parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
            assert!(error.way_out().is_some(), "{text}: {error}");
        }
    }
}
