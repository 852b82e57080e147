//! A hall: the clients of a server that one worker serves, and a channel to each export.
//!
//! Invariants:
//! - a part of a command has a head of its lane from before its data arrives until it has ended;
//! - a client with parts at a device stays in its slot, also after its connection has ended.
//!
//! A turn takes requests (`input`), begins parts of commands and takes those that have ended
//! (`parts`). `rounds` has what is NBD's in the rounds of `stream`, which read and send.

mod input;
mod parts;
mod rounds;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_block::Result;
use tracing::warn;

use super::client::Client;
use super::server::Shared;
use crate::queue::End;
use crate::stream::{OTHER, Peers, Pool, Rounds, SocketWay};
use crate::unit::{Stopped, Unit};
use parts::ExportLane;

/// The interval of looks at the times of clients.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The first of the events of lanes.
const LANES: u64 = OTHER;

pub(crate) struct Hall {
    shared: Arc<Shared>,
    pool: Pool,
    lanes: Vec<Option<ExportLane>>,
    clients: Peers<Client>,
    ended: Vec<End>,
    negotiating: usize,
    looked_at: Instant,
}

impl Hall {
    /// Starts the hall on the thread of its worker.
    ///
    /// # Errors
    /// `Limit` if there is no memory or no descriptor; the errors of opening a ring.
    pub(crate) fn start(shared: Arc<Shared>, number: usize, way: SocketWay) -> Result<Box<Self>> {
        // All clients of a server with TLS have it, and none has use for a ring.
        let way = if shared.tls.is_some() { SocketWay::Epoll } else { way };
        let clients = Peers::new(shared.lobby.clone(), number, way)?;
        let exports = &shared.exports.0;
        let is_shared = exports.iter().any(|it| it.disk.device.info().shared_memory);
        Ok(Box::new(Self {
            pool: Pool::new(is_shared)?,
            lanes: exports.iter().map(|_| None).collect(),
            shared,
            clients,
            ended: Vec::new(),
            negotiating: 0,
            looked_at: Instant::now(),
        }))
    }

    /// Disconnects a client that breaks the protocol.
    fn send_away(&mut self, slot: usize, why: &str) {
        let address = &self.shared.address;
        warn!(name: "left", %address, error = why, "a client of NBD was sent away");
        self.clients.end(slot);
    }
}

impl Unit for Hall {
    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        Ok(Some(self.clients.sockets.fd()))
    }

    fn is_busy(&self) -> bool {
        self.lanes.iter().flatten().any(|it| it.lane.busy() > 0)
    }

    fn turn(&mut self) -> bool {
        let mut progress = self.listen_to_sockets();
        progress |= self.settle();
        progress |= self.clients.has_dirty();
        self.attend();
        self.look_at_times();
        progress | self.clients.sockets.submit()
    }

    fn listen(&mut self) -> bool {
        if self.lanes.iter().flatten().any(|it| it.lane.is_unsignalled()) {
            return false;
        }
        self.lanes.iter_mut().flatten().for_each(|it| it.lane.rest());
        self.clients.may_sleep()
    }

    fn be_quiet(&mut self) {}

    fn sleeps_at_once(&self) -> bool {
        true
    }

    fn nap(&self) -> Option<Duration> {
        let looks = self.negotiating > 0 || self.clients.tries_again();
        looks.then_some(LOOK_EVERY)
    }

    fn stop(self: Box<Self>) -> Stopped {
        // Dropping a channel waits for its requests.
        Stopped::default()
    }
}
