//! A hall: the connections of a portal that one worker serves, and a channel to each namespace.
//!
//! Invariants:
//! - a connection with parts at a device stays in its slot, also after it has ended;
//! - a namespace that was removed has its lane until the lane's requests have ended.
//!
//! A turn takes PDUs (`input`), executes commands (`authentication`, `admin`, `commands`), and
//! takes those that have ended. `rounds` has what is NVMe/TCP's in the rounds of `stream`, which
//! read and send. `spaces` has the namespaces.

mod admin;
mod authentication;
mod commands;
mod connect;
mod input;
mod rounds;
mod spaces;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_block::Result;
use qpair_nvme_tcp::wire::Fault;
use tracing::warn;

use super::connection::Connection;
use super::portal::Shared;
use crate::queue::End;
use crate::stream::{Peers, Pool, Rounds, SocketWay};
use crate::unit::{Stopped, Unit};
use spaces::Space;

/// The interval of looks at times while something waits.
const LOOK_EVERY: Duration = Duration::from_millis(250);

pub(crate) struct Hall {
    shared: Arc<Shared>,
    number: usize,
    pool: Option<Pool>,
    spaces: Vec<Space>,
    /// The version of the portal's subsystems that the hall has.
    version: u64,
    connections: Peers<Connection>,
    ended: Vec<End>,
    /// The connections whose Connect waits.
    deferred: Vec<usize>,
    /// The small blocks that wait for data that R2T has asked for.
    small_grants: u32,
    looked_at: Instant,
    /// The time at which the next connection may be late.
    looks_at: Option<Instant>,
}

impl Hall {
    /// Starts the hall on the thread of its worker.
    ///
    /// # Errors
    /// `Limit` if there is no memory or no descriptor; the errors of opening a ring.
    pub(crate) fn start(shared: Arc<Shared>, number: usize, way: SocketWay) -> Result<Box<Self>> {
        let connections = Peers::new(shared.lobby.clone(), number, way)?;
        Ok(Box::new(Self {
            shared,
            number,
            pool: None,
            spaces: Vec::new(),
            version: 0,
            connections,
            ended: Vec::new(),
            deferred: Vec::new(),
            small_grants: 0,
            looked_at: Instant::now(),
            looks_at: None,
        }))
    }

    /// Notes that a connection may be late at this time.
    fn look_by(&mut self, time: Instant) {
        self.looks_at = Some(self.looks_at.map_or(time, |at| at.min(time)));
    }

    /// Tells a host that it breaks the protocol, and disconnects it.
    fn terminate(&mut self, slot: usize, fault: &Fault, wrong: &[u8]) {
        self.tell_of_end(slot, fault.why);
        if let Some(it) = self.connections.all.get_mut(slot) {
            it.push(|head, _| qpair_nvme_tcp::wire::put::term(head, false, fault, wrong));
            it.peer.is_leaving = true;
            // Its commands are not answered any more.
            it.pending.clear();
            it.stalled = None;
        }
        self.connections.soil(slot);
    }

    fn tell_of_end(&self, slot: usize, why: &str) {
        let host = self.connections.all.get(slot).and_then(|it| it.seat.as_ref());
        let host = host.map_or("", |seat| &seat.controller.host);
        let address = &self.shared.address;
        warn!(name: "left", %address, host, error = why, "a host of NVMe/TCP was sent away");
    }

    fn lanes(&self) -> impl Iterator<Item = &spaces::SpaceLane> {
        self.spaces.iter().flat_map(|space| space.lanes.values())
    }
}

impl Unit for Hall {
    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        Ok(Some(self.connections.sockets.fd()))
    }

    fn is_busy(&self) -> bool {
        self.lanes().any(|it| it.lane.busy() > 0)
    }

    fn turn(&mut self) -> bool {
        let mut progress = self.listen_to_sockets();
        progress |= self.settle();
        progress |= self.connections.has_dirty();
        self.renew();
        self.attend();
        self.look_at_times();
        progress | self.connections.sockets.submit()
    }

    fn listen(&mut self) -> bool {
        if self.lanes().any(|it| it.lane.is_unsignalled()) {
            return false;
        }
        for space in &mut self.spaces {
            space.lanes.values_mut().for_each(|it| it.lane.rest());
        }
        self.connections.may_sleep()
    }

    fn be_quiet(&mut self) {}

    fn sleeps_at_once(&self) -> bool {
        true
    }

    fn nap(&self) -> Option<Duration> {
        if !self.deferred.is_empty() || self.connections.tries_again() {
            return Some(LOOK_EVERY);
        }
        let left = self.looks_at?.saturating_duration_since(Instant::now());
        Some(left.max(Duration::from_millis(10)))
    }

    fn stop(self: Box<Self>) -> Stopped {
        // Dropping a channel waits for its requests.
        for seat in self.connections.all.iter().filter_map(|(_, it)| it.seat.as_ref()) {
            self.shared.controllers.leave(seat);
        }
        Stopped::default()
    }
}
