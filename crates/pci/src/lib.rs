//! PCI functions from user space.
//!
//! - [`PciFunction`]: what a driver needs of a function: registers, memory that the device reaches, interrupts, reset.
//! - [`vfio`]: functions of hardware; [`sysfs`]: which there are, and giving them to programs and back.
//! - [`PciDevice`]: the other side, a model of a function; [`InProcess`] joins the two in one process.
//! - [`model`]: parts that models share.
//! - [`Interrupt`]: a vector as an event to sleep for.
//! - [`IrqEvent`]: how a model interrupts its driver without ever waiting for it.
//! - [`Patience`]: the function that drivers ask whether to go on waiting for a silent device.
//!
//! # Safety argument
//!
//! There is `unsafe` in three places: in [`InProcess`], which lends an arena to a model; in `vfio/ioctl.rs`, which makes the system
//! calls of VFIO; and in `irq_event.rs`, which makes those of asynchronous I/O, with requests and room that outlive the call.
//!
//! 1. *System calls.* A structure goes to the kernel as a vector of bytes whose first word is the vector's own length; the calls that
//!    are made with it read and write no more than that, and, with the flags in use, hold no addresses. The two calls that do
//!    hold one are functions of their own, which make the address from what they borrow.
//! 2. *What a device reaches.* The IOMMU lets it reach the pages of the arenas and regions that are open to it and no others: without one,
//!    [`vfio::open`] refuses. The kernel keeps those pages for as long as they are open, whatever becomes of the mapping; so
//!    a device that runs on when its driver is gone writes into memory that no other owner has been given. Besides, the
//!    function holds each of them until it is closed to the device, and takes bus mastering from the device first when it is dropped.
//! 3. *Where in an arena it writes.* As with a kernel interface that is given addresses, the driver names in its commands only
//!    buffers that it holds until the answer, and its own queues (qpair-memory, point 6).
//! 4. *Registers* are mapped as `qpair_memory::Mapping`, to which no reference is ever formed. The pages of the MSI-X table are
//!    not mapped: what is written there is an address that the device writes to. (The IOMMU checks interrupts too; without
//!    that, the kernel refuses to set it up.) Memory access stays on for as long as a function is open, so touching registers
//!    is no fault; those of a function that was pulled out read as ones, or are replaced (qpair-memory, point 8).

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
mod patience;
mod queue_memory;
pub mod sysfs;
pub mod vfio;

pub use capability::{find_capability, msix};
pub use device::{Listened, PciDevice, SharedArea};
pub use function::{PciFunction, Step, Stepped, command};
pub use in_process::InProcess;
pub use interrupt::Interrupt;
pub use irq_event::IrqEvent;
pub use life::{LifeWord, Phase};
pub use maps::{Maps, OpenArenas, OpenRegions};
pub use patience::{Patience, Waiting};
pub use queue_memory::{QueueMemory, SharedQueueMemory};
