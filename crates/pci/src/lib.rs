//! PCI functions from user space.
//!
//! - [`PciFunction`]: a function as its driver sees it: registers, memory that the device can
//!   access, interrupts, reset.
//! - [`vfio`]: hardware functions; [`sysfs`]: the functions of a machine, and giving them to
//!   programs and back.
//! - [`PciDevice`]: the device side, a model of a function; [`InProcess`] joins the two sides in
//!   one process; a [`PciWrapper`] changes some answers of another device.
//! - [`model`]: parts that models share.
//! - [`Interrupt`]: a vector as an event that a thread can sleep on.
//! - [`IrqEvent`]: interrupts the driver of a model, without ever blocking.
//! - [`TimeoutPolicy`]: a function that drivers ask whether to keep waiting for a
//!   silent device.
//!
//! # Safety argument
//!
//! There is `unsafe` code in three places. [`InProcess`] lends an arena to a model. `vfio/ioctl.rs`
//! makes the system calls of VFIO. `irq_event.rs` makes the system calls of asynchronous I/O, with
//! requests and buffers that outlive the call.
//!
//! 1. *System calls.* A structure is passed to the kernel as a vector of bytes whose first word is
//!    the vector's own length. The calls that take it read and write no more than that and, with
//!    the flags in use, it holds no addresses. The two calls that do take an address are separate
//!    functions, which make the address from their borrowed arguments.
//! 2. *Memory that a device can access.* The IOMMU lets the device access only the pages of the
//!    arenas and regions that are open to it; without an IOMMU, [`vfio::open`] refuses. The kernel
//!    keeps those pages for as long as they are open, whatever happens to the mapping. A device
//!    that keeps running after its driver has gone therefore writes only to memory that has no
//!    other owner. In addition, the function holds each arena and region until it is closed to the
//!    device. When the function is dropped, it first takes bus mastering from the device.
//! 3. *Addresses in an arena.* As with a kernel interface that takes addresses, the driver's
//!    commands name only buffers that the driver holds until the answer, and its own queues
//!    (qpair-memory, point 6).
//! 4. *Registers* are mapped as `qpair_memory::Mapping`, to which no reference is ever formed. The
//!    pages of the MSI-X table are not mapped, because the table holds addresses that the device
//!    writes to. (The IOMMU checks interrupts too; without that, the kernel refuses to set up the
//!    device.) Memory access stays on for as long as a function is open, so accessing registers
//!    causes no fault. The registers of a function that was pulled out read as ones, or are
//!    replaced (qpair-memory, point 8).

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]

mod capability;
mod device;
mod function;
mod in_process;
mod interrupt;
mod irq_event;
mod life;
mod maps;
pub mod model;
mod queue_memory;
pub mod sysfs;
mod timeout_policy;
pub mod vfio;
mod wrapper;

pub use capability::{find_capability, msix};
pub use device::{Listened, PciDevice, SharedArea};
pub use function::{PciFunction, Step, Stepped, command};
pub use in_process::InProcess;
pub use interrupt::Interrupt;
pub use irq_event::IrqEvent;
pub use life::{LifeWord, Phase};
pub use maps::{Maps, OpenArenas, OpenRegions};
pub use queue_memory::{QueueMemory, SharedQueueMemory};
pub use timeout_policy::{TimeoutPolicy, Waiting};
pub use wrapper::PciWrapper;
