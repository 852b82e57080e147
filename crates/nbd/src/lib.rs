//! NBD, the network block device protocol: a client reads and writes a server's disk over a stream.
//!
//! - [`wire`]: the messages of both ends.
//! - [`server`]: the negotiation and the checks of requests, without sockets; `qpair-serve` has the
//!   sockets.
//! - [`NbdDevice`]: a disk that a server exports.
//!
//! The names and numbers are those of the protocol's document (proto.md of the NBD project).
//! Integers are in big-endian byte order.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

pub mod address;
pub mod client;
pub mod server;
pub mod wire;

pub use address::Address;
pub use client::{NbdDevice, NbdOptions, NbdTls};
