//! A soft SAS host bus adapter: MPI 2.5 or 2.6, with disks at its phys or behind expanders.
//!
//! Registers are served where they are written, under one lock. What a driver posts is kept for the
//! reply queue that it names, and done when a thread steps that queue. Queues have a lock each. The
//! lock of the registers is taken before those of queues, never after; no thread holds the locks of
//! two queues but the one that lets the power fail, which takes all of them.
//!
//! Nothing that comes from a driver is trusted: addresses are looked up, lists are bounded, and
//! what makes no sense is answered with a status or, where there is no way to answer, puts the
//! controller into its fault state.

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
