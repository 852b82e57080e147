//! A soft SCSI host of virtio, with the disks of the soft HBA: each is unit 0 of a target.
//!
//! Registers are served where they are written, under one lock; queues have a lock each, taken
//! after that of the registers and never before; no thread holds the locks of two queues. What is
//! made available is done when a thread steps the queue, if it was notified.
//!
//! Nothing that comes from a driver is trusted: a ring that makes no sense breaks the device until
//! it is reset. It makes no interrupts.

mod device;
mod faults;
mod options;
mod queue;
mod registers;
mod tasks;

pub use device::SoftVirtioScsi;
pub use faults::{VirtioFault, VirtioRule};
pub use options::SoftVirtioScsiOptions;
