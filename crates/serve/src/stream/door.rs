//! The listening socket of a server.

use std::net::{TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use qpair_block::{Error, ErrorKind, Result};
use qpair_socket::Listener;

#[derive(Debug)]
pub(crate) enum Door {
    Unix(Listener),
    Tcp(TcpListener),
}

impl Door {
    /// Listens at a path. Returns the socket, and the absolute path.
    pub(crate) fn unix(path: &Path) -> Result<(Self, PathBuf)> {
        let listener = Listener::bind(path)?;
        let path = listener.path().to_owned();
        Ok((Self::Unix(listener), path))
    }

    /// Listens at a port of an address of this machine. Returns the socket, and the port that was
    /// chosen if `port` is 0.
    pub(crate) fn tcp(host: &str, port: u16) -> Result<(Self, u16)> {
        let failed = |cause: std::io::Error| {
            let kind = cause.kind();
            let error = Error::os(cause, format!("nothing can listen at tcp:{host}:{port}"));
            match kind {
                std::io::ErrorKind::AddrInUse => error.hint("choose another port"),
                _ => error.hint("give an address of this machine"),
            }
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let found: Vec<_> = (bare, port).to_socket_addrs().map_err(failed)?.collect();
        let first = found.first().ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("tcp:{host}:{port}: the host has no address"))
        })?;
        let listener = TcpListener::bind(first).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        Ok((Self::Tcp(listener), port))
    }

    /// Accepts the next waiting client, as a nonblocking socket.
    pub(crate) fn accept(&self) -> Option<OwnedFd> {
        match self {
            Self::Unix(listener) => listener.accept().map(OwnedFd::from),
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().ok()?;
                stream.set_nonblocking(true).ok()?;
                // Replies are sent in batches; a small one must not wait for the next.
                stream.set_nodelay(true).ok()?;
                Some(stream.into())
            }
        }
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}
