//! The settings of a build without a kind of TLS: no value of them exists.

#![cfg_attr(
    any(feature = "rustls", feature = "psk"),
    expect(dead_code, reason = "the other kind of TLS is there")
)]

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use qpair_block::{Error, ErrorKind, Result};
use qpair_tls_psk::{Key, KeySource};

use crate::files::{ClientFiles, ServerFiles};
use crate::session::Session;

fn absent() -> Error {
    Error::new(ErrorKind::Unsupported, "this program was built without TLS")
        .hint("build it with the feature tls")
}

fn absent_psk() -> Error {
    Error::new(ErrorKind::Unsupported, "this program was built without TLS for NVMe/TCP")
        .hint("build it with the feature nvme-tls: cargo build -p qpair-cli --features nvme-tls")
}

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct TlsServer(Infallible);

/// The settings of a client.
#[derive(Clone, Debug)]
pub struct TlsClient(Infallible);

/// The settings of a server whose clients have keys.
#[derive(Clone, Debug)]
pub struct PskServer(Infallible);

/// The settings of a client that has keys.
#[derive(Clone, Debug)]
pub struct PskClient(Infallible);

impl TlsServer {
    /// # Errors
    /// `Unsupported`.
    pub fn new(_: &ServerFiles) -> Result<Self> {
        Err(absent())
    }

    /// # Errors
    /// None: there are no settings.
    pub fn session(&self) -> io::Result<Session> {
        match self.0 {}
    }
}

impl TlsClient {
    /// # Errors
    /// `Unsupported`.
    pub fn new(_: &ClientFiles) -> Result<Self> {
        Err(absent())
    }

    /// # Errors
    /// None: there are no settings.
    pub fn session(&self, _: &str) -> io::Result<Session> {
        match self.0 {}
    }
}

impl PskServer {
    /// # Errors
    /// `Unsupported`.
    pub fn new(_: Arc<dyn KeySource>) -> Result<Self> {
        Err(absent_psk())
    }

    /// # Errors
    /// None: there are no settings.
    pub fn session(&self) -> io::Result<Session> {
        match self.0 {}
    }
}

impl PskClient {
    /// # Errors
    /// `Unsupported`.
    pub fn new(_: &[Key]) -> Result<Self> {
        Err(absent_psk())
    }

    /// # Errors
    /// None: there are no settings.
    pub fn session(&self) -> io::Result<Session> {
        match self.0 {}
    }
}
