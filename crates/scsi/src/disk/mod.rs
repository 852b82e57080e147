//! The upper layer: a logical unit as a block device.

mod channel;
mod device;
mod facts;
mod flushed;
mod plan;
mod power;
mod recall;
mod reset;
mod wait;

pub use device::ScsiDisk;
pub use facts::DiskFacts;
pub(crate) use power::Power;
pub(crate) use recall::Recall;
