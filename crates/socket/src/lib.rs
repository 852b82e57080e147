//! Messages with descriptors over Unix sockets: what vfio-user and vhost-user have in common.
//!
//! - [`Listener`]: a socket at a path.
//! - [`Incoming`]: puts messages together, of any protocol whose messages begin with a [`MessageHeader`].
//! - [`receive`] and [`send`]: bytes and descriptors. Nothing here blocks.
//! - [`Fields`] and [`Writer`]: integers in payloads.

#![forbid(unsafe_code)]

mod fields;
mod incoming;
mod listener;
mod transfer;

pub use fields::{Fields, Writer};
pub use incoming::{Incoming, Message, MessageHeader, Received};
pub use listener::{Listener, SOCKET_PATH_BYTES_MAX};
pub use transfer::{MESSAGE_FDS_MAX, receive, send};
