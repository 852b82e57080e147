//! A client that comes while there is one: it is told so, in answer to its first message.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;

use crate::codec::{HEADER_BYTES, Header};

#[derive(Debug)]
pub(super) struct Refusal {
    stream: UnixStream,
    head: [u8; HEADER_BYTES],
    head_bytes: usize,
}

impl Refusal {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, head: [0; HEADER_BYTES], head_bytes: 0 }
    }

    /// Whether it is done with.
    pub(super) fn poll(&mut self) -> bool {
        // A plain read closes what descriptors may come.
        match self.stream.read(&mut self.head[self.head_bytes..]) {
            Ok(0) => true,
            Ok(bytes) => {
                self.head_bytes += bytes;
                if self.head_bytes < HEADER_BYTES {
                    return false;
                }
                if let Some(header) = Header::parse(&self.head) {
                    let answer = header.error(Errno::BUSY.raw_os_error() as u32).message(&[]);
                    // A socket just opened takes so few bytes at once; if not, closing it says enough.
                    let _ = self.stream.write(&answer);
                    // Bytes left unread would take the answer away from the client.
                    let mut rest = [0; 4096];
                    while self.stream.read(&mut rest).is_ok_and(|bytes| bytes == rest.len()) {}
                }
                true
            }
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
}
