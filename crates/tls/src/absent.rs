//! The types of a build without TLS: no value of them exists.

use std::convert::Infallible;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::AsFd;

use qpair_block::{Error, ErrorKind, Result};

use crate::files::{ClientFiles, ServerFiles};

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

/// The TLS of a connection.
#[derive(Debug)]
pub struct Session(Infallible);

/// A session over a socket that blocks.
#[derive(Debug)]
pub struct Blocking<'a, S>(&'a Infallible, std::marker::PhantomData<S>);

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

impl Session {
    pub fn receive(&mut self, _: impl AsFd, _: &mut [u8]) -> io::Result<Option<usize>> {
        match self.0 {}
    }

    pub fn send(&mut self, _: impl AsFd, _: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.0 {}
    }

    pub fn close(&mut self, _: impl AsFd) {
        match self.0 {}
    }

    #[must_use]
    pub fn has_output(&self) -> bool {
        match self.0 {}
    }

    pub fn handshake(&mut self, _: &mut (impl Read + Write)) -> io::Result<()> {
        match self.0 {}
    }

    pub fn blocking<'a, S: Read + Write>(&'a mut self, _: &'a mut S) -> Blocking<'a, S> {
        match self.0 {}
    }
}

impl<S> Read for Blocking<'_, S> {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        match *self.0 {}
    }
}

impl<S> Write for Blocking<'_, S> {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match *self.0 {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match *self.0 {}
    }
}
