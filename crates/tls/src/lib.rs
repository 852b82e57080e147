//! TLS for connections of disks.
//!
//! - [`TlsServer`] and [`TlsClient`]: certificates and keys that were read from files.
//! - [`PskServer`] and [`PskClient`]: keys that both ends have, instead of certificates.
//! - [`Session`]: the TLS of one connection, over a socket that does not block, or for a handshake
//!   over one that blocks.
//!
//! Invariant: after [`Session::receive`] the session keeps no data that could be given, so that the
//! socket's readiness says when there is more.
//!
//! Without the feature `rustls` no settings with certificates can be made, and without `psk` none
//! with keys.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod files;
mod records;
mod session;

#[cfg(feature = "rustls")]
mod certified;
#[cfg(feature = "rustls")]
mod settings;
#[cfg(feature = "psk")]
mod shared;

#[cfg(not(feature = "rustls"))]
mod absent;
#[cfg(not(feature = "psk"))]
mod absent_psk;

#[cfg(not(feature = "rustls"))]
pub use absent::{TlsClient, TlsServer};
#[cfg(not(feature = "psk"))]
pub use absent_psk::{PskClient, PskServer};
pub use files::{ClientFiles, ServerFiles};
pub use qpair_tls_psk::{Key, KeyHash, KeySource};
pub use session::{Blocking, Session};
#[cfg(feature = "rustls")]
pub use settings::{TlsClient, TlsServer};
#[cfg(feature = "psk")]
pub use shared::{PskClient, PskServer};
