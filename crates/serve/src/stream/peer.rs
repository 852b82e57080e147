//! A peer: the other end of a stream, its TLS, and the bytes in both directions.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use qpair_socket::receive_bytes;
use qpair_tls::Session;

use super::output::Output;

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) stream: Arc<OwnedFd>,
    /// The TLS of a stream that is not in the open.
    pub(crate) tls: Option<Box<Session>>,
    /// Bytes that were read and not taken.
    pub(crate) input: Vec<u8>,
    pub(crate) output: Output,
    pub(crate) since: Instant,
    /// The last time at which bytes moved, in either direction, and at which bytes came.
    pub(crate) moved_at: Instant,
    pub(crate) heard_at: Instant,
    /// Whether the connection ends after its last output.
    pub(crate) is_leaving: bool,
    /// Whether the connection has ended. The peer stays until its last part ends.
    pub(crate) is_dead: bool,
    /// Whether something has happened to the peer in this turn.
    pub(super) is_dirty: bool,
    /// Whether the peer waits for a head or a block.
    pub(crate) is_waiting: bool,
}

impl Peer {
    pub(crate) fn new(stream: OwnedFd, tls: Option<Box<Session>>) -> Self {
        let now = Instant::now();
        Self {
            stream: Arc::new(stream),
            tls,
            input: Vec::new(),
            output: Output::default(),
            since: now,
            moved_at: now,
            heard_at: now,
            is_leaving: false,
            is_dead: false,
            is_dirty: false,
            is_waiting: false,
        }
    }

    /// Whether bytes wait until the socket takes them.
    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty() || self.tls.as_ref().is_some_and(|session| session.has_output())
    }

    /// Tells the peer that nothing more comes, if it has TLS.
    pub(crate) fn close_tls(&mut self) {
        if let Some(session) = &mut self.tls {
            session.close(&self.stream);
        }
    }

    /// Reads what has come, as [`receive_bytes`] does.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        receive_bytes(&self.stream, self.tls.as_deref_mut(), buffer)
    }
}
