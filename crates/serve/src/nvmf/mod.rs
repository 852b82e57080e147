//! NVMe controllers over vfio-user, whose namespaces are disks of the target.

mod controller;
mod registry;
mod subsystem;

pub(crate) use registry::{Nvmf, SubsystemInfo, Transport};
