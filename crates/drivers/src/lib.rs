//! Devices that this program drives itself, opened by name: those of [`qpair_block::DRIVERS`].
//!
//! [`sections`] lists the names with their options.
//!
//! [`Drivers`]: the value with which a program opens these devices, and which knows the open ones.
//! [`Loan`]: a drive, found by [`Named`], that is taken from the kernel for a while, and given back
//! whatever happens.
//!
//! This crate combines drivers and transports. The block layer below and the users of devices above
//! know neither.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod adaptive;
mod drivers;
mod kinds;
mod loan;
mod nbd;
mod nvme;
mod nvme_tcp;
mod scsi;
mod soft;
mod vhost_user;

pub use adaptive::Adaptive;
pub use drivers::{Drivers, Opening};
pub use kinds::{Section, help, sections};
pub use loan::{Lent, Loan, Named, Unit, forget_names, note_names, reasons, recover, uses};
pub use qpair_pci::{TimeoutPolicy, Waiting};
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
