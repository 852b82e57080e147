//! Describes this machine, and finds what limits the speed of its storage.
//!
//! - [`Machine`]: kernel, processors, memory and limits, in a form for reports; read from `/proc`
//!   and `/sys`.
//! - [`Bounds`]: the memory and processors that this process can actually use, and a store's
//!   defaults.
//! - [`Device`]: everything below a file or block device: file system, layers, disks and their
//!   queues.
//! - [`examine`]: returns [`Finding`]s about the machine and its devices: good settings, possible
//!   improvements with their reasons, and the commands that make them.
//! - [`try_interfaces`]: finds the interfaces and modes that work on a file or device, by reading a
//!   block over each.
//!
//! Nothing is changed, and no root is needed. Information that a machine lacks or hides is `None`,
//! never an error. All files are read through [`Root`], so that a directory tree can stand for a
//! machine.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod adapter;
mod bounds;
mod cgroup;
mod cpu_list;
mod device;
mod disk;
mod examine;
mod finding;
mod interrupts;
mod iommu;
mod limits;
mod machine;
mod memory;
mod mount;
mod processors;
mod release;
mod scratch;
mod trial;
mod unwritten;
mod virtualization;
mod words;

pub use adapter::Adapter;
pub use bounds::{BoundSource, Bounds, MemoryBound, STORE_MEMORY_BYTES};
pub use cpu_list::CpuList;
pub use device::{Device, DeviceKind};
pub use disk::{Disk, Queue};
pub use examine::examine;
pub use finding::{Area, Finding, Mend, Severity};
pub use interrupts::{Interrupts, function_interrupts};
pub use iommu::Iommu;
pub use limits::{KernelSettings, Limit, Process};
pub use machine::Machine;
pub use memory::{HugePages, Memory};
pub use mount::Mount;
pub use processors::{Mitigation, NumaNode, Processors};
pub use qpair_sysfs::Root;
pub use release::Release;
pub use trial::{Outcome, Trial, Trials, ask_for_interfaces, try_interfaces, try_interfaces_in};
pub use unwritten::{unwritten, unwritten_note};
pub use virtualization::Virtualization;
