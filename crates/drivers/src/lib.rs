//! Devices that this program drives itself, opened by name: those of [`qpair_block::DRIVERS`].
//!
//! ```text
//! nvme:[wait=poll|sleep,queue_entries=N,timeout_ms=N:]0000:3b:00.0[/nsN]      bound to vfio-pci
//! nvme:[...,memory=huge:]vfio-user:/run/x.sock[/nsN]                            served by another process
//! softnvme:[wait=...,]size=1GiB,profile=tlc,...                                 made of software, in this process
//! scsi:HOST/UNIT                                      a disk behind a SAS controller or virtio-scsi; HOST: soft, vfio-user:PATH, 0000:3b:00.0
//! vhost-user:[timeout_ms=N,reconnect_ms=N,memory=huge:]PATH     a disk that another process serves by vhost-user-blk
//! ```
//!
//! [`Drivers`]: the value with which a program opens these devices, and which knows the open ones.
//! [`Loan`]: a drive, found by [`Named`], that is taken from the kernel for a while, and given back
//! whatever happens.
//!
//! This crate combines drivers and transports. The block layer below and the users of devices above
//! know neither.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod drivers;
mod loan;
mod nvme;
mod scsi;
mod soft;
mod vhost_user;

pub use drivers::{Drivers, Opening};
pub use loan::{Loan, Named, Unit, reasons, recover, uses};
pub use qpair_pci::{Patience, Waiting};
pub use scsi::ScsiController;
pub use soft::SoftDrive;

/// Whether the data on the device with that name is lost when the program ends.
#[must_use]
pub fn is_volatile(driver: &str, name: &str) -> bool {
    match driver {
        "softnvme" => soft::is_volatile(name),
        "scsi" => scsi::is_volatile(name),
        _ => false,
    }
}
