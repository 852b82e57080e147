//! vhost-user: a front end, which runs a guest, tells a back end, which has the guest's disks, the
//! addresses of the guest's memory and rings.
//!
//! The names and numbers are those of the protocol's document in QEMU
//! (docs/interop/vhost-user.rst). Integers are in native byte order: both ends are on one machine.

#![forbid(unsafe_code)]

pub mod codec;
mod frontend;

pub use frontend::{VhostUserBlk, VhostUserOptions};
