//! A separate device for the write-ahead log of a store. See docs/design/log-device.md.
//!
//! - The store's superblock names the log device by its id, and the log device's superblock names
//!   the store. Both must agree before anything is read or written there.
//! - Behind its superblock the device holds only segments of the logs. The logs determine which
//!   segments are free: all but those from the positions of the last durable checkpoint on.
//! - A store changes its log device, or begins or ceases to have one, only after it was closed,
//!   because then there is no log.

mod device;

pub(crate) use device::LogDevice;
