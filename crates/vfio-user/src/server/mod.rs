//! The device's side: a socket on which one client at a time drives a device.
//!
//! Invariants:
//! - Nothing blocks.
//! - A client accesses the device only by the methods of [`PciDevice`].
//! - When a client goes, its memory and events are closed, the function is reset, and memory that
//!   it mapped is shared no more.
//! - A client costs a bounded amount of memory, descriptors and work for each poll.

mod answer;
mod caller;
mod counters;
mod host;
mod maps;
mod session;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_block::Result;
use qpair_pci::PciDevice;
use tracing::{debug, info, warn};

pub use counters::Counters;
pub use host::{Host, Idle};
pub use session::{Ended, Session, Turn};

use crate::Message;
use caller::{Caller, Said};
use qpair_socket::Listener;

/// The maximum number of connections that have not sent their first message: the oldest is dropped.
const CALLERS_MAX: usize = 16;

#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Whether clients may map the area that the device shares (doorbells). If not, each access
    /// goes over the socket. Default: true.
    pub mapped: bool,
    /// The maximum number of ranges of memory that a client has open. Default: 4096.
    pub dma_maps_max: usize,
    /// The time after which an inactive client is disconnected; `None`: never. A client is inactive
    /// if it sends nothing and the device has no work for it. Default: `None`.
    pub idle_timeout: Option<Duration>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self { mapped: true, dma_maps_max: 4096, idle_timeout: None }
    }
}

pub struct Server {
    device: Arc<dyn PciDevice>,
    options: ServerOptions,
    listener: Listener,
    session: Option<Session>,
    /// The connections without a first message, oldest first.
    callers: Vec<Caller>,
    /// The time of the last activity of the client, or of the device for it.
    active_at: Instant,
    is_active: bool,
    counters: Counters,
    ended: Option<Ended>,
}

impl Server {
    /// Listens at `path`. Replaces a socket that no process listens at any more.
    ///
    /// # Errors
    /// `Busy` if a process listens there; `Exists` if something else is there; `NotFound` without
    /// its folder; `Denied`; `Invalid` for a path that is too long for a socket.
    pub fn bind(path: &Path, device: Arc<dyn PciDevice>, options: ServerOptions) -> Result<Self> {
        Ok(Self {
            device,
            options,
            listener: Listener::bind(path)?,
            session: None,
            callers: Vec::new(),
            active_at: Instant::now(),
            is_active: false,
            counters: Counters::default(),
            ended: None,
        })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        self.listener.path()
    }

    /// Does all work that is possible now. Returns whether there was any.
    pub fn poll(&mut self) -> bool {
        let mut progress = false;
        if let Some(session) = &mut self.session {
            match session.poll() {
                Turn::Idle => {}
                Turn::Progress => progress = true,
                Turn::Ended(ended) => {
                    self.end(ended);
                    progress = true;
                }
            }
            self.is_active |= progress;
        }
        self.look_for_idleness();
        // Limited, so that many connections cost the client no more than this.
        for _ in 0..CALLERS_MAX {
            let Some(stream) = self.listener.accept() else { break };
            if self.callers.len() == CALLERS_MAX {
                self.callers.remove(0);
            }
            self.callers.push(Caller::new(stream));
            progress = true;
        }
        self.listen_to_callers() | progress
    }

    /// Handles doorbells that the client sends over the socket, and nothing else: the only messages
    /// that a device can take while it works. Returns whether there was one.
    pub fn poll_doorbells(&mut self) -> bool {
        let progress = self.session.as_mut().is_some_and(Session::poll_doorbells);
        self.is_active |= progress;
        progress
    }

    /// Whether [`Self::poll_doorbells`] has received another message, which waits for
    /// [`Self::poll`].
    #[must_use]
    pub fn is_holding(&self) -> bool {
        self.session.as_ref().is_some_and(Session::is_holding)
    }

    /// Marks the client as active, because the device did work for it that the server did not see
    /// at the socket.
    pub fn touch(&mut self) {
        self.is_active = true;
    }

    fn look_for_idleness(&mut self) {
        let Some(timeout) = self.options.idle_timeout.filter(|_| self.session.is_some()) else {
            return;
        };
        let now = Instant::now();
        if std::mem::take(&mut self.is_active) {
            self.active_at = now;
        } else if now.saturating_duration_since(self.active_at) >= timeout {
            self.end(Ended::Idle);
        }
    }

    fn listen_to_callers(&mut self) -> bool {
        let mut progress = false;
        let mut at = 0;
        while let Some(caller) = self.callers.get_mut(at) {
            let said = caller.poll();
            if matches!(said, Said::NotYet) {
                at += 1;
                continue;
            }
            progress = true;
            let caller = self.callers.remove(at);
            match said {
                Said::All(message) if self.session.is_some() => {
                    self.counters.refused += 1;
                    let socket = self.path().display();
                    info!(name: "refused", %socket, "a second client is refused");
                    caller.refuse(message.header);
                }
                Said::All(message) => self.begin(caller, message),
                // While there is a client, failures of other connections are not reported.
                _ if self.session.is_some() => {}
                Said::Gone(true) => self.turn_away(Ended::Cut),
                Said::Wrong(error) => self.turn_away(Ended::Wrong(error)),
                // A connection that only tests whether a server is here is not reported.
                Said::Gone(false) | Said::NotYet => {}
            }
        }
        progress
    }

    /// Reports a connection that never became a client and whose bytes made no sense.
    fn turn_away(&mut self, ended: Ended) {
        let socket = self.path().display();
        warn!(name: "refused", %socket, error = %ended, "the client does not follow the protocol");
        self.ended = Some(ended);
    }

    fn begin(&mut self, caller: Caller, first: Message) {
        let (stream, incoming) = caller.into_parts();
        let mut session =
            Session::begin(stream, incoming, self.device.clone(), self.options.clone());
        session.take(first);
        self.session = Some(session);
        (self.active_at, self.is_active) = (Instant::now(), true);
        self.counters.clients += 1;
        debug!(name: "session", socket = %self.path().display(), "a client has come");
    }

    fn end(&mut self, ended: Ended) {
        if let Some(session) = self.session.take() {
            self.counters.add(Counters { dma_maps: 0, dma_bytes: 0, ..session.counters() });
        }
        debug!(name: "session_ended", socket = %self.path().display(), why = %ended, "a client has gone");
        self.ended = Some(ended);
    }

    /// Whether there is a client that has agreed on the protocol.
    #[must_use]
    pub fn has_client(&self) -> bool {
        self.session.as_ref().is_some_and(Session::is_agreed)
    }

    /// Whether a reply waits for room in the client's socket.
    #[must_use]
    pub fn is_sending(&self) -> bool {
        self.session.as_ref().is_some_and(Session::is_sending)
    }

    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut counters = self.counters;
        if let Some(session) = &self.session {
            counters.add(session.counters());
        }
        counters
    }

    /// Returns how the last client's session ended, once.
    pub fn take_ended(&mut self) -> Option<Ended> {
        self.ended.take()
    }

    pub fn disconnect(&mut self) {
        if self.session.is_some() {
            self.end(Ended::Disconnected);
        }
    }

    /// Returns the sockets: there is work when one of them is readable.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let session = self.session.iter().map(Session::socket);
        let callers = self.callers.iter().map(AsFd::as_fd);
        std::iter::once(self.listener.as_fd()).chain(session).chain(callers)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server of {} at {}", self.device.kind(), self.path().display())
    }
}
