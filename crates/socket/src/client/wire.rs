//! A connection: a socket that does not block, and its TLS.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;

use qpair_tls::Session;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use crate::stream::receive_bytes;

/// A connection whose negotiation has ended. The socket does not block.
#[derive(Debug)]
pub struct Wire {
    pub socket: OwnedFd,
    pub tls: Option<Box<Session>>,
}

impl Wire {
    /// Reads what has come, as [`receive_bytes`] does.
    #[inline]
    pub(super) fn receive(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        receive_bytes(&self.socket, self.tls.as_deref_mut(), into)
    }

    /// Sends from the front of `bytes`, behind records that wait. Returns `None` if the socket
    /// takes nothing now.
    #[inline]
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        if let Some(session) = &mut self.tls {
            let count = session.send(&self.socket, &[IoSlice::new(bytes)])?;
            return Ok((count > 0).then_some(count));
        }
        match send(&self.socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(count) => Ok(Some(count)),
            Err(Errno::INTR) => Ok(Some(0)),
            Err(Errno::AGAIN) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether records of TLS wait until the socket takes them.
    #[inline]
    pub(super) fn has_records(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.has_output())
    }
}
