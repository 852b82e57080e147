//! A soft NVMe drive: a controller, and behind it media, times and faults.
//!
//! A driver writes commands into its own memory and rings a doorbell, which is memory too; [`SoftNvme`] reads the doorbell when a thread
//! steps it, fetches the commands, moves the data, and writes completions. It has no thread. Queue pairs have a lock each, so that
//! threads that step different queues do not wait for each other; locks are taken in the order of the queues' numbers.

mod admin;
mod backend;
mod control;
mod controller_options;
mod delegated;
mod device;
mod drive;
mod events;
mod features;
mod io;
mod logs;
mod namespace;
mod options;
mod prp;
mod queue;
mod ring;
mod shadow;
mod soft;
mod step;
mod waiting;

pub use backend::{Again, Backend, Counts, Io, Names, NamespaceInfo, Stop, Ticket};
pub use controller_options::{ControllerOptions, Doorbells};
pub use delegated::{Delegated, Operation, Part, status_of};
pub use device::NvmeController;
pub use options::{NamespaceOptions, SoftNvmeOptions};
pub use prp::{Direction, DriverMemory, RANGES_BYTES_MAX};
pub use soft::SoftNvme;
