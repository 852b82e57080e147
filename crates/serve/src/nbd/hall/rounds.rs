//! Rounds: at the end of a turn, the clients to which something has happened are looked at, and now
//! and then all of them.

use std::time::{Duration, Instant};

use tracing::info;

use super::{Hall, LOOK_EVERY};
use crate::nbd::client::Phase;
use crate::unit::Unit;

/// The time limit of a negotiation.
const NEGOTIATION: Duration = Duration::from_secs(10);
/// The time after which a client that keeps blocks and moves no bytes is disconnected, if others
/// wait for blocks; and the time limit of a part's data.
const STALL: Duration = Duration::from_secs(1);
const PART: Duration = Duration::from_secs(10);

impl Hall {
    /// Looks at the clients to which something has happened.
    pub(super) fn attend(&mut self) {
        while let Some(slot) = self.dirty.pop() {
            let Some(client) = &mut self.clients[slot] else { continue };
            client.is_dirty = false;
            loop {
                self.advance(slot);
                let Some(client) = &mut self.clients[slot] else { break };
                let before = client.input.len();
                if before > 0 {
                    self.take_input(slot);
                }
                let Some(client) = &mut self.clients[slot] else { break };
                let sent = match client.is_dead {
                    true => Ok(0),
                    false => self.sockets.send(
                        slot,
                        &client.stream,
                        client.tls.as_deref_mut(),
                        &mut client.output,
                    ),
                };
                match sent {
                    Ok(0) if client.starts_tls() && client.output.is_empty() && !client.is_dead => {
                        self.start_tls(slot);
                    }
                    Ok(0) if client.input.len() == before => break,
                    Ok(0) => {}
                    Ok(_) => client.moved_at = Instant::now(),
                    Err(_) => client.is_dead = true,
                }
            }
            self.conclude(slot);
        }
        for _ in 0..self.waiting.len() {
            let Some(slot) = self.waiting.pop_front() else { return };
            let Some(client) = &mut self.clients[slot] else { continue };
            client.is_waiting = false;
            self.advance(slot);
            let Some(client) = &mut self.clients[slot] else { continue };
            if client.is_waiting {
                self.waiting.pop_back();
                self.waiting.push_front(slot);
                return;
            }
            self.soil(slot);
        }
    }

    /// Removes a client that has left, or sets for what its socket is watched.
    fn conclude(&mut self, slot: usize) {
        let most = self.read_bytes_max();
        let Some(client) = &mut self.clients[slot] else { return };
        if client.is_leaving && client.busy() == 0 && !client.has_output() {
            if let Some(session) = &mut client.tls {
                session.close(&client.stream);
            }
            client.is_dead = true;
        }
        if !client.is_dead {
            let reads = client.skip > 0 || client.receiving.is_some() || client.may_take();
            let (read, write) = (reads && !client.is_leaving, client.has_output());
            return self.sockets.watch(slot, &client.stream, read, write, most);
        }
        let settled = client.settled();
        if let (Some(receiving), Some(settled)) = (client.receiving.take(), settled)
            && let Some(it) = &mut self.lanes[settled.export]
        {
            it.free.push(receiving.head);
        }
        let is_removed = self.sockets.remove(slot, &client.stream);
        if client.parts > 0 || !is_removed {
            return;
        }
        match settled {
            None => self.negotiating -= 1,
            Some(settled) => {
                let disk = &self.shared.exports.0[settled.export].disk.name;
                info!(name: "left", disk, "a client of NBD has gone");
            }
        }
        if client.is_waiting {
            self.waiting.retain(|waiting| *waiting != slot);
        }
        self.clients[slot] = None;
        self.free.push(slot);
        self.shared.lobby.leave(self.number);
    }

    /// Disconnects clients that take too long: for the negotiation; or for data while they keep
    /// blocks that others wait for.
    pub(super) fn look_at_times(&mut self) {
        if self.nap().is_none() || self.looked_at.elapsed() < LOOK_EVERY {
            return;
        }
        self.looked_at = Instant::now();
        if self.door_rests {
            self.rest_door(false);
        }
        let is_full = self.shared.lobby.is_full();
        let limit = if is_full { LOOK_EVERY } else { NEGOTIATION };
        let mut late = Vec::new();
        for (slot, client) in self.clients.iter().enumerate() {
            let Some(client) = client else { continue };
            let keeps = client.keeps_blocks() && !self.waiting.is_empty();
            let part = client.receiving.as_ref().map(|part| part.since.elapsed());
            let is_slow = match client.phase {
                Phase::Negotiation(_) => client.since.elapsed() > limit,
                Phase::Transmission(_) => {
                    keeps && (client.moved_at.elapsed() > STALL || part.is_some_and(|t| t > PART))
                }
            };
            if is_slow && !client.is_dead {
                late.push(slot);
            }
        }
        for slot in late {
            self.send_away(slot, "the client was too slow");
        }
    }
}
