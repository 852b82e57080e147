//! A soft SAS host bus adapter: MPI 2.5 or 2.6, with disks at its phys or behind expanders.
//!
//! Registers are served by the thread that accesses them, under one lock. A posted request is kept
//! for the reply queue that it names, and executed when a thread steps that queue. Each queue has a
//! lock of its own. The lock of the registers is taken before the locks of queues, never after. No
//! thread holds the locks of two queues, except the thread that cuts the power, which takes all of
//! them.
//!
//! The controller trusts no input from a driver: addresses are looked up, and lists are bounded. An
//! invalid request is answered with a status. Where no answer is possible, the controller enters
//! its fault state.

mod control;
mod device;
mod events;
mod faults;
mod lane;
mod messages;
mod options;
mod pages;
mod scsi_io;
pub(crate) mod sgl;
mod strict;
mod tasks;
mod timing;
mod topology;
mod transcript;

pub use device::SoftHba;
pub(crate) use faults::Faults;
pub use faults::{Fault, Rule};
pub use options::{DiskOptions, SoftHbaOptions};
pub(crate) use scsi_io::is_of_blocks;
pub use strict::Violations;
pub use timing::DiskProfile;
