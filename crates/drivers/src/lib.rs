//! Devices that this program drives itself, by name: what [`qpair_block::DRIVERS`] are.
//!
//! ```text
//! nvme:[wait=poll|sleep,queue_entries=N,timeout_ms=N:]0000:3b:00.0[/nsN]      bound to vfio-pci
//! nvme:[...,memory=huge:]vfio-user:/run/x.sock[/nsN]                            served by another process
//! softnvme:[wait=...,]size=1GiB,profile=tlc,...                                 made of software, in this process
//! scsi:HOST/UNIT                                      a disk behind a SAS controller or virtio-scsi; HOST: soft, vfio-user:PATH, 0000:3b:00.0
//! vhost-user:[timeout_ms=N,reconnect_ms=N,memory=huge:]PATH     a disk that another process serves by vhost-user-blk
//! ```
//!
//! [`Loan`]: a drive, which [`Named`] finds, that is taken from the kernel for a while, and given back whatever happens.
//!
//! Here the drivers meet the ways to a device. The block layer below and what uses devices above know neither.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod loan;
mod nvme;
mod patience;
mod scsi;
mod soft;
mod vhost_user;

use std::path::Path;
use std::sync::Arc;

pub use loan::{Loan, Named, Unit, reasons, recover, uses};
pub use nvme::{controller, function};
pub use patience::set_patience;
use qpair_block::{BlockDevice, Error, ErrorKind, Opener, Result};
use qpair_nvme::{Controller, NvmeAddress, NvmeDevice};
pub use qpair_pci::{Patience, Waiting};
pub use scsi::{ScsiController, scsi_disk, scsi_host};
pub use soft::{SoftDrive, lend_soft};

/// Opens a device by its driver's name and its own.
///
/// # Errors
/// `Invalid` for a name that the driver cannot read, `Unsupported` for an unknown driver, and what the driver says.
pub fn open(driver: &str, name: &str) -> Result<Arc<dyn BlockDevice>> {
    match driver {
        "scsi" => scsi::open(name),
        "vhost-user" => vhost_user::open(name),
        _ => Ok(nvme_device(driver, name)?),
    }
}

/// Opens a device as [`open`] does, where the NVMe driver drives it.
///
/// # Errors
/// As [`open`]; `Unsupported` for a device of another driver.
pub fn nvme_device(driver: &str, name: &str) -> Result<Arc<NvmeDevice>> {
    match driver {
        "nvme" => nvme::open(name),
        "softnvme" => match soft::lent(name) {
            Some(device) => Ok(device),
            None => Ok(SoftDrive::open(name)?.device),
        },
        "scsi" | "vhost-user" => {
            let context = format!("{driver}: is no device of the NVMe driver");
            Err(Error::new(ErrorKind::Unsupported, context))
        }
        _ => Err(Error::new(
            ErrorKind::Unsupported,
            format!("no driver of this program is called {driver}"),
        )),
    }
}

/// The NVMe controller that a device of that name is on. Of a soft drive it is a new one.
///
/// # Errors
/// As [`open`].
pub fn controller_named(driver: &str, name: &str) -> Result<Arc<Controller>> {
    match driver {
        "softnvme" => Ok(soft::controller(name)?.0),
        _ => controller(&NvmeAddress::parse(name)?),
    }
}

/// Whether what is on a device of that name is gone when the program ends.
#[must_use]
pub fn is_volatile(driver: &str, name: &str) -> bool {
    match driver {
        "softnvme" => soft::is_volatile(name),
        "scsi" => scsi::is_volatile(name),
        _ => false,
    }
}

/// An [`Opener`] for everything: files as the function inside does, other devices by the drivers here.
#[derive(Clone, Copy, Debug)]
pub struct Drivers<F>(pub F);

impl<F: Fn(&Path) -> Result<Arc<dyn BlockDevice>>> Opener for Drivers<F> {
    fn open_file(&self, path: &Path) -> Result<Arc<dyn BlockDevice>> {
        (self.0)(path)
    }

    fn open_driven(&self, driver: &str, name: &str) -> Result<Arc<dyn BlockDevice>> {
        open(driver, name)
    }
}
