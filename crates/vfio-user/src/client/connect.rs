//! Connects to a path, and agrees with the server on the protocol.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use qpair_block::{Error, ErrorKind, Result};

use super::connection::Connection;
use super::errors;
use crate::codec::{Capabilities, MAJOR, MINOR, Version};
use qpair_socket::MESSAGE_FDS_MAX;

/// Returns the socket for a path: some servers are named by the folder of their socket.
pub(super) fn socket_path(path: &Path) -> PathBuf {
    if path.is_dir() { path.join("cntrl") } else { path.to_owned() }
}

pub(super) fn open(path: &Path, name: &str) -> Result<UnixStream> {
    let stream = UnixStream::connect(path).and_then(|stream| {
        stream.set_nonblocking(true)?;
        Ok(stream)
    });
    stream.map_err(|cause| {
        let context = format!("{name}: connecting");
        match cause.kind() {
            io::ErrorKind::NotFound => Error::os(cause, context)
                .hint("start the device first: qpair softdrive --socket PATH"),
            io::ErrorKind::ConnectionRefused => {
                Error::new(ErrorKind::Gone, context).caused_by(cause).hint(
                    "no process serves a device there, or it is not a socket: start qpair softdrive --socket PATH",
                )
            }
            io::ErrorKind::PermissionDenied => Error::os(cause, context).hint(
                "connecting takes write permission on the socket: run as the user who serves it, or let that user change its mode",
            ),
            io::ErrorKind::InvalidInput => Error::new(ErrorKind::Invalid, context)
                .caused_by(cause)
                .hint("the path of a socket has at most 107 bytes"),
            // The path is a socket of another type (datagrams).
            _ if cause.raw_os_error() == Some(rustix::io::Errno::PROTOTYPE.raw_os_error()) => {
                errors::not_vfio_user(name, "it is a socket of another kind")
            }
            io::ErrorKind::WouldBlock => Error::new(ErrorKind::Busy, context)
                .caused_by(cause)
                .hint("too many wait to connect there: is its server stopped?"),
            _ => Error::os(cause, context),
        }
    })
}

pub(super) fn agree(connection: &mut Connection) -> Result<()> {
    let name = connection.name().to_owned();
    let capabilities =
        Capabilities { max_msg_fds: MESSAGE_FDS_MAX as u32, ..Capabilities::default() };
    let ours = Version { major: MAJOR, minor: MINOR, capabilities };
    let reply = connection.greet(&ours.payload())?;
    let theirs = Version::parse(&reply.payload)
        .ok_or_else(|| errors::not_vfio_user(&name, "its greeting makes no sense"))?;
    if theirs.major != MAJOR {
        let context = format!(
            "{name} speaks vfio-user {}.{}, but this program speaks {MAJOR}.{MINOR}",
            theirs.major, theirs.minor
        );
        return Err(Error::new(ErrorKind::Unsupported, context)
            .hint("use versions of both programs that go together"));
    }
    Ok(())
}
