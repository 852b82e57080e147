//! The settings of a build without TLS by keys: no value of them exists.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use qpair_block::{Error, ErrorKind, Result};
use qpair_tls_psk::{Key, KeySource};

use crate::session::Session;

fn absent() -> Error {
    Error::new(ErrorKind::Unsupported, "this program was built without TLS for NVMe/TCP")
        .hint("build it with the feature nvme-tls: cargo build -p qpair-cli --features nvme-tls")
}

/// The settings of a server whose clients have keys.
#[derive(Clone, Debug)]
pub struct PskServer(Infallible);

/// The settings of a client that has keys.
#[derive(Clone, Debug)]
pub struct PskClient(Infallible);

impl PskServer {
    /// # Errors
    /// `Unsupported`.
    pub fn new(_: Arc<dyn KeySource>) -> Result<Self> {
        Err(absent())
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
        Err(absent())
    }

    /// # Errors
    /// None: there are no settings.
    pub fn session(&self) -> io::Result<Session> {
        match self.0 {}
    }
}
