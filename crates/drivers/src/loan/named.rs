//! Which drive is meant: an address, or a block device of it.

use std::fs;
use std::path::Path;

use qpair_block::{Error, ErrorKind, Result};
use qpair_pci::sysfs::{Function, PciAddress, Root};

use super::Loan;

/// A namespace of a controller that the kernel's driver has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Of the controller.
    pub address: PciAddress,
    /// Of the namespace.
    pub nsid: u32,
    /// Model and serial number.
    pub about: String,
}

impl Named {
    /// Looks for a drive.
    ///
    /// # Errors
    /// `NotFound`: there is no such thing. `Invalid`: it is no NVMe drive, or a part of one, or one with several namespaces.
    pub fn find(name: &str) -> Result<Self> {
        find(name)
    }

    /// How this program's driver names it: after `nvme:`.
    #[must_use]
    pub fn own_name(&self) -> String {
        format!("{}/ns{}", self.address, self.nsid)
    }
}

fn find(name: &str) -> Result<Named> {
    let root = Root::system();
    if let Some(address) = PciAddress::parse(name) {
        let function = Function::read(&root, address)?;
        return match &function.nodes[..] {
            [node] => named(&function, &node.name),
            [] if !function.is_nvme() => Err(no_drive(name)),
            // Most likely it is on loan, and that is said then.
            [] => Loan::begin(address).and_then(|_| {
                Err(Error::new(ErrorKind::Invalid, format!("{address} has no block device")))
            }),
            several => {
                let names: Vec<String> =
                    several.iter().map(|node| format!("/dev/{}", node.name)).collect();
                let context = format!("{address} has several namespaces");
                Err(Error::new(ErrorKind::Invalid, context)
                    .hint(format!("name one of {}", names.join(", "))))
            }
        };
    }
    let path = fs::canonicalize(name).map_err(|cause| Error::os(cause, name))?;
    let leaf =
        path.strip_prefix("/dev").ok().and_then(Path::to_str).ok_or_else(|| no_drive(name))?;
    for function in Function::all_nvme(&root) {
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
    Error::new(ErrorKind::Invalid, format!("{name} is no NVMe drive of this machine"))
        .hint("qpair nvme list shows them; --user takes others, such as softnvme:size=1GiB")
}

fn named(function: &Function, node: &str) -> Result<Named> {
    let path = format!("/sys/class/block/{node}/nsid");
    let text = fs::read_to_string(&path).map_err(|cause| Error::os(cause, &*path))?;
    let nsid = text.trim().parse().map_err(|_| {
        Error::new(ErrorKind::Unsupported, format!("{path} is no number: {}", text.trim()))
    })?;
    let words = [&function.model, &function.serial];
    let words: Vec<&str> = words.into_iter().flatten().map(String::as_str).collect();
    Ok(Named { address: function.address, nsid, about: words.join(" ") })
}

#[cfg(test)]
mod tests {
    use super::*;

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
