//! The socket that clients connect to.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use qpair_block::{Error, ErrorKind, Result};
use rustix::event::{PollFd, PollFlags};

/// The maximum length of a socket's path (sockaddr_un) in bytes, without the terminating 0.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// A listening socket at a path. Dropping it removes the path, if that is still this socket's.
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
    path: PathBuf,
    /// The device and inode number of the socket.
    identity: Option<(u64, u64)>,
}

impl Listener {
    /// Listens at a path. Replaces a socket at which no process listens any more.
    ///
    /// # Errors
    /// `Exists` if something else is there; `Busy` if a process listens there; the system's errors.
    pub fn bind(path: &Path) -> Result<Self> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let listener = match UnixListener::bind(&path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                remove_stale(&path)?;
                UnixListener::bind(&path)
            }
            other => other,
        }
        .map_err(|cause| cannot_listen(cause, &path))?;
        listener
            .set_nonblocking(true)
            .map_err(|cause| Error::os(cause, format!("{}: listening", path.display())))?;
        let identity = std::fs::symlink_metadata(&path).ok().map(|m| (m.dev(), m.ino()));
        Ok(Self { listener, path, identity })
    }

    /// Returns the absolute path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sleeps until a client waits or `wake` becomes readable. Returns the client, if there is one.
    #[must_use]
    pub fn wait(&self, wake: BorrowedFd<'_>) -> Option<UnixStream> {
        let mut fds = [PollFd::new(self, PollFlags::IN), PollFd::new(&wake, PollFlags::IN)];
        // Whether the wait fails or not, the caller checks again.
        let _ = rustix::event::poll(&mut fds, None);
        self.accept()
    }

    /// Accepts the next waiting client, as a nonblocking stream. If accepting fails, because the
    /// client has gone or descriptors ran out, the next poll tries again.
    #[must_use]
    pub fn accept(&self) -> Option<UnixStream> {
        let (stream, _) = self.listener.accept().ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(stream)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let now = std::fs::symlink_metadata(&self.path).ok().map(|m| (m.dev(), m.ino()));
        if now.is_some() && now == self.identity {
            // If the socket cannot be removed, the next listener treats it as stale.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Removes a socket at which no process listens.
fn remove_stale(path: &Path) -> Result<()> {
    let shown = path.display();
    let kind = std::fs::symlink_metadata(path).map(|metadata| metadata.file_type());
    if !kind.is_ok_and(|kind| kind.is_socket()) {
        return Err(Error::new(ErrorKind::Exists, format!("{shown} exists and is not a socket"))
            .hint("choose another path for the socket"));
    }
    match UnixStream::connect(path) {
        Ok(_) => {
            Err(Error::new(ErrorKind::Busy, format!("another process serves at {shown} already"))
                .hint("end that one, or choose another path"))
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(|cause| {
                Error::os(cause, format!("{shown}: removing a socket that no process listens at"))
            })
        }
        Err(error) => {
            Err(Error::os(error, format!("{shown}: checking whether another process serves there")))
        }
    }
}

fn cannot_listen(cause: io::Error, path: &Path) -> Error {
    let shown = path.display();
    let kind = cause.kind();
    let bytes = path.as_os_str().len();
    let error = Error::os(cause, format!("{shown}: listening"));
    match kind {
        io::ErrorKind::InvalidInput if bytes > SOCKET_PATH_BYTES_MAX => Error::new(
            ErrorKind::Invalid,
            format!("{shown}: {bytes} bytes are too many for the path of a socket"),
        )
        .hint(format!(
            "the system takes {SOCKET_PATH_BYTES_MAX}: choose a shorter path, such as one in /run"
        )),
        io::ErrorKind::NotFound => error.hint("make the folder first"),
        io::ErrorKind::PermissionDenied => error.hint("choose a folder that you can write"),
        _ => error,
    }
}
