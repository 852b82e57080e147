//! Block devices for guests.
//!
//! - [`Disk`]: a device with a name, as a guest has it.
//! - [`GuestMemory`]: what a front end told of a guest's memory.
//! - `blk`: a queue of virtio-blk, from its ring to a channel of the device.
//!
//! docs/design/target.md has the picture.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod blk;
mod disk;
mod memory;
mod worker;

pub use blk::inflight_bytes;
pub use disk::{Disk, DiskCounters};
pub use memory::{GuestMemory, REGIONS_MAX, RegionPlace};
