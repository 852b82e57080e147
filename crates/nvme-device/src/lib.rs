//! The emulation of an NVMe controller, without blocks.
//!
//! A driver writes commands into its own memory and rings a doorbell, which is memory too. When a
//! thread steps an [`NvmeController`], the controller reads the doorbell, fetches the commands,
//! lets its [`Backend`] execute them, and writes completions. It has no thread. Each queue pair has
//! its own lock, so threads that step different queues do not wait for each other. Locks are taken
//! in the order of the queues' numbers.
//!
//! - [`Backend`]: the owner of the blocks. [`Io`]: a queue during one step, as a backend sees it.
//! - [`AdminState`] and [`plan`]: admin and I/O commands without rings and memory, for controllers
//!   of another transport.
//! - [`Delegated`]: a backend that turns commands into operations for another thread.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod admin;
mod admin_state;
mod backend;
mod control;
mod delegated;
mod device;
mod events;
mod features;
mod logs;
mod options;
mod plan;
mod prp;
mod queue;
mod ring;
mod shadow;
mod step;

pub use admin_state::{AdminState, Traits};
pub use backend::{Again, Backend, Counts, Io, Names, NamespaceInfo, Stop, Ticket};
pub use delegated::{Delegated, Operation, Part, status_of};
pub use device::NvmeController;
pub use events::{Event, Events};
pub use features::Features;
pub use options::{ControllerOptions, Doorbells};
pub use plan::{Planned, plan};
pub use prp::{Direction, DriverMemory, RANGES_BYTES_MAX};
