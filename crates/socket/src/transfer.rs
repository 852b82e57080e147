//! Bytes and descriptors over a socket. Nothing here blocks.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

pub const MESSAGE_FDS_MAX: usize = 16;

/// Receives up to `into.len()` bytes, and the descriptors that come with them. Returns 0 if the
/// peer has closed. Descriptors beyond `fds_max` in all are closed, and are an error.
pub fn receive(
    stream: &UnixStream,
    into: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    fds_max: usize,
) -> io::Result<usize> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_FDS_MAX))];
    // Descriptors that are not taken out of the buffer are closed with it.
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = rustix::net::recvmsg(stream, &mut [IoSliceMut::new(into)], &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    // Truncated: there were more descriptors than fit, or this process cannot open more.
    if received.flags.contains(ReturnFlags::CTRUNC) || fds.len() > fds_max {
        return Err(io::Error::other(
            "more descriptors came than a message may have, or than this process may open",
        ));
    }
    Ok(received.bytes)
}

/// Sends some of `bytes`, with descriptors beside the first of them. Returns the number of bytes
/// sent.
pub fn send(stream: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    Ok(rustix::net::sendmsg(stream, &[IoSlice::new(bytes)], &mut control, flags)?)
}
