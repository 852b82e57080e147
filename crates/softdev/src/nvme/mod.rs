//! A soft NVMe controller.
//!
//! A driver writes commands into its own memory and rings a doorbell, which is memory too; [`SoftNvme`] reads the doorbell when a thread
//! steps it, fetches the commands, moves the data, and writes completions. It has no thread. Queue pairs have a lock each, so that
//! threads that step different queues do not wait for each other; locks are taken in the order of the queues' numbers.

mod admin;
mod control;
mod device;
mod events;
mod fate;
mod features;
mod handed;
mod io;
mod logs;
mod namespace;
mod options;
mod outer;
mod prp;
mod queue;
mod ring;
mod shadow;
mod step;
mod waiting;

pub use device::SoftNvme;
pub use handed::{Ended, Hand, Handed, Part, Ticket};
pub use options::{Doorbells, NamespaceOptions, SoftNvmeOptions};
pub use outer::{OuterNamespace, OuterOptions};
