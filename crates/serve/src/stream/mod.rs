//! Clients over stream sockets, for servers whose halls on the workers have some of the clients
//! each: the listening socket, the way to a hall, the sockets and the memory of a hall, messages on
//! their way to a client.

mod door;
mod lobby;
mod output;
mod pool;
mod sockets;

pub(crate) use door::Door;
pub(crate) use lobby::Lobby;
pub(crate) use output::Output;
pub(crate) use pool::{LARGE_BYTES, Pool, SMALL_BYTES};
pub use sockets::SocketWay;
pub(crate) use sockets::{Arrival, News, OTHER, Sockets, Taken, receive};
