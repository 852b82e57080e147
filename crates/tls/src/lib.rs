//! TLS for connections of disks.
//!
//! - [`TlsServer`] and [`TlsClient`]: certificates and keys that were read from files.
//! - [`Session`]: the TLS of one connection, over a socket that does not block, or for a handshake
//!   over one that blocks.
//!
//! Invariant: after [`Session::receive`] the session keeps no data that could be given, so that the
//! socket's readiness says when there is more.
//!
//! Without the feature `rustls` no settings can be made, and a session cannot exist.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod files;

#[cfg(feature = "rustls")]
mod session;
#[cfg(feature = "rustls")]
mod settings;

#[cfg(not(feature = "rustls"))]
mod absent;

#[cfg(not(feature = "rustls"))]
pub use absent::{Blocking, Session, TlsClient, TlsServer};
pub use files::{ClientFiles, ServerFiles};
#[cfg(feature = "rustls")]
pub use session::{Blocking, Session};
#[cfg(feature = "rustls")]
pub use settings::{TlsClient, TlsServer};
