//! Replies on their way to a client.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use qpair_block::Buffer;
use qpair_kernel::Outgoing;
use qpair_tls::Session;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

/// The part of an output that is with the kernel.
#[derive(Debug)]
struct Away {
    bytes: usize,
    heads_bytes: usize,
    has_data: bool,
}

/// The replies that a client has not read, in their order.
#[derive(Debug, Default)]
pub(crate) struct Output {
    waiting: Outgoing,
    /// The replies before them that a ring is sending.
    away: Option<Away>,
    /// The memory for a header.
    head: Vec<u8>,
}

impl Output {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.away.is_none()
    }

    /// Returns the bytes of all replies that are not known to be sent.
    pub(crate) fn bytes(&self) -> usize {
        self.waiting.bytes() + self.away.as_ref().map_or(0, |away| away.bytes)
    }

    /// Returns the bytes of all headers, the first of which may be sent.
    pub(crate) fn heads_bytes(&self) -> usize {
        self.waiting.heads_bytes() + self.away.as_ref().map_or(0, |away| away.heads_bytes)
    }

    pub(crate) fn has_data(&self) -> bool {
        self.waiting.has_data() || self.away.as_ref().is_some_and(|away| away.has_data)
    }

    pub(crate) fn push(&mut self, head: &[u8], data: Option<(Buffer, u32)>) {
        self.waiting.push(head, data);
    }

    /// Appends a reply whose header `put` writes.
    pub(crate) fn put(&mut self, put: impl FnOnce(&mut Vec<u8>), data: Option<(Buffer, u32)>) {
        put(&mut self.head);
        self.waiting.push(&self.head, data);
        self.head.clear();
    }

    /// Appends the entries of another output, of which nothing was sent.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.waiting.append(&mut other.waiting);
    }

    /// Gives all replies to `send`, unless others are with it.
    pub(super) fn send_away(&mut self, send: impl FnOnce(Outgoing) -> Result<(), Outgoing>) {
        if self.away.is_some() || self.waiting.is_empty() {
            return;
        }
        let outgoing = std::mem::take(&mut self.waiting);
        let away = Away {
            bytes: outgoing.bytes(),
            heads_bytes: outgoing.heads_bytes(),
            has_data: outgoing.has_data(),
        };
        match send(outgoing) {
            Ok(()) => self.away = Some(away),
            Err(outgoing) => self.waiting = outgoing,
        }
    }

    /// Takes back the replies that a ring has not sent.
    pub(crate) fn come_back(&mut self, mut rest: Outgoing) {
        self.away = None;
        rest.append(&mut self.waiting);
        self.waiting = rest;
    }

    /// Sends what the socket takes at once. Returns the number of bytes.
    ///
    /// # Errors
    /// The socket's, if the client has gone.
    pub(super) fn send(&mut self, stream: BorrowedFd<'_>) -> Result<usize, Errno> {
        self.send_all(0, |pieces| {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(stream, pieces, &mut SendAncillaryBuffer::default(), flags) {
                Err(Errno::AGAIN | Errno::INTR) => Ok(0),
                other => other,
            }
        })
    }

    /// Sends inside TLS as [`Output::send`] does. The session keeps what the socket does not take,
    /// up to a limit.
    ///
    /// # Errors
    /// As [`Session::send`].
    pub(crate) fn send_by(
        &mut self,
        session: &mut Session,
        stream: BorrowedFd<'_>,
    ) -> io::Result<usize> {
        let before = session.send(stream, &[])?;
        self.send_all(before, |pieces| session.send(stream, pieces))
    }

    /// Gives the replies to `send` until it does not take all. Returns `total` and the number of
    /// bytes that it took.
    fn send_all<E>(
        &mut self,
        mut total: usize,
        mut send: impl FnMut(&[IoSlice<'_>]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        while !self.waiting.is_empty() {
            let pieces = self.waiting.pieces();
            let len: usize = pieces.iter().map(|piece| piece.len()).sum();
            let sent = send(&pieces)?;
            drop(pieces);
            self.waiting.advance(sent);
            total += sent;
            if sent < len {
                break;
            }
        }
        Ok(total)
    }
}
