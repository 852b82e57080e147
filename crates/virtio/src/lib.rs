//! Virtio as bytes and rings, for drivers and for devices.
//!
//! - [`ring`]: split rings, from both sides.
//! - [`pci`]: discovery and set-up of a device over PCI (version 1).
//! - [`scsi`]: requests, tasks and events of a SCSI host.
//!
//! Nothing here does I/O, owns memory, or trusts the other side. The design is in
//! docs/design/virtio-scsi.md.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

pub mod blk;
pub mod pci;
pub mod ring;
pub mod scsi;

/// Feature bits: indirect descriptors.
pub const FEATURE_INDIRECT: u64 = 1 << 28;
/// Feature bit: the device complies with version 1.
pub const FEATURE_VERSION_1: u64 = 1 << 32;
/// Feature bit: addresses are those of the platform (of an IOMMU).
pub const FEATURE_ACCESS_PLATFORM: u64 = 1 << 33;

/// Status bit: the driver has seen the device.
pub const STATUS_ACKNOWLEDGE: u8 = 1;
/// Status bit: the driver can drive the device.
pub const STATUS_DRIVER: u8 = 2;
/// Status bit: the driver uses the device.
pub const STATUS_DRIVER_OK: u8 = 4;
/// Status bit: the features are negotiated.
pub const STATUS_FEATURES_OK: u8 = 8;
/// Status bit: the device needs a reset to continue.
pub const STATUS_NEEDS_RESET: u8 = 0x40;
/// Status bit: the driver has given the device up.
pub const STATUS_FAILED: u8 = 0x80;
