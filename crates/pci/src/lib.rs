//! PCI functions from user space.
//!
//! - [`PciFunction`]: what a driver needs of a function: registers, memory that the device reaches, interrupts, reset.
//! - [`vfio`]: functions of hardware; [`sysfs`]: which there are, and giving them to programs and back.
//! - [`PciDevice`]: the other side, a model of a function; [`InProcess`] joins the two in one process.
//! - [`IrqEvent`]: how a model interrupts its driver without ever waiting for it.
//! - [`BusGuard`]: for whoever maps the memory of processes that it does not trust.
//!
//! # Safety argument
//!
//! There is `unsafe` in four places: in [`InProcess`], which lends an arena to a model; in `vfio/ioctl.rs`, which makes the system
//! calls of VFIO; in `irq_event.rs`, which makes those of asynchronous I/O, with requests and room that outlive the call; and in
//! `bus_guard.rs`, which handles a signal.
//!
//! 1. *System calls.* A structure goes to the kernel as a vector of bytes whose first word is the vector's own length; the calls that
//!    are made with it read and write no more than that, and, with the flags in use, hold no addresses. The two calls that do
//!    hold one are functions of their own, which make the address from what they borrow.
//! 2. *What a device reaches.* The IOMMU lets it reach the pages of the arenas that are open to it and no others: without one,
//!    [`vfio::open`] refuses. The kernel keeps those pages for as long as they are open, whatever becomes of the mapping; so
//!    a device that runs on when its driver is gone writes into memory that nobody else has been given. Besides, the
//!    function holds each arena until it is closed to the device, and takes bus mastering from the device first when it is dropped.
//! 3. *Where in an arena it writes.* As with a kernel interface that is given addresses, the driver names in its commands only
//!    buffers that it holds until the answer, and its own queues (qpair-memory, point 6).
//! 4. *Registers* are mapped as `qpair_memory::Mapping`, to which no reference is ever formed. The pages of the MSI-X table are
//!    not mapped: what is written there is an address that the device writes to. (The IOMMU checks interrupts too; without
//!    that, the kernel refuses to set it up.) Memory access stays on for as long as a function is open, so touching registers
//!    is no fault; those of a function that was pulled out read as ones.
//! 5. *The signal handler* touches atomics and a cell that was set before it was installed, and makes system calls; it allocates
//!    nothing and takes no lock. `errno` is left alone where the mapping succeeds; where it does not, the process ends.
//! 6. *What the handler replaces.* A fault at an address of a covered range comes from a thread that is in the midst of an access to that
//!    `qpair_memory::Mapping` (nobody else has addresses in it), so it is held, and stays mapped until the handler returns; ranges leave
//!    the list before their mapping goes. Entries of other ranges that change meanwhile are passed over or read whole (`version`). What is
//!    mapped instead has the same length, takes loads and stores, and goes with the mapping. There are no references
//!    into it (qpair-memory, point 5), so that bytes that become zeroes are no more than a peer could have written.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]

mod bus_guard;
mod device;
mod function;
mod in_process;
mod irq_event;
mod maps;
mod queue_memory;
pub mod sysfs;
pub mod vfio;

pub use bus_guard::{BusGuard, Covered};
pub use device::{PciDevice, SharedArea};
pub use function::{PciFunction, Step, Stepped};
pub use in_process::InProcess;
pub use irq_event::IrqEvent;
pub use maps::Maps;
pub use queue_memory::QueueMemory;
