//! The device of its own that a store keeps its write-ahead log on. See docs/design/log-device.md.
//!
//! - The store's superblock names it by its id, and its own superblock names the store. Both agree before anything is read or written there.
//! - Nothing lies behind its superblock but segments of the logs. Which are free follows from the logs: those that the last durable
//!   checkpoint begins in, and what comes after them, are not.
//! - A store changes its log device, or begins or ceases to have one, only when it was closed: then there is no log.

mod device;

pub(crate) use device::LogDevice;
