//! A connection that has not sent all of its first message. Any number of them keep no client out.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;

use super::session::PAYLOAD_BYTES_MAX;
use crate::codec::Header;
use crate::{Incoming, Message};
use qpair_socket::{MESSAGE_FDS_MAX, Received};

#[derive(Debug)]
pub(super) struct Caller {
    stream: UnixStream,
    incoming: Incoming,
}

#[derive(Debug)]
pub(super) enum Said {
    /// Nothing has arrived, or only a part of a message.
    NotYet,
    /// The first message arrived.
    All(Message),
    /// The caller closed the connection, in the middle of a message if true.
    Gone(bool),
    /// The caller sent invalid bytes.
    Wrong(io::Error),
}

impl Caller {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, incoming: Incoming::new(PAYLOAD_BYTES_MAX, MESSAGE_FDS_MAX) }
    }

    pub(super) fn poll(&mut self) -> Said {
        match self.incoming.poll(&self.stream) {
            Ok(Received::NotYet) => Said::NotYet,
            Ok(Received::Closed(cut)) => Said::Gone(cut),
            Ok(Received::Message(message)) => Said::All(message),
            Err(error) => Said::Wrong(error),
        }
    }

    pub(super) fn into_parts(self) -> (UnixStream, Incoming) {
        (self.stream, self.incoming)
    }

    /// Tells the caller that there is a client already.
    pub(super) fn refuse(mut self, header: Header) {
        let answer = header.error(Errno::BUSY.raw_os_error() as u32).message(&[]);
        // A new socket accepts so few bytes at once. If not, closing it is answer enough.
        let _ = self.stream.write(&answer);
        // If bytes were left unread, the client would not get the answer. A plain read closes any
        // descriptors that come with them.
        let mut rest = [0; 4096];
        let _ = self.stream.read(&mut rest);
    }
}

impl AsFd for Caller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
