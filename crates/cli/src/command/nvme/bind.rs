//! `qpair nvme bind`.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;

use clap::Args;
use qpair_drivers::reasons;
use qpair_pci::sysfs::{self, Function, PciAddress, Root};

use crate::failure::{Exit, Failure, Result};
use crate::show::output::Output;

/// Take NVMe drives or SAS controllers from the kernel, for this program's drivers
///
/// The command binds them to the kernel's driver vfio-pci, until qpair nvme unbind or the next
/// start of the machine. It refuses drives that are mounted, held, partitioned or used as swap, and
/// SAS controllers with such disks. Data is not touched.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo qpair nvme bind 0000:3b:00.0
  sudo qpair nvme bind 0000:3b:00.0 0000:3c:00.0 --owner \"$USER\"

Undo: sudo qpair nvme unbind 0000:3b:00.0")]
pub(crate) struct Bind {
    /// Addresses, as qpair nvme list and qpair scsi list show them
    #[arg(value_name = "ADDRESS", required = true)]
    addresses: Vec<PciAddress>,

    /// Take drives that are in use; mounted file systems on them are cut off
    #[arg(long)]
    force: bool,

    /// Give this user, by name or number, access to the drives without root
    #[arg(long, value_name = "USER", value_parser = parse_user)]
    owner: Option<u32>,
}

impl Bind {
    pub(crate) fn run(self) -> Result<Exit> {
        let root = Root::system();
        // Check all devices before changing the first.
        for address in &self.addresses {
            let function = controller_at(&root, *address)?;
            let reasons = reasons(&function);
            if !reasons.is_empty() && !self.force {
                let message = format!("{address} is in use: {}", reasons.join("; "));
                return Err(Failure::new(Exit::Failed, message)
                    .hint("unmount it, swapoff, or take the layers above apart; --force takes it all the same"));
            }
        }
        let mut out = Output::new();
        for address in &self.addresses {
            self.bind(&root, *address, &mut out)?;
        }
        out.finish()?;
        for address in &self.addresses {
            let function = Function::read(&root, *address)?;
            for other in function.in_the_way() {
                let driver = other.driver.as_deref().unwrap_or("none");
                eprintln!(
                    "qpair: note: {address} cannot be used yet: {} (driver {driver}) is in its IOMMU group, and would have to leave its driver too",
                    other.address
                );
            }
        }
        Ok(Exit::Done)
    }

    fn bind(&self, root: &Root, address: PciAddress, out: &mut Output) -> Result<()> {
        // The nodes of the drives go with the kernel's driver; their names are noted before.
        qpair_drivers::note_names(root, &Function::read(root, address)?)?;
        let outcome = sysfs::bind(root, address)?;
        let function = Function::read(root, address)?;
        let files = sysfs::access_files(root, &function);
        if let Some(owner) = self.owner {
            files.iter().try_for_each(|file| give(file, owner))?;
        }
        let before = match outcome.before.as_deref() {
            Some(sysfs::VFIO_PCI) => "as before".to_owned(),
            Some(driver) => format!("{driver} had it"),
            None => "no driver had it".to_owned(),
        };
        out.line(format!("{address} is bound to {} ({before})", sysfs::VFIO_PCI))?;
        out.line(match function.is_sas() {
            true => {
                format!("  disks: scsi:{address}/N, and qpair scsi list {address} says which N")
            }
            false => {
                format!(
                    "  device: nvme:{address}/nsN, and qpair nvme identify {address} says which N; its names in /dev lead there too"
                )
            }
        })?;
        if self.owner.is_none() {
            for file in &files {
                let file = file.display();
                out.line(format!("  for others than root: sudo chown USER {file}"))?;
            }
        }
        out.line(format!("  undo: sudo qpair nvme unbind {address}"))
    }
}

pub(super) fn controller_at(root: &Root, address: PciAddress) -> Result<Function> {
    let function = Function::read(root, address)?;
    if function.is_nvme() || function.is_sas() {
        return Ok(function);
    }
    let class = function.class;
    Err(Failure::usage(format!(
        "{address} is neither an NVMe nor a SAS controller (class {class:06x})"
    ))
    .hint("qpair nvme list and qpair scsi list show those that are"))
}

fn give(file: &Path, owner: u32) -> Result<()> {
    chown(file, Some(owner), None)
        .map_err(|error| Failure::io(&error, format!("changing the owner of {}", file.display())))
}

/// Returns a user's number, given as a number or as a name of /etc/passwd.
fn parse_user(text: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    user_in(&users, text)
        .ok_or_else(|| format!("/etc/passwd has no user {text}; give the number: id -u {text}"))
}

fn user_in(users: &str, name: &str) -> Option<u32> {
    let mut fields = users.lines().map(|line| line.split(':'));
    fields.find_map(|mut fields| {
        let is_it = fields.next() == Some(name);
        is_it.then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users() {
        let users = "root:x:0:0:root:/root:/bin/bash\nada:x:1000:1000::/home/ada:/bin/sh\nbad:x\n";
        assert_eq!(user_in(users, "ada"), Some(1000));
        assert_eq!(
            (user_in(users, "bad"), user_in(users, "ad"), user_in("", "ada")),
            (None, None, None)
        );
        assert_eq!(parse_user("12"), Ok(12));
        assert!(parse_user("nobody-of-this-name").unwrap_err().contains("id -u"));
    }
}
