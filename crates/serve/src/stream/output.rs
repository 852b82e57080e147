//! Replies on their way to a client.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use qpair_block::Buffer;
use qpair_tls::Session;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

/// The most pieces of one system call.
const PIECES_MAX: usize = 128;

/// A header, and the data after it.
#[derive(Debug)]
struct Entry {
    head_bytes: usize,
    data: Option<(Buffer, u32)>,
}

impl Entry {
    fn len(&self) -> usize {
        self.head_bytes + self.data.as_ref().map_or(0, |(_, len)| *len as usize)
    }
}

/// The replies that a client has not read, in their order.
#[derive(Debug, Default)]
pub(crate) struct Output {
    entries: VecDeque<Entry>,
    /// The headers of all entries, one after the other.
    heads: VecDeque<u8>,
    /// The bytes of the first entry that are sent.
    sent: usize,
    /// The bytes of all entries, without those that are sent.
    pub(crate) bytes: usize,
}

impl Output {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the bytes of all headers, the first of which may be sent.
    pub(crate) fn heads_bytes(&self) -> usize {
        self.heads.len()
    }

    pub(crate) fn has_data(&self) -> bool {
        self.entries.iter().any(|entry| entry.data.is_some())
    }

    pub(crate) fn push(&mut self, head: &[u8], data: Option<(Buffer, u32)>) {
        let entry = Entry { head_bytes: head.len(), data };
        self.bytes += entry.len();
        self.heads.extend(head);
        self.entries.push_back(entry);
    }

    /// Appends the entries of another queue, of which nothing was sent.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.entries.append(&mut other.entries);
        self.heads.append(&mut other.heads);
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Sends what the socket takes at once. Returns the number of bytes.
    ///
    /// # Errors
    /// The socket's, if the client has gone.
    pub(crate) fn send(&mut self, stream: BorrowedFd<'_>) -> Result<usize, Errno> {
        let mut total = 0;
        while !self.entries.is_empty() {
            let (sent, is_all) = self.send_some(|pieces| {
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                match sendmsg(stream, pieces, &mut SendAncillaryBuffer::default(), flags) {
                    Err(Errno::AGAIN | Errno::INTR) => Ok(0),
                    other => other,
                }
            })?;
            total += sent;
            if !is_all {
                break;
            }
        }
        Ok(total)
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
        let mut total = session.send(stream, &[])?;
        while !self.entries.is_empty() {
            let (sent, is_all) = self.send_some(|pieces| session.send(stream, pieces))?;
            total += sent;
            if !is_all {
                break;
            }
        }
        Ok(total)
    }

    /// Gives the first entries to `send`. Returns how many bytes it took, and whether all.
    fn send_some<E>(
        &mut self,
        send: impl FnOnce(&[IoSlice<'_>]) -> Result<usize, E>,
    ) -> Result<(usize, bool), E> {
        let heads = self.heads.make_contiguous();
        let mut pieces = Vec::with_capacity(PIECES_MAX.min(2 * self.entries.len()));
        let (mut at, mut skip, mut len) = (0, self.sent, 0);
        for entry in &self.entries {
            if pieces.len() + 2 > PIECES_MAX {
                break;
            }
            let head = &heads[at..at + entry.head_bytes];
            at += entry.head_bytes;
            let data =
                entry.data.as_ref().and_then(|(block, len)| block.as_slice().get(..*len as usize));
            for bytes in [head, data.unwrap_or_default()] {
                let rest = &bytes[skip.min(bytes.len())..];
                skip -= skip.min(bytes.len());
                if !rest.is_empty() {
                    len += rest.len();
                    pieces.push(IoSlice::new(rest));
                }
            }
        }
        let sent = send(&pieces)?;
        drop(pieces);
        self.bytes -= sent;
        self.sent += sent;
        while let Some(entry) = self.entries.front()
            && self.sent >= entry.len()
        {
            self.sent -= entry.len();
            self.heads.drain(..entry.head_bytes);
            self.entries.pop_front();
        }
        Ok((sent, sent == len))
    }
}
