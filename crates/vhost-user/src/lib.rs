//! vhost-user: how a front end (which runs a guest) tells a back end (which has its disks) where the guest's memory and rings are.
//!
//! The names and numbers are those of the protocol's document in QEMU (docs/interop/vhost-user.rst). Integers are those of the machine: both
//! ends are on one.

#![forbid(unsafe_code)]

pub mod codec;
mod frontend;

pub use frontend::{VhostUserBlk, VhostUserOptions};
