//! The TLS of one connection.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};

use crate::records::{Records, Stream};

/// The most bytes that a record has, with its header, and so the most that wait for the rest of a
/// record.
const RECORD_BYTES_MAX: usize = 17 << 10;

/// The TLS of a connection. The socket belongs to the caller, who gives it with each call.
///
/// At most 64 KiB of output wait here, and one record of input.
pub struct Session(Box<dyn Records>);

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

/// A socket that does not block, as a stream.
struct Socket<'a>(BorrowedFd<'a>);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        Ok(sendmsg(self.0, pieces, &mut SendAncillaryBuffer::default(), flags)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Session {
    #[cfg_attr(
        not(any(feature = "rustls", feature = "psk")),
        expect(dead_code, reason = "a build without TLS has no sessions")
    )]
    pub(crate) fn new(records: impl Records + 'static) -> Self {
        Self(Box::new(records))
    }

    /// Receives data, as `recv` does on a socket that does not block. Part of `into` is used for
    /// the records, so it should have 32 KiB or more. `None`: there is no data now, while the
    /// handshake goes on too. 0: the peer has closed the connection.
    ///
    /// # Errors
    /// `InvalidData` if the handshake fails or a record is not genuine; the socket's errors. The
    /// connection cannot be used any more.
    pub fn receive(&mut self, socket: impl AsFd, into: &mut [u8]) -> io::Result<Option<usize>> {
        let socket = socket.as_fd();
        // Data that came with the end of a handshake which blocked.
        let opened = self.0.open(&mut &[][..], into)?;
        let mut filled = opened.filled;
        if opened.is_end {
            return Ok(Some(filled));
        }
        let room = (into.len() - filled).saturating_sub(RECORD_BYTES_MAX) / 2;
        if room == 0 {
            return Ok(Some(filled));
        }
        let records_at = into.len() - room;
        let count = match recv(socket, &mut into[records_at..], RecvFlags::DONTWAIT) {
            Ok((_, count)) => count,
            Err(Errno::AGAIN | Errno::INTR) if filled > 0 => return Ok(Some(filled)),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        if count == 0 {
            return Ok(Some(filled));
        }
        let (data, records) = into.split_at_mut(records_at);
        let mut records = &records[..count];
        let opened = self.0.open(&mut records, &mut data[filled..]).inspect_err(|_| {
            // The peer should be told why; whether that succeeds changes nothing.
            let _ = self.flush(socket);
        })?;
        filled += opened.filled;
        if opened.is_end {
            // The peer said that this is its last message.
            return Ok(Some(filled));
        }
        self.flush(socket)?;
        Ok((filled > 0).then_some(filled))
    }

    /// Takes data, enciphers it, and sends what the socket takes at once. Returns how many bytes
    /// were taken. With no data it sends what was taken before.
    ///
    /// # Errors
    /// The socket's, if the peer has gone.
    pub fn send(&mut self, socket: impl AsFd, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let socket = socket.as_fd();
        self.flush(socket)?;
        let all: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut taken = 0;
        while taken < all {
            let mut rest: Vec<&[u8]> = pieces.iter().map(|piece| &**piece).collect();
            let mut skip = taken;
            for piece in &mut rest {
                let skipped = skip.min(piece.len());
                *piece = &piece[skipped..];
                skip -= skipped;
            }
            let rest: Vec<IoSlice<'_>> = rest.into_iter().map(IoSlice::new).collect();
            let count = self.0.seal(&rest)?;
            taken += count;
            self.flush(socket)?;
            if count == 0 || self.has_output() {
                break;
            }
        }
        Ok(taken)
    }

    /// Tells the peer that this is the last message, as far as the socket takes it at once.
    pub fn close(&mut self, socket: impl AsFd) {
        self.0.close();
        // The connection ends in any case.
        let _ = self.flush(socket.as_fd());
    }

    /// Whether records wait until the socket takes them.
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.0.has_output()
    }

    /// Returns the identity of the key that both ends use, if TLS is by such a key and the
    /// handshake has ended.
    #[must_use]
    pub fn psk_identity(&self) -> Option<&[u8]> {
        self.0.psk_identity()
    }

    fn flush(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        while self.0.has_output() {
            match self.0.write_output(&mut Socket(socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Does the handshake on a socket that blocks.
    ///
    /// # Errors
    /// As [`Session::receive`].
    pub fn handshake(&mut self, socket: &mut (impl Read + Write)) -> io::Result<()> {
        while self.0.is_handshaking() {
            self.0.exchange(socket)?;
        }
        Ok(())
    }

    /// Returns the connection as a stream over a socket that blocks.
    pub fn blocking<'a, S: Read + Write>(&'a mut self, socket: &'a mut S) -> Blocking<'a, S> {
        Blocking { session: self, socket }
    }
}

/// A session over a socket that blocks.
#[derive(Debug)]
pub struct Blocking<'a, S> {
    session: &'a mut Session,
    socket: &'a mut S,
}

impl<S: Read + Write> Read for Blocking<'_, S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let records = &mut self.session.0;
        loop {
            let opened = records.open(&mut &[][..], into)?;
            if opened.filled > 0 || opened.is_end || into.is_empty() {
                return Ok(opened.filled);
            }
            let socket: &mut dyn Stream = self.socket;
            records.exchange(socket)?;
        }
    }
}

impl<S: Read + Write> Write for Blocking<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.session.0.seal(&[IoSlice::new(bytes)])?;
        self.flush()?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.session.0.has_output() {
            self.session.0.write_output(self.socket)?;
        }
        Ok(())
    }
}
