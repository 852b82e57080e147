//! TLS 1.3 with keys that both ends have (external PSKs, RFC 8446 §4.2.11), by s2n-tls.
//!
//! - `Server` asks a [`KeySource`] for the keys that a client offers; `Client` offers keys.
//! - `Connection`: records in, data out, and the other way. The sockets belong to the caller.
//! - [`offered`]: the identities in a ClientHello. The others need the feature `s2n`.
//!
//! Only TLS 1.3 is spoken, with an ephemeral key exchange (psk_dhe_ke). There are no certificates,
//! no session tickets and no early data: a handshake ends only if both ends have the same key.
//!
//! Invariant: all unsafe code is in `connection.rs`, whose head says why it is sound.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]

mod key;
mod offered;

#[cfg(feature = "s2n")]
mod connection;
#[cfg(feature = "s2n")]
mod ends;

#[cfg(feature = "s2n")]
pub use connection::{Connection, Opened};
#[cfg(feature = "s2n")]
pub use ends::{Client, Server};
pub use key::{Key, KeyHash, KeySource};
pub use offered::offered;
