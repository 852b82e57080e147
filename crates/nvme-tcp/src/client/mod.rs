//! A host: a namespace of a target's subsystem. The device has a controller there, and each channel
//! one of its queues.

mod association;
mod authentication;
mod device;
mod link;
mod protocol;
mod tls;

pub use device::{NvmeTcpDevice, NvmeTcpOptions};
