//! The settings of a build without TLS by certificates: no value of them exists.

use std::convert::Infallible;
use std::io;

use crate::files::{ClientFiles, ServerFiles};
use crate::session::Session;
use qpair_block::{Error, ErrorKind, Result};

fn absent() -> Error {
    Error::new(ErrorKind::Unsupported, "this program was built without TLS")
        .hint("build it with the feature tls")
}

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct TlsServer(Infallible);

/// The settings of a client.
#[derive(Clone, Debug)]
pub struct TlsClient(Infallible);

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
