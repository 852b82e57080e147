//! TLS by keys that both ends have: s2n-tls.

use std::io::{self, IoSlice, Write};
use std::sync::Arc;

use qpair_block::{Error, ErrorKind, Result};
use qpair_tls_psk::{Client, Connection, Key, KeySource, Server};

use crate::records::{Opened, Records, Stream};
use crate::session::Session;

/// Small pieces are put together into records of so many bytes.
const RECORD_BYTES: usize = 16 << 10;
const RECORD_BYTES_MAX: usize = 17 << 10;

fn failed(cause: io::Error) -> Error {
    Error::new(ErrorKind::Unsupported, format!("TLS cannot be set up: {cause}"))
}

/// A server whose clients have keys. A clone shares its settings.
#[derive(Clone, Debug)]
pub struct PskServer(Server);

/// A client that has keys. A clone shares its settings.
#[derive(Clone, Debug)]
pub struct PskClient(Client);

impl PskServer {
    /// Makes a server that asks for keys by identity.
    ///
    /// # Errors
    /// `Unsupported` in a build without the feature `psk`.
    pub fn new(keys: Arc<dyn KeySource>) -> Result<Self> {
        Server::new(keys).map(Self).map_err(failed)
    }

    /// Begins the TLS of a connection that was accepted.
    ///
    /// # Errors
    /// The errors of s2n-tls.
    pub fn session(&self) -> io::Result<Session> {
        self.0.connection().map(Keyed::session)
    }
}

impl PskClient {
    /// Makes a client that offers keys, the first of which it prefers.
    ///
    /// # Errors
    /// `Unsupported` in a build without the feature `psk`.
    pub fn new(keys: &[Key]) -> Result<Self> {
        Client::new(keys).map(Self).map_err(failed)
    }

    /// Begins the TLS of a connection to a server.
    ///
    /// # Errors
    /// The errors of s2n-tls.
    pub fn session(&self) -> io::Result<Session> {
        self.0.connection().map(Keyed::session)
    }
}

/// A connection, and the input that it has not taken.
struct Keyed {
    connection: Connection,
    pending: Vec<u8>,
}

impl Keyed {
    fn session(connection: Connection) -> Session {
        Session::new(Self { connection, pending: Vec::new() })
    }
}

impl Records for Keyed {
    fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    fn open(&mut self, records: &mut &[u8], into: &mut [u8]) -> io::Result<Opened> {
        let mut filled = 0;
        if !self.pending.is_empty() {
            let mut pending = &self.pending[..];
            let opened = self.connection.open(&mut pending, into)?;
            let taken = self.pending.len() - pending.len();
            self.pending.drain(..taken);
            filled = opened.filled;
            if opened.is_end || !self.pending.is_empty() {
                return Ok(Opened { filled, is_end: opened.is_end });
            }
        }
        let opened = self.connection.open(records, &mut into[filled..])?;
        Ok(Opened { filled: filled + opened.filled, is_end: opened.is_end })
    }

    fn seal(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.is_handshaking() {
            return Ok(0);
        }
        let (mut taken, mut record) = (0, Vec::new());
        for piece in pieces {
            let mut piece = &**piece;
            while !piece.is_empty() {
                let count = piece.len().min(RECORD_BYTES - record.len());
                let (first, rest) = piece.split_at(count);
                piece = rest;
                let whole = if count == RECORD_BYTES {
                    first
                } else {
                    record.extend_from_slice(first);
                    &record
                };
                if whole.len() == RECORD_BYTES {
                    let count = self.connection.seal(whole)?;
                    taken += count;
                    if count < RECORD_BYTES {
                        return Ok(taken);
                    }
                    record.clear();
                }
            }
        }
        Ok(taken + self.connection.seal(&record)?)
    }

    fn close(&mut self) {
        self.connection.close();
    }

    fn has_output(&self) -> bool {
        !self.connection.output().is_empty()
    }

    fn write_output(&mut self, to: &mut dyn Write) -> io::Result<usize> {
        let count = to.write(self.connection.output())?;
        self.connection.sent(count);
        Ok(count)
    }

    fn exchange(&mut self, socket: &mut dyn Stream) -> io::Result<()> {
        while self.has_output() {
            self.write_output(socket)?;
        }
        // No byte more than the record has: what follows may be for a socket that does not block.
        let mut bytes = vec![0; self.connection.wanted_bytes().clamp(1, RECORD_BYTES_MAX)];
        let count = socket.read(&mut bytes)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.pending.extend(&bytes[..count]);
        let result = self.open(&mut &[][..], &mut []);
        while self.has_output() {
            self.write_output(socket)?;
        }
        result.map(drop)
    }

    fn psk_identity(&self) -> Option<&[u8]> {
        self.connection.identity()
    }
}
