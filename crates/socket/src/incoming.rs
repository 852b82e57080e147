//! Reassembles a message that arrives in pieces.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use crate::transfer::receive;

/// The maximum number of bytes of a header.
const HEADER_BYTES_MAX: usize = 16;

/// The header at the beginning of every message of a protocol.
pub trait MessageHeader: Copy {
    /// The bytes of a header, at most 16.
    const BYTES: usize;

    /// Decodes a header. Returns it with the number of bytes that follow.
    ///
    /// # Errors
    /// The bytes are not a header: the rest of the stream cannot be decoded.
    fn read(bytes: &[u8]) -> io::Result<(Self, usize)>;
}

#[derive(Debug)]
pub struct Message<H> {
    pub header: H,
    /// The bytes after the header.
    pub payload: Vec<u8>,
    /// The descriptors that came with the message.
    pub fds: Vec<OwnedFd>,
}

#[derive(Debug)]
pub enum Received<H> {
    Message(Message<H>),
    /// The message is incomplete, and no more bytes are there now.
    NotYet,
    /// The peer has closed the socket. True: in the middle of a message.
    Closed(bool),
}

/// Reassembles messages. Never reads past the end of a message, so that its descriptors are its
/// own.
#[derive(Debug)]
pub struct Incoming<H> {
    payload_bytes_max: usize,
    fds_max: usize,
    head: [u8; HEADER_BYTES_MAX],
    head_bytes: usize,
    header: Option<H>,
    payload: Vec<u8>,
    payload_bytes: usize,
    fds: Vec<OwnedFd>,
}

impl<H: MessageHeader> Incoming<H> {
    /// Makes a receiver of messages with payloads up to `payload_bytes_max` and up to `fds_max`
    /// descriptors.
    #[must_use]
    pub fn new(payload_bytes_max: usize, fds_max: usize) -> Self {
        Self {
            payload_bytes_max,
            fds_max,
            head: [0; HEADER_BYTES_MAX],
            head_bytes: 0,
            header: None,
            payload: Vec::new(),
            payload_bytes: 0,
            fds: Vec::new(),
        }
    }

    /// Receives the available bytes. After an error the rest of the stream cannot be decoded.
    ///
    /// # Errors
    /// The errors of the header and the socket; `InvalidData` for a message that is too long.
    pub fn poll(&mut self, stream: &UnixStream) -> io::Result<Received<H>> {
        loop {
            if let Some(header) = self.header
                && self.payload_bytes == self.payload.len()
            {
                self.header = None;
                self.head_bytes = 0;
                let payload = std::mem::take(&mut self.payload);
                self.payload_bytes = 0;
                let fds = std::mem::take(&mut self.fds);
                return Ok(Received::Message(Message { header, payload, fds }));
            }
            let in_head = self.header.is_none();
            let into = match in_head {
                true => &mut self.head[self.head_bytes..H::BYTES],
                false => &mut self.payload[self.payload_bytes..],
            };
            match receive(stream, into, &mut self.fds, self.fds_max) {
                Ok(0) => return Ok(Received::Closed(self.head_bytes > 0)),
                Ok(bytes) if in_head => {
                    self.head_bytes += bytes;
                    self.head_is_there()?;
                }
                Ok(bytes) => self.payload_bytes += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Received::NotYet);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A peer that closes the socket before it has read all of our bytes: this counts as
                // closing, not as an error.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Ok(Received::Closed(self.head_bytes > 0));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn head_is_there(&mut self) -> io::Result<()> {
        if self.head_bytes < H::BYTES {
            return Ok(());
        }
        let (header, payload_bytes) = H::read(&self.head[..H::BYTES])?;
        if payload_bytes > self.payload_bytes_max {
            let (bytes, most) = (payload_bytes + H::BYTES, self.payload_bytes_max + H::BYTES);
            let what = format!("a message has {bytes} bytes, but at most {most} are allowed");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        self.payload.clear();
        self.payload.resize(payload_bytes, 0);
        self.payload_bytes = 0;
        self.header = Some(header);
        Ok(())
    }
}
