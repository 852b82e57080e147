//! Bytes of a stream, which may be inside TLS.

use std::io;
use std::os::fd::OwnedFd;

use qpair_tls::Session;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

/// Reads what a stream has, through its TLS if it has any. Does not block: returns `None` if
/// nothing has come, and 0 if the peer has closed the connection.
///
/// # Errors
/// The socket's, and those of [`Session::receive`].
#[inline]
pub fn receive_bytes(
    stream: &OwnedFd,
    tls: Option<&mut Session>,
    into: &mut [u8],
) -> io::Result<Option<usize>> {
    if let Some(session) = tls {
        return session.receive(stream, into);
    }
    match recv(stream, into, RecvFlags::DONTWAIT) {
        Ok((_, count)) => Ok(Some(count)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}
