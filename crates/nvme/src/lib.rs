//! The NVMe driver: controllers, their queues, and namespaces as block devices. It has no unsafe code: see `qpair-pci` for access to devices.
//!
//! - [`Controller`]: a controller that this program drives, over any [`qpair_pci::PciFunction`].
//! - [`NvmeDevice`]: one of its namespaces as a block device; each channel has a queue pair of its own.
//! - [`PrebuiltQueue`]: a queue pair with commands that are made beforehand, to see what the controller gives by itself.
//! - [`NvmeAddress`]: how people name a controller and a namespace.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod address;
mod admin;
mod channel;
mod controller;
mod core;
mod device;
mod identify;
mod line;
mod options;
mod prebuilt;
mod registers;
mod rings;
mod slots;
mod state;
mod status;
mod transfer;
mod wait;

pub use address::{NvmeAddress, NvmeTarget};
pub use controller::{Controller, ControllerInfo};
pub use device::NvmeDevice;
pub use identify::NamespaceInfo;
pub use options::{ControllerOptions, WaitMode};
pub use prebuilt::PrebuiltQueue;
