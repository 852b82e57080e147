//! Clients over stream sockets, for servers whose halls on the workers have some of the clients
//! each: the listening socket, the way to a hall, the sockets, the peers and the memory of a hall,
//! messages on their way to a peer.

mod door;
mod lobby;
mod output;
mod peer;
mod peers;
mod pool;
mod rounds;
mod slots;
mod sockets;

pub(crate) use door::Door;
pub(crate) use lobby::Lobby;
pub(crate) use output::Output;
pub(crate) use peer::Peer;
pub(crate) use peers::Peers;
pub(crate) use pool::{LARGE_BYTES, Pool, SMALL_BYTES};
pub(crate) use rounds::Rounds;
pub(crate) use slots::Slots;
pub use sockets::SocketWay;
pub(crate) use sockets::{OTHER, Sockets};
