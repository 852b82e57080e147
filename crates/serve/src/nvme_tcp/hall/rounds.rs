//! Rounds: new connections, those that proceed or have ended, and now and then those that take too
//! long.

use std::io;
use std::time::{Duration, Instant};

use qpair_tls::PskServer;
use rustix::net::{Shutdown, shutdown};
use tracing::info;

use super::{Hall, LOOK_EVERY};
use crate::nvme_tcp::connection::Connection;
use crate::stream::{Peer, Peers, Rounds};

/// The time after which a connection that keeps blocks and moves no bytes is disconnected, if
/// others wait for blocks.
const STALL: Duration = Duration::from_secs(1);
/// The time in which a host may read why its connection ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// The time limit for a connection to become part of a controller.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

impl Rounds for Hall {
    type Peer = Connection;

    fn peers(&mut self) -> &mut Peers<Connection> {
        &mut self.connections
    }

    /// Takes new connections, and notices those that are to end.
    fn take_post(&mut self) {
        self.cut_connections();
        self.retry_deferred();
        self.tell_of_discovery();
        let shared = self.shared.clone();
        while let Some(stream) = self.connections.next_stream() {
            // A session that cannot be made has no memory: the host comes again.
            let Ok(tls) = shared.tls.as_ref().map(PskServer::session).transpose() else {
                shared.lobby.leave(self.number);
                continue;
            };
            let has_tls = tls.is_some();
            let peer = Peer::new(stream, tls.map(Box::new));
            if self.connections.add(Connection::new(peer), has_tls) {
                self.look_by(Instant::now() + CONNECT_LIMIT);
            }
        }
    }

    fn take(&mut self, slot: usize, bytes: &[u8]) -> usize {
        self.take_pdus(slot, bytes)
    }

    fn note_end(&mut self, slot: usize, error: &io::Error) {
        if let Some(it) = self.connections.all.get(slot)
            && it.peer.tls.is_some()
            && it.is_unassociated()
        {
            let address = &self.shared.address;
            info!(name: "refused", %address, %error, "a connection of NVMe/TCP has failed before Connect");
        }
    }

    fn proceed(&mut self, slot: usize) {
        self.unstall(slot);
        self.advance(slot);
    }

    fn conclude(&mut self, slot: usize) {
        let Some(it) = self.connections.all.get_mut(slot) else { return };
        let is_last = it.peer.is_leaving && it.parts == 0 && !it.peer.has_output();
        if is_last && it.leaves_by.is_none() && !it.peer.is_dead {
            it.peer.close_tls();
            // A socket that is closed with unread bytes may take the last message from the host.
            let _ = shutdown(&it.peer.stream, Shutdown::Write);
            let by = Instant::now() + FAREWELL;
            it.leaves_by = Some(by);
            self.looks_at = Some(self.looks_at.map_or(by, |at| at.min(by)));
        }
        if !it.peer.is_dead {
            let reads = it.stalled.is_none() && (it.receiver.is_inside() || it.may_take());
            let read = if it.peer.is_leaving { it.leaves_by.is_some() } else { reads };
            return self.connections.watch(slot, read);
        }
        if let Some(seat) = it.seat.as_ref().filter(|seat| seat.queue == 0) {
            seat.controller.end();
        }
        let has_parts = it.parts > 0;
        if !self.connections.remove_socket(slot) || has_parts {
            return;
        }
        let Some(it) = self.connections.remove(slot) else { return };
        let grants = it.commands.iter().filter(|(_, command)| command.has_small_grant);
        self.small_grants -= grants.count() as u32;
        if let Some(seat) = it.seat {
            if seat.queue == 0 {
                let (host, address) = (&seat.controller.host, &self.shared.address);
                info!(name: "left", %address, host, "a host of NVMe/TCP has gone");
            }
            self.shared.controllers.leave(&seat);
            self.count_hosts(seat.controller.subsystem.as_ref());
            // Others of the controller end, and a Connect may have waited for this one.
            self.shared.lobby.wake();
        }
    }
}

impl Hall {
    /// Disconnects those that take too long: to connect, to be heard again, or with data while they
    /// keep blocks that others wait for. Also looks for namespaces that have grown.
    pub(super) fn look_at_times(&mut self) {
        let now = Instant::now();
        let is_due = self.looks_at.is_some_and(|at| at <= now);
        let waits = !self.deferred.is_empty() || self.connections.tries_again();
        if !is_due && (!waits || now.duration_since(self.looked_at) < LOOK_EVERY) {
            return;
        }
        self.looked_at = now;
        self.connections.wake_door();
        self.retry_deferred();
        let limit = if self.shared.lobby.is_full() { LOOK_EVERY } else { CONNECT_LIMIT };
        let (mut late, mut next) = (Vec::new(), None::<Instant>);
        for (slot, it) in self.connections.all.iter() {
            let end = match (it.leaves_by, it.is_unassociated()) {
                (Some(by), _) => Some(by),
                (None, true) => Some(it.peer.since + limit),
                (None, false) => it.keep_alive_end(),
            };
            let keeps = it.keeps_blocks() && self.connections.has_waiting();
            if end.is_some_and(|end| end <= now) || keeps && now - it.peer.moved_at > STALL {
                late.push(slot);
            } else if let Some(end) = end {
                next = Some(next.map_or(end, |next| next.min(end)));
            }
        }
        self.looks_at = next;
        for slot in late {
            let is_told = self.connections.all.get(slot).is_some_and(|it| it.peer.is_leaving);
            if !is_told {
                self.tell_of_end(slot, "the host was silent for too long");
            }
            self.connections.end(slot);
        }
        for at in 0..self.spaces.len() {
            if self.spaces[at].is_resized() {
                self.renew_namespaces(at);
            }
        }
        if self.connections.has_dirty() {
            self.attend();
        }
    }
}
