//! A client: a disk that a server exports. Each channel is a connection of its own.

mod device;
mod handshake;
mod peer;
mod protocol;
mod tls;

pub use device::{NbdDevice, NbdOptions};
pub use tls::NbdTls;
