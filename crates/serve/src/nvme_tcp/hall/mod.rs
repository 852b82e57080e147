//! A hall: the connections of a portal that one worker serves, and a channel to each namespace.
//!
//! Invariants:
//! - a connection with parts at a device stays in its slot, also after it has ended;
//! - a connection that waits for a head or a block is in `waiting`, in the order of arrival;
//! - a namespace that was removed has its lane until the lane's requests have ended.
//!
//! A turn reads the sockets (`input`), executes commands (`authentication`, `admin`, `commands`),
//! takes those that have ended, and sends responses (`rounds`). `spaces` has the namespaces.

mod admin;
mod authentication;
mod commands;
mod connect;
mod input;
mod rounds;
mod spaces;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_block::Result;
use qpair_nvme_tcp::wire::Fault;
use tracing::warn;

use super::connection::Connection;
use super::portal::Shared;
use crate::queue::End;
use crate::stream::{News, Pool, SocketWay, Sockets};
use crate::unit::{Stopped, Unit};
use spaces::Space;

/// The interval of looks at times while something waits.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The events of the hall's own.
const POST: u64 = u64::MAX;
const DOOR: u64 = u64::MAX - 1;

pub(crate) struct Hall {
    shared: Arc<Shared>,
    number: usize,
    sockets: Sockets,
    news: Vec<News>,
    pool: Option<Pool>,
    spaces: Vec<Space>,
    /// The version of the portal's subsystems that the hall has.
    version: u64,
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    ended: Vec<End>,
    dirty: Vec<usize>,
    waiting: VecDeque<usize>,
    /// The connections whose Connect waits.
    deferred: Vec<usize>,
    /// The small blocks that wait for data that R2T has asked for.
    small_grants: u32,
    looked_at: Instant,
    /// The time at which the next connection may be late.
    looks_at: Option<Instant>,
    /// Whether the listening socket is not watched until the next look at times.
    door_rests: bool,
}

impl Hall {
    /// Starts the hall on the thread of its worker.
    ///
    /// # Errors
    /// `Limit` if there is no memory or no descriptor; the errors of opening a ring.
    pub(crate) fn start(shared: Arc<Shared>, number: usize, way: SocketWay) -> Result<Box<Self>> {
        let sockets = Sockets::new(way)?;
        sockets.watch_other(shared.lobby.posts[number].wake.as_fd(), POST)?;
        if number == 0 {
            sockets.watch_other(shared.lobby.door.as_fd(), DOOR)?;
        }
        Ok(Box::new(Self {
            shared,
            number,
            sockets,
            news: Vec::new(),
            pool: None,
            spaces: Vec::new(),
            version: 0,
            connections: Vec::new(),
            free: Vec::new(),
            ended: Vec::new(),
            dirty: Vec::new(),
            waiting: VecDeque::new(),
            deferred: Vec::new(),
            small_grants: 0,
            looked_at: Instant::now(),
            looks_at: None,
            door_rests: false,
        }))
    }

    /// Notes that a connection is to be looked at in this turn.
    fn soil(&mut self, slot: usize) {
        if let Some(it) = &mut self.connections[slot]
            && !std::mem::replace(&mut it.is_dirty, true)
        {
            self.dirty.push(slot);
        }
    }

    /// Notes that a connection may be late at this time.
    fn look_by(&mut self, time: Instant) {
        self.looks_at = Some(self.looks_at.map_or(time, |at| at.min(time)));
    }

    /// Stops watching the listening socket, or watches it again.
    fn rest_door(&mut self, rests: bool) {
        self.door_rests = rests;
        self.sockets.rest_other(self.shared.lobby.door.as_fd(), DOOR, rests);
    }

    /// Tells a host that it breaks the protocol, and disconnects it.
    fn terminate(&mut self, slot: usize, fault: &Fault, wrong: &[u8]) {
        self.tell_of_end(slot, fault.why);
        if let Some(it) = &mut self.connections[slot] {
            it.push(|head, _| qpair_nvme_tcp::wire::put::term(head, false, fault, wrong));
            it.is_leaving = true;
            // Its commands are not answered any more.
            it.pending.clear();
            it.stalled = None;
        }
        self.soil(slot);
    }

    fn tell_of_end(&self, slot: usize, why: &str) {
        let host = self.connections[slot].as_ref().and_then(|it| it.seat.as_ref());
        let host = host.map_or("", |seat| &seat.controller.host);
        let address = &self.shared.address;
        warn!(name: "left", %address, host, error = why, "a host of NVMe/TCP was sent away");
    }

    fn end(&mut self, slot: usize) {
        if let Some(it) = &mut self.connections[slot] {
            it.is_dead = true;
        }
        self.soil(slot);
    }

    fn lanes(&self) -> impl Iterator<Item = &spaces::SpaceLane> {
        self.spaces.iter().flat_map(|space| space.lanes.values())
    }
}

impl Unit for Hall {
    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        Ok(Some(self.sockets.fd()))
    }

    fn is_busy(&self) -> bool {
        self.lanes().any(|it| it.lane.busy() > 0)
    }

    fn turn(&mut self) -> bool {
        let mut progress = self.listen_to_sockets();
        progress |= self.settle();
        progress |= !self.dirty.is_empty();
        self.renew();
        self.attend();
        self.look_at_times();
        progress | self.sockets.submit()
    }

    fn listen(&mut self) -> bool {
        if self.lanes().any(|it| it.lane.is_unsignalled()) {
            return false;
        }
        for space in &mut self.spaces {
            space.lanes.values_mut().for_each(|it| it.lane.rest());
        }
        self.dirty.is_empty() && self.sockets.may_sleep()
    }

    fn be_quiet(&mut self) {}

    fn sleeps_at_once(&self) -> bool {
        true
    }

    fn nap(&self) -> Option<Duration> {
        if !self.waiting.is_empty() || !self.deferred.is_empty() || self.door_rests {
            return Some(LOOK_EVERY);
        }
        let left = self.looks_at?.saturating_duration_since(Instant::now());
        Some(left.max(Duration::from_millis(10)))
    }

    fn stop(self: Box<Self>) -> Stopped {
        // Dropping a channel waits for its requests.
        for seat in self.connections.iter().flatten().filter_map(|it| it.seat.as_ref()) {
            self.shared.controllers.leave(seat);
        }
        Stopped::default()
    }
}
