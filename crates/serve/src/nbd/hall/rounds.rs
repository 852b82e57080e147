//! Rounds: new clients, clients that proceed or have left, and now and then those that take too
//! long.

use std::io;
use std::time::{Duration, Instant};

use tracing::info;

use super::{Hall, LOOK_EVERY};
use crate::nbd::client::{Client, Phase};
use crate::stream::{Peers, Rounds};
use crate::unit::Unit;

/// The time limit of a negotiation.
const NEGOTIATION: Duration = Duration::from_secs(10);
/// The time after which a client that keeps blocks and moves no bytes is disconnected, if others
/// wait for blocks; and the time limit of a part's data.
const STALL: Duration = Duration::from_secs(1);
const PART: Duration = Duration::from_secs(10);

impl Rounds for Hall {
    type Peer = Client;

    fn peers(&mut self) -> &mut Peers<Client> {
        &mut self.clients
    }

    fn take_post(&mut self) {
        let has_tls = self.shared.tls.is_some();
        while let Some(stream) = self.clients.next_stream() {
            let is_added = self.clients.add(Client::new(stream, has_tls), has_tls);
            self.negotiating += usize::from(is_added);
        }
    }

    fn take(&mut self, slot: usize, bytes: &[u8]) -> usize {
        self.take_requests(slot, bytes)
    }

    fn note_end(&mut self, slot: usize, error: &io::Error) {
        if error.kind() == io::ErrorKind::InvalidData {
            self.send_away(slot, &error.to_string());
        }
    }

    fn proceed(&mut self, slot: usize) {
        self.advance(slot);
        if let Some(client) = self.clients.all.get_mut(slot)
            && client.starts_tls()
            && client.peer.output.is_empty()
            && !client.peer.is_dead
        {
            self.start_tls(slot);
        }
    }

    fn conclude(&mut self, slot: usize) {
        let Some(client) = self.clients.all.get_mut(slot) else { return };
        if client.peer.is_leaving && client.commands.used() == 0 && !client.peer.has_output() {
            client.peer.close_tls();
            client.peer.is_dead = true;
        }
        if !client.peer.is_dead {
            let reads = client.skip > 0 || client.receiving.is_some() || client.may_take();
            let reads = reads && !client.peer.is_leaving;
            return self.clients.watch(slot, reads);
        }
        let settled = client.settled();
        if let (Some(receiving), Some(settled)) = (client.receiving.take(), settled)
            && let Some(it) = &mut self.lanes[settled.export]
        {
            it.free.push(receiving.head);
        }
        let has_parts = client.parts > 0;
        if !self.clients.remove_socket(slot) || has_parts {
            return;
        }
        match settled {
            None => self.negotiating -= 1,
            Some(settled) => {
                let disk = &self.shared.exports.0[settled.export].disk.name;
                info!(name: "left", disk, "a client of NBD has gone");
            }
        }
        self.clients.remove(slot);
    }
}

impl Hall {
    /// Disconnects clients that take too long: for the negotiation; or for data while they keep
    /// blocks that others wait for.
    pub(super) fn look_at_times(&mut self) {
        if self.nap().is_none() || self.looked_at.elapsed() < LOOK_EVERY {
            return;
        }
        self.looked_at = Instant::now();
        self.clients.wake_door();
        let is_full = self.shared.lobby.is_full();
        let limit = if is_full { LOOK_EVERY } else { NEGOTIATION };
        let mut late = Vec::new();
        for (slot, client) in self.clients.all.iter() {
            let keeps = client.keeps_blocks() && self.clients.has_waiting();
            let part = client.receiving.as_ref().map(|part| part.since.elapsed());
            let is_slow = match client.phase {
                Phase::Negotiation(_) => client.peer.since.elapsed() > limit,
                Phase::Transmission(_) => {
                    keeps
                        && (client.peer.moved_at.elapsed() > STALL
                            || part.is_some_and(|t| t > PART))
                }
            };
            if is_slow && !client.peer.is_dead {
                late.push(slot);
            }
        }
        for slot in late {
            self.send_away(slot, "the client was too slow");
        }
    }
}
