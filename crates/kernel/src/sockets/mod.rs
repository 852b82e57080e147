//! Sockets by `io_uring`: a ring that receives from and sends to many stream sockets with one
//! system call.
//!
//! - [`SocketRing`]: the ring, and the sockets that it knows.
//! - [`Outgoing`]: bytes on their way to a socket.
//! - [`Received`]: bytes from a socket.
//!
//! docs/design/sockets.md has the picture.

mod buffers;
mod outgoing;
mod ring;

pub use buffers::Received;
pub use outgoing::Outgoing;
pub use ring::{SocketEvent, SocketRing};
