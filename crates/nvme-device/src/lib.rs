//! An NVMe controller in software, without blocks.
//!
//! A driver writes commands into its own memory and rings a doorbell, which is memory too; an
//! [`NvmeController`] reads the doorbell when a thread steps it, fetches the commands, has its
//! [`Backend`] execute them, and writes completions. It has no thread. Queue pairs have a lock
//! each, so that threads that step different queues do not wait for each other; locks are taken in
//! the order of the queues' numbers.
//!
//! - [`Backend`]: the owner of the blocks. [`Io`]: a queue during one step, as a backend sees it.
//! - [`Delegated`]: a backend that makes operations of commands, for another thread.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod admin;
mod backend;
mod control;
mod delegated;
mod device;
mod events;
mod features;
mod logs;
mod options;
mod prp;
mod queue;
mod ring;
mod shadow;
mod step;

pub use backend::{Again, Backend, Counts, Io, Names, NamespaceInfo, Stop, Ticket};
pub use delegated::{Delegated, Operation, Part, status_of};
pub use device::NvmeController;
pub use options::{ControllerOptions, Doorbells};
pub use prp::{Direction, DriverMemory, RANGES_BYTES_MAX};
