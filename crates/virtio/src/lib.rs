//! Virtio as bytes and rings, for drivers and for devices.
//!
//! - [`ring`]: split rings, from both sides.
//! - [`pci`]: how a device is found and set up over PCI (version 1).
//! - [`scsi`]: requests, tasks and events of a SCSI host.
//!
//! Nothing here does I/O, owns memory, or trusts the other side. The design is in docs/design/virtio-scsi.md.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

pub mod blk;
pub mod pci;
pub mod ring;
pub mod scsi;

/// Feature bits: indirect descriptors.
pub const FEATURE_INDIRECT: u64 = 1 << 28;
/// The device keeps to version 1.
pub const FEATURE_VERSION_1: u64 = 1 << 32;
/// Addresses are those that the platform (an IOMMU) gives.
pub const FEATURE_ACCESS_PLATFORM: u64 = 1 << 33;

/// Status of a device: the driver has seen it.
pub const STATUS_ACKNOWLEDGE: u8 = 1;
/// The driver knows how to drive it.
pub const STATUS_DRIVER: u8 = 2;
/// The driver uses it.
pub const STATUS_DRIVER_OK: u8 = 4;
/// The features are settled.
pub const STATUS_FEATURES_OK: u8 = 8;
/// The device cannot go on without a reset.
pub const STATUS_NEEDS_RESET: u8 = 0x40;
/// The driver has given it up.
pub const STATUS_FAILED: u8 = 0x80;
