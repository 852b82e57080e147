//! Streams of messages.
//!
//! The common part of vfio-user and vhost-user, messages with descriptors over Unix sockets:
//! - [`Listener`]: a socket at a path.
//! - [`Incoming`]: reassembles messages of any protocol whose messages begin with a
//!   [`MessageHeader`].
//! - [`receive`] and [`send`]: bytes and descriptors. Nothing here blocks.
//! - [`Fields`] and [`Writer`]: integers in payloads.
//!
//! [`receive_bytes`] reads streams that may be inside TLS, for servers and clients.
//!
//! The common part of the clients of NBD and NVMe/TCP is [`client`]: the channel of a disk that a
//! server has.

#![forbid(unsafe_code)]

pub mod client;
mod fields;
mod incoming;
mod listener;
mod stream;
mod transfer;

pub use fields::{Fields, Writer};
pub use incoming::{Incoming, Message, MessageHeader, Received};
pub use listener::{Listener, SOCKET_PATH_BYTES_MAX};
pub use stream::receive_bytes;
pub use transfer::{MESSAGE_FDS_MAX, receive, send};
