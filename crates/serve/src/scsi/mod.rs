//! A SCSI host of a guest (virtio-scsi): targets, each a disk with the unit 0.
//!
//! - [`Controller`] has the targets, and the events for the guest. All threads may change it.
//! - Request queues ([`requests`]) turn commands into jobs for the disks' lanes, of which a queue
//!   has one for each target.
//! - The control queue ([`control`]) sends tasks to all request queues, each of which ends its own
//!   commands ([`visit`]).
//! - The event queue ([`events`]) reports targets that come, go and change.

mod control;
mod controller;
mod events;
mod requests;
#[cfg(test)]
mod tests;
mod unit;
mod visit;

pub(crate) use controller::Controller;
