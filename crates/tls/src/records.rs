//! The two kinds of TLS: by certificates (rustls), and by keys that both ends have (s2n-tls).

use std::io::{self, IoSlice, Read, Write};

/// The result of [`Records::open`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Opened {
    /// The bytes of data.
    pub(crate) filled: usize,
    /// Whether the peer has said that it sends no more.
    pub(crate) is_end: bool,
}

/// A socket that blocks.
pub(crate) trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

/// The state of a connection, without its socket.
pub(crate) trait Records: Send {
    fn is_handshaking(&self) -> bool;

    /// Takes records, carries the handshake on, and moves data that is deciphered. Records are left
    /// over only if `into` is full.
    fn open(&mut self, records: &mut &[u8], into: &mut [u8]) -> io::Result<Opened>;

    /// Enciphers data, and returns how many bytes were taken: 0 while much output waits.
    fn seal(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Makes the message that no more data follows.
    fn close(&mut self);

    fn has_output(&self) -> bool;

    /// Writes some of the output.
    fn write_output(&mut self, to: &mut dyn Write) -> io::Result<usize>;

    /// Writes all output to a socket that blocks, and reads a part of a record.
    fn exchange(&mut self, socket: &mut dyn Stream) -> io::Result<()>;

    fn psk_identity(&self) -> Option<&[u8]> {
        None
    }
}
