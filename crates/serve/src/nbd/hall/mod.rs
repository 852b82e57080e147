//! A hall: the clients of a server that one worker serves, and a channel to each export.
//!
//! Invariants:
//! - a part of a command has a head of its lane from before its data arrives until it has ended;
//! - a client with parts at a device stays in its slot, also after its connection has ended;
//! - a client that waits for a head or a block is in `waiting`, in the order of arrival.
//!
//! A turn reads the sockets (`input`), begins parts of commands and takes those that have ended
//! (`parts`), and sends replies (`rounds`).

mod input;
mod parts;
mod rounds;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_block::Result;
use tracing::warn;

use super::client::Client;
use super::server::Shared;
use crate::queue::End;
use crate::stream::{News, OTHER, Pool, SocketWay, Sockets};
use crate::unit::{Stopped, Unit};
use parts::ExportLane;

/// The interval of looks at the times of clients.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The events of the hall's own: new clients; and the first of those of lanes.
const POST: u64 = u64::MAX;
const DOOR: u64 = u64::MAX - 1;
const LANES: u64 = OTHER;

pub(crate) struct Hall {
    shared: Arc<Shared>,
    number: usize,
    sockets: Sockets,
    news: Vec<News>,
    pool: Pool,
    lanes: Vec<Option<ExportLane>>,
    clients: Vec<Option<Box<Client>>>,
    free: Vec<usize>,
    ended: Vec<End>,
    dirty: Vec<usize>,
    waiting: VecDeque<usize>,
    negotiating: usize,
    looked_at: Instant,
    /// Whether the listening socket is not watched until the next look at times.
    door_rests: bool,
}

impl Hall {
    /// Starts the hall on the thread of its worker.
    ///
    /// # Errors
    /// `Limit` if there is no memory or no descriptor; the errors of opening a ring.
    pub(crate) fn start(shared: Arc<Shared>, number: usize, way: SocketWay) -> Result<Box<Self>> {
        // All clients of a server with TLS have it, and none has use for a ring.
        let sockets = Sockets::new(if shared.tls.is_some() { SocketWay::Epoll } else { way })?;
        sockets.watch_other(shared.lobby.posts[number].wake.as_fd(), POST)?;
        if number == 0 {
            sockets.watch_other(shared.lobby.door.as_fd(), DOOR)?;
        }
        let exports = &shared.exports.0;
        let is_shared = exports.iter().any(|it| it.disk.device.info().shared_memory);
        Ok(Box::new(Self {
            pool: Pool::new(is_shared)?,
            lanes: exports.iter().map(|_| None).collect(),
            shared,
            number,
            sockets,
            news: Vec::new(),
            clients: Vec::new(),
            free: Vec::new(),
            ended: Vec::new(),
            dirty: Vec::new(),
            waiting: VecDeque::new(),
            negotiating: 0,
            looked_at: Instant::now(),
            door_rests: false,
        }))
    }

    /// Notes that a client is to be looked at in this turn.
    fn soil(&mut self, slot: usize) {
        if let Some(client) = &mut self.clients[slot]
            && !std::mem::replace(&mut client.is_dirty, true)
        {
            self.dirty.push(slot);
        }
    }

    /// Stops watching the listening socket, or watches it again.
    fn rest_door(&mut self, rests: bool) {
        self.door_rests = rests;
        self.sockets.rest_other(self.shared.lobby.door.as_fd(), DOOR, rests);
    }

    /// Disconnects a client that breaks the protocol.
    fn send_away(&mut self, slot: usize, why: &str) {
        let address = &self.shared.address;
        warn!(name: "left", %address, error = why, "a client of NBD was sent away");
        self.end_client(slot);
    }

    fn end_client(&mut self, slot: usize) {
        if let Some(client) = &mut self.clients[slot] {
            client.is_dead = true;
        }
        self.soil(slot);
    }
}

impl Unit for Hall {
    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        Ok(Some(self.sockets.fd()))
    }

    fn is_busy(&self) -> bool {
        self.lanes.iter().flatten().any(|it| it.lane.busy() > 0)
    }

    fn turn(&mut self) -> bool {
        let mut progress = self.listen_to_sockets();
        progress |= self.settle();
        progress |= !self.dirty.is_empty();
        self.attend();
        self.look_at_times();
        progress | self.sockets.submit()
    }

    fn listen(&mut self) -> bool {
        if self.lanes.iter().flatten().any(|it| it.lane.is_unsignalled()) {
            return false;
        }
        self.lanes.iter_mut().flatten().for_each(|it| it.lane.rest());
        self.dirty.is_empty() && self.sockets.may_sleep()
    }

    fn be_quiet(&mut self) {}

    fn sleeps_at_once(&self) -> bool {
        true
    }

    fn nap(&self) -> Option<Duration> {
        let looks = self.negotiating > 0 || !self.waiting.is_empty() || self.door_rests;
        looks.then_some(LOOK_EVERY)
    }

    fn stop(self: Box<Self>) -> Stopped {
        // Dropping a channel waits for its requests.
        Stopped::default()
    }
}
