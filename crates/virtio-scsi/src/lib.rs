//! A driver for virtio SCSI hosts (QEMU's `virtio-scsi-pci`) over any PCI function: VFIO, or a
//! model in this process.
//!
//! [`VirtioScsi`] is a `qpair_scsi::host::Host`: it moves commands. `qpair-scsi` knows their
//! meaning.
//!
//! The design, and the state that channels share, is described in docs/design/virtio-scsi.md.

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
