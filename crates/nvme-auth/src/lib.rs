//! How hosts and controllers of NVMe over Fabrics prove who they are, without sockets.
//!
//! - [`Secret`], [`HostKeys`]: keys in the form `DHHC-1:…`, which `nvme gen-dhchap-key` prints.
//! - [`message`]: the messages of DH-HMAC-CHAP (Base §8.3.4.5).
//! - [`Controller`] and [`Host`]: the two ends of an authentication.
//! - [`psk`]: the keys and identities of TLS for NVMe/TCP.
//!
//! Invariants:
//! - a key is in no error and in no `Debug` output, and its memory is overwritten when it is
//!   dropped;
//! - responses are compared in constant time;
//! - a controller takes a host as authenticated only after a response to a challenge that was made
//!   for this host, this connection and this transaction.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

pub mod message;
pub mod psk;

mod base64;
mod controller;
mod group;
mod hash;
mod host;
mod secret;
#[cfg(test)]
mod tests;

pub use controller::{Controller, Policy};
pub use group::Group;
pub use hash::Hash;
pub use host::{Fault, Host};
pub use secret::{HostKeys, Names, Secret};

/// Fields of Authentication Send and Receive: the security protocol of NVMe, and the specific
/// fields of DH-HMAC-CHAP (dword 10).
pub const PROTOCOL: u32 = 0xE901_0100;
/// The longest message: a reply with the longest hashes and group, bytes.
pub const MESSAGE_BYTES_MAX: usize = 16 + 2 * 64 + 1024;

/// Returns random bytes of the system, or an error if it has none.
fn random(bytes: &mut [u8]) -> Result<(), u8> {
    getrandom::fill(bytes).map_err(|_| message::reason::FAILED)
}
