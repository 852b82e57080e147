//! A driver for SCSI hosts of virtio (QEMU's `virtio-scsi-pci`) over any PCI function: VFIO, or a model in this process.
//!
//! [`VirtioScsi`] is a `qpair_scsi::host::Host`: it moves commands. What they mean is the matter of `qpair-scsi`.
//!
//! The design, and what channels share, is in docs/design/virtio-scsi.md.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod core;
mod driver;
mod facts;
mod host;
mod lives;
mod options;
mod probe;
mod queue;
mod transport;
mod virtqueue;

pub use driver::VirtioScsiDriver;
pub use host::VirtioScsi;
pub use options::VirtioScsiOptions;
