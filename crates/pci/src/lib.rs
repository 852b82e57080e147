//! PCI functions from user space.
//!
//! - [`PciFunction`]: what a driver needs of a function: registers, memory that the device reaches, interrupts, reset.
//! - [`PciDevice`]: the other side, a model of a function; [`InProcess`] joins the two in one process.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]

mod device;
mod function;
mod in_process;

pub use device::{PciDevice, SharedArea};
pub use function::{PciFunction, Step, Stepped};
pub use in_process::InProcess;
