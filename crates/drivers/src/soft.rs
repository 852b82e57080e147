//! Soft drives in this process.

use std::fmt;
use std::sync::{Arc, Weak};

use qpair_block::keys::Keys;
use qpair_block::{BlockDevice, Error, ErrorKind, Result};
use qpair_nvme::{Controller, ControllerOptions, NvmeAddress, NvmeDevice};
use qpair_pci::{InProcess, TimeoutPolicy};
use qpair_softdev::{MediumOptions, SoftNvme, SoftNvmeOptions};

use crate::Drivers;

/// The keys of the driver, not of the drive.
pub(crate) const KEYS: Keys<NvmeAddress> = Keys {
    of: "softnvme:",
    repeats: false,
    keys: match NvmeAddress::KEYS.keys.split_last() {
        Some((_memory, keys)) => keys,
        None => &[],
    },
};

/// An emulated drive with its driver, in one process.
pub struct SoftDrive {
    /// The drive's only namespace, through the driver.
    pub device: Arc<NvmeDevice>,
    /// The drive itself, for operations that no driver can do: faults, a power cut.
    pub drive: Arc<SoftNvme>,
}

/// Drives that are shared by name, as long as their owners keep them.
pub(crate) type Lent = Vec<(String, Weak<NvmeDevice>)>;

impl Drivers {
    /// Creates an emulated drive: `[wait=...,queue_entries=N,timeout_ms=N,]` followed by the
    /// options of [`SoftNvmeOptions`].
    ///
    /// # Errors
    /// `Invalid` for invalid options; `NoSpace` if there is too little memory; the driver's errors.
    pub fn soft_drive(&self, text: &str) -> Result<SoftDrive> {
        let (controller, drive) = controller(text, self.timeout_policy())?;
        let namespaces = controller.namespaces().len();
        if namespaces != 1 {
            let context =
                format!("softnvme:{text} has {namespaces} namespaces, but can have only one here");
            return Err(Error::new(ErrorKind::Invalid, context)
                .hint("give one; a stripe joins several drives, `qpair softdrive` serves several namespaces"));
        }
        let device = controller.open_default_namespace(None)?;
        Ok(SoftDrive { device: Arc::new(device), drive })
    }

    /// Shares this drive, as long as it lives, with all callers that open a soft drive of that name
    /// with these drivers. Otherwise each opening creates another drive.
    pub fn lend_soft(&self, name: &str, device: &Arc<NvmeDevice>) {
        let mut lent = self.all_lent().lock();
        lent.retain(|(_, device)| device.strong_count() > 0);
        lent.push((name.to_owned(), Arc::downgrade(device)));
    }

    /// Whether a soft drive of that name is shared: [`Drivers::lend_soft`].
    #[must_use]
    pub fn is_lent(&self, driver: &str, name: &str) -> bool {
        driver == "softnvme" && self.lent(name).is_some()
    }

    /// Returns the drive that was shared last under that name.
    pub(crate) fn lent(&self, name: &str) -> Option<Arc<NvmeDevice>> {
        let lent = self.all_lent().lock();
        lent.iter().rev().filter(|(its, _)| its == name).find_map(|(_, device)| device.upgrade())
    }
}

/// Creates a drive and its driver.
pub(crate) fn controller(
    text: &str,
    timeout_policy: TimeoutPolicy,
) -> Result<(Arc<Controller>, Arc<SoftNvme>)> {
    let (driver, options) = options(text)?;
    let driver = ControllerOptions { timeout_policy, ..driver };
    let name = format!("softnvme:{text}");
    let drive = SoftNvme::new(options)?;
    let function = Arc::new(InProcess::new(name, drive.clone()));
    Ok((Controller::open(function, driver)?, drive))
}

impl fmt::Debug for SoftDrive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SoftDrive {}", self.device.info().name)
    }
}

/// Whether the data on a drive is lost when the drive is dropped.
pub(crate) fn is_volatile(text: &str) -> bool {
    let is_file = |options: SoftNvmeOptions| {
        options
            .namespaces
            .iter()
            .any(|namespace| matches!(namespace.medium, MediumOptions::File(_)))
    };
    // A drive whose options are invalid cannot be opened either.
    !options(text).is_ok_and(|(_, drive)| is_file(drive))
}

/// Reads the options of the driver and of the drive.
fn options(text: &str) -> Result<(ControllerOptions, SoftNvmeOptions)> {
    let mut pairs = KEYS.pairs(text)?;
    let mut driver = NvmeAddress::default();
    KEYS.take(&mut pairs, &mut driver)?;
    Ok((driver.options(), SoftNvmeOptions::of_pairs(pairs)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lent_drive_is_had_while_it_lives() {
        let name = "size=1MiB,serial=lent";
        let drivers = Drivers::new();
        let open = || drivers.nvme_device("softnvme", name).unwrap();
        let drive = open();
        assert!(!Arc::ptr_eq(&drive, &open()), "each is another");
        assert!(!drivers.is_lent("softnvme", name));
        drivers.lend_soft(name, &drive);
        assert!(drivers.is_lent("softnvme", name));
        assert!(Arc::ptr_eq(&drive, &open()));
        let other = drivers.nvme_device("softnvme", "size=1MiB,serial=other").unwrap();
        assert!(!Arc::ptr_eq(&drive, &other));
        drop(drive);
        assert!(drivers.lent(name).is_none());
    }

    #[test]
    fn options_are_the_drive_s_or_the_driver_s() {
        let drivers = Drivers::new();
        let drive = drivers.soft_drive("wait=sleep,size=1MiB,timeout_ms=500").unwrap();
        assert_eq!(drive.device.size_bytes(), 1 << 20);
        for (text, said) in [
            ("size=1MiB,sise=2", "sise"),
            ("size=1MiB+1MiB", "2 namespaces"),
            ("size=1MiB,wait=doze", "doze"),
        ] {
            let error = drivers.soft_drive(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
            assert!(error.to_string().contains(said), "{text}: {error}");
        }
    }
}
