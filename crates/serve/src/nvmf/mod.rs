//! NVMe controllers over vfio-user, whose namespaces are disks of the target.

mod controller;
mod registry;
mod subsystem;

pub(crate) use controller::{blocks_of, described};
pub(crate) use registry::{Nvmf, SubsystemInfo, Transport};
pub(crate) use subsystem::{Post, Subsystem};
