//! The NVMe driver: controllers, their queues, and namespaces as block devices. The crate has no
//! unsafe code: see `qpair-pci` for access to devices.
//!
//! - [`Controller`]: a controller that this program drives, over any [`qpair_pci::PciFunction`].
//! - [`NvmeDevice`]: one of its namespaces as a block device. Each channel has its own queue pair.
//! - [`PrebuiltQueue`]: a queue pair with commands built in advance, to measure the controller by
//!   itself.
//! - [`NvmeAddress`]: the names of a controller and of a namespace.

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
