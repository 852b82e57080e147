//! A soft virtio SCSI host with the same disks as the soft HBA. Each disk is unit 0 of a target.
//!
//! Registers are served by the thread that accesses them, under one lock. Each queue has a lock of
//! its own, taken after the lock of the registers and never before. No thread holds the locks of
//! two queues. Available requests are executed when a thread steps a queue that was notified.
//!
//! The device trusts no input from a driver: an invalid ring stops the device until it is reset.
//! The device sends no interrupts.

mod device;
mod faults;
mod options;
mod queue;
mod registers;
mod tasks;

pub use device::SoftVirtioScsi;
pub use faults::{VirtioFault, VirtioRule};
pub use options::SoftVirtioScsiOptions;
