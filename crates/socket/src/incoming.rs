//! A message as it comes in, in pieces.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use crate::transfer::receive;

/// Most bytes of a header.
const HEADER_BYTES_MAX: usize = 16;

/// What every message of a protocol begins with.
pub trait MessageHeader: Copy {
    /// Bytes of it, at most 16.
    const BYTES: usize;

    /// Reads it: and how many bytes follow.
    ///
    /// # Errors
    /// It is none: the stream makes no sense any more.
    fn read(bytes: &[u8]) -> io::Result<(Self, usize)>;
}

/// What came with a message.
#[derive(Debug)]
pub struct Message<H> {
    /// Its header.
    pub header: H,
    /// What followed it.
    pub payload: Vec<u8>,
    /// Descriptors that came with it.
    pub fds: Vec<OwnedFd>,
}

/// What has come of a message.
#[derive(Debug)]
pub enum Received<H> {
    /// All of it.
    Message(Message<H>),
    /// Not all of it, and nothing more is there now.
    NotYet,
    /// The peer has closed; in the middle of a message if true.
    Closed(bool),
}

/// Puts messages together. Never reads past the end of one, so that descriptors are those of their message.
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
    /// Takes messages with up to `payload_bytes_max` and `fds_max` descriptors.
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

    /// Takes what is there. An error means that the stream makes no sense any more.
    ///
    /// # Errors
    /// What the header says, or the socket; `InvalidData` for a message that is too long.
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
                // Closed with bytes of ours unread: what is said to be an error is just that it is gone.
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
            let what = format!("a message of {bytes} bytes, and {most} are the most");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        self.payload.clear();
        self.payload.resize(payload_bytes, 0);
        self.payload_bytes = 0;
        self.header = Some(header);
        Ok(())
    }
}
