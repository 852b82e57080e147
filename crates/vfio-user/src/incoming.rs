//! A message as it comes in, in pieces.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use crate::codec::{HEADER_BYTES, Header};
use crate::socket;

/// What came with a message.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) header: Header,
    pub(crate) payload: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
}

/// What has come of a message.
#[derive(Debug)]
pub(crate) enum Received {
    /// All of it.
    Message(Message),
    /// Not all of it, and nothing more is there now.
    NotYet,
    /// The peer has closed; in the middle of a message if true.
    Closed(bool),
}

/// Puts messages together. Never reads past the end of one, so that descriptors are those of their message.
#[derive(Debug)]
pub(crate) struct Incoming {
    payload_bytes_max: usize,
    fds_max: usize,
    head: [u8; HEADER_BYTES],
    head_bytes: usize,
    header: Option<Header>,
    payload: Vec<u8>,
    payload_bytes: usize,
    fds: Vec<OwnedFd>,
}

impl Incoming {
    /// Takes messages with up to `payload_bytes_max` and `fds_max` descriptors.
    pub(crate) fn new(payload_bytes_max: usize, fds_max: usize) -> Self {
        Self {
            payload_bytes_max,
            fds_max,
            head: [0; HEADER_BYTES],
            head_bytes: 0,
            header: None,
            payload: Vec::new(),
            payload_bytes: 0,
            fds: Vec::new(),
        }
    }

    /// Takes what is there. An error means that the stream makes no sense any more.
    pub(crate) fn poll(&mut self, stream: &UnixStream) -> io::Result<Received> {
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
                true => &mut self.head[self.head_bytes..],
                false => &mut self.payload[self.payload_bytes..],
            };
            match socket::receive(stream, into, &mut self.fds, self.fds_max) {
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
        if self.head_bytes < HEADER_BYTES {
            return Ok(());
        }
        let wrong = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        let Some(header) = Header::parse(&self.head) else { return Ok(()) };
        match header.payload_bytes() {
            _ if header.is_neither() => wrong("a message that is neither command nor reply".into()),
            None => wrong(format!("a message of {} bytes", header.message_bytes)),
            Some(bytes) if bytes > self.payload_bytes_max => wrong(format!(
                "a message of {} bytes, and {} are the most",
                header.message_bytes,
                self.payload_bytes_max + HEADER_BYTES
            )),
            Some(bytes) => {
                self.payload.clear();
                self.payload.resize(bytes, 0);
                self.payload_bytes = 0;
                self.header = Some(header);
                Ok(())
            }
        }
    }
}
