//! The vfio-user protocol (libvfio-user, QEMU's docs/interop/vfio-user.rst): a PCI function over a
//! socket.
//!
//! - [`codec`]: messages as bytes.
//! - [`Server`]: lets one client at a time drive a [`qpair_pci::PciDevice`]. The caller polls it;
//!   it has no thread, and never blocks. [`Host`] serves several devices on one thread.
//! - [`Client`]: a device in another process as a [`qpair_pci::PciFunction`].
//!
//! Memory does not go over the socket. The client passes the files behind its memory, and the
//! server maps them. The server passes the file behind its doorbells, and the client maps it. After
//! that the socket is silent.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod client;
pub mod codec;
mod server;

pub use client::{Client, ClientOptions};
pub use server::{Counters, Ended, Host, Idle, Server, ServerOptions, Session, Turn};

type Message = qpair_socket::Message<codec::Header>;
type Incoming = qpair_socket::Incoming<codec::Header>;
