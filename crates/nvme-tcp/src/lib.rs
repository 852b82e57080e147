//! NVMe over TCP: a host drives the namespaces of a target's subsystem over TCP connections, one
//! for each queue.
//!
//! - [`wire`]: the messages (PDUs) of both ends, and their reception without sockets.
//! - [`NvmeTcpDevice`]: a namespace of a target.
//!
//! The names and numbers are those of the NVMe/TCP Transport Specification 1.0. `qpair-serve` has
//! the target.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

pub mod address;
pub mod client;
pub mod wire;

pub use address::{HostPort, Place};
pub use client::{NvmeTcpDevice, NvmeTcpOptions};
