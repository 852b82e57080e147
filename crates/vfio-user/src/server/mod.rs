//! The device's side: a socket on which one client at a time drives a device.
//!
//! Always: nothing blocks; a client reaches the device by [`PciDevice`]'s calls alone; what a client opened, its memory and its events, is
//! closed when it goes, the function is reset, and what it shared is shared no more; a client costs a bounded amount of memory, descriptors and work for each poll.

mod answer;
mod counters;
mod host;
mod listen;
mod maps;
mod refusal;
mod session;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_block::Result;
use qpair_pci::{BusGuard, PciDevice};

pub use counters::Counters;
pub use host::{Host, Idle};
pub use session::{Ended, Session, Turn};

use listen::Listener;
use refusal::Refusal;

/// How long a client may take for its first message, if another waits.
const GREETING_MAX: Duration = Duration::from_secs(2);
/// Clients being told that there is one already, at most.
const REFUSALS_MAX: usize = 8;

/// How a device is served.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Whether clients may map what the device shares (doorbells). Without, each access goes over the socket.
    pub mapped: bool,
    /// Ranges of memory that a client has open, at most.
    pub dma_maps_max: usize,
    /// Covers what clients pass, so that one that cuts its memory short ends its own session and not this process. Without, a server
    /// trusts its clients with that.
    pub guard: Option<BusGuard>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self { mapped: true, dma_maps_max: 4096, guard: None }
    }
}

/// A device on a socket.
pub struct Server {
    device: Arc<dyn PciDevice>,
    options: ServerOptions,
    listener: Listener,
    session: Option<(Session, Instant)>,
    refusals: Vec<Refusal>,
    counters: Counters,
    ended: Option<Ended>,
}

impl Server {
    /// Listens at `path`. A socket that nobody listens at any more is replaced.
    ///
    /// # Errors
    /// `Busy` if somebody listens there, `Exists` if something else is there, `NotFound` without its folder, `Denied`, `Invalid` for a
    /// path that is too long for a socket.
    pub fn bind(path: &Path, device: Arc<dyn PciDevice>, options: ServerOptions) -> Result<Self> {
        Ok(Self {
            device,
            options,
            listener: Listener::bind(path)?,
            session: None,
            refusals: Vec::new(),
            counters: Counters::default(),
            ended: None,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.listener.path()
    }

    /// Does what there is to do now; whether there was anything.
    pub fn poll(&mut self) -> bool {
        let mut progress = false;
        if let Some((session, _)) = &mut self.session {
            match session.poll() {
                Turn::Idle => {}
                Turn::Progress => progress = true,
                Turn::Ended(ended) => {
                    self.end(ended);
                    progress = true;
                }
            }
        }
        while let Some(stream) = self.listener.accept() {
            self.take(stream);
            progress = true;
        }
        self.refusals.retain_mut(|refusal| !refusal.poll());
        progress
    }

    fn take(&mut self, stream: UnixStream) {
        // One that says nothing keeps nobody else out.
        if let Some((session, since)) = &self.session
            && !session.is_agreed()
            && since.elapsed() > GREETING_MAX
        {
            self.end(Ended::Silent);
        }
        if self.session.is_some() {
            if self.refusals.len() == REFUSALS_MAX {
                self.refusals.remove(0);
            }
            self.refusals.push(Refusal::new(stream));
            self.counters.refused += 1;
            return;
        }
        let session = Session::new(stream, self.device.clone(), self.options.clone());
        self.session = Some((session, Instant::now()));
        self.counters.clients += 1;
    }

    fn end(&mut self, ended: Ended) {
        let mut agreed = false;
        if let Some((session, _)) = self.session.take() {
            agreed = session.is_agreed();
            self.counters.add(Counters { dma_maps: 0, dma_bytes: 0, ..session.counters() });
        }
        // Somebody who only tries whether anybody is here is no client.
        if agreed || !matches!(ended, Ended::Closed) {
            self.ended = Some(ended);
        }
    }

    /// Whether a client is there that has agreed on the protocol.
    #[must_use]
    pub fn has_client(&self) -> bool {
        self.session.as_ref().is_some_and(|(session, _)| session.is_agreed())
    }

    /// What was counted, of all clients.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut counters = self.counters;
        if let Some((session, _)) = &self.session {
            counters.add(session.counters());
        }
        counters
    }

    /// How the last client that went did so; told once.
    pub fn take_ended(&mut self) -> Option<Ended> {
        self.ended.take()
    }

    /// Ends the client's session, if there is one.
    pub fn disconnect(&mut self) {
        if self.session.is_some() {
            self.end(Ended::Disconnected);
        }
    }

    /// The sockets: something to do, as long as one of them can be read.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let session = self.session.iter().map(|(session, _)| session.socket());
        std::iter::once(self.listener.as_fd()).chain(session)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server of {} at {}", self.device.kind(), self.path().display())
    }
}

fn path_of(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
