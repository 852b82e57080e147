//! Rounds: at the end of a turn, the connections to which something has happened are looked at, and
//! now and then all of them.

use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};
use tracing::info;

use super::input::CONNECT_LIMIT;
use super::{Hall, LOOK_EVERY};

/// The time after which a connection that keeps blocks and moves no bytes is disconnected, if
/// others wait for blocks.
const STALL: Duration = Duration::from_secs(1);
/// The time in which a host may read why its connection ends.
const FAREWELL: Duration = Duration::from_secs(1);

impl Hall {
    /// Looks at the connections to which something has happened.
    pub(super) fn attend(&mut self) {
        while let Some(slot) = self.dirty.pop() {
            let Some(it) = &mut self.connections[slot] else { continue };
            it.is_dirty = false;
            loop {
                self.unstall(slot);
                self.advance(slot);
                let Some(it) = &mut self.connections[slot] else { break };
                let before = it.input.len();
                if before > 0 {
                    self.take_input(slot);
                }
                let Some(it) = &mut self.connections[slot] else { break };
                let sent = match it.is_dead {
                    true => Ok(0),
                    false => {
                        self.sockets.send(slot, &it.stream, it.tls.as_deref_mut(), &mut it.output)
                    }
                };
                match sent {
                    Ok(0) if it.input.len() == before => break,
                    Ok(0) => {}
                    Ok(_) => it.moved_at = Instant::now(),
                    Err(_) => it.is_dead = true,
                }
            }
            self.conclude(slot);
        }
        for _ in 0..self.waiting.len() {
            let Some(slot) = self.waiting.pop_front() else { return };
            let Some(it) = &mut self.connections[slot] else { continue };
            it.is_waiting = false;
            self.unstall(slot);
            self.advance(slot);
            let Some(it) = &mut self.connections[slot] else { continue };
            if it.is_waiting {
                self.waiting.pop_back();
                self.waiting.push_front(slot);
                return;
            }
            self.soil(slot);
        }
    }

    /// Removes a connection that has ended, or sets for what its socket is watched.
    fn conclude(&mut self, slot: usize) {
        let most = self.read_bytes_max();
        let Some(it) = &mut self.connections[slot] else { return };
        let is_last = it.is_leaving && it.parts == 0 && !it.has_output();
        if is_last && it.leaves_by.is_none() && !it.is_dead {
            if let Some(session) = &mut it.tls {
                session.close(&it.stream);
            }
            // A socket that is closed with unread bytes may take the last message from the host.
            let _ = shutdown(&it.stream, Shutdown::Write);
            let by = Instant::now() + FAREWELL;
            it.leaves_by = Some(by);
            self.looks_at = Some(self.looks_at.map_or(by, |at| at.min(by)));
        }
        if !it.is_dead {
            let reads = it.stalled.is_none() && (it.receiver.is_inside() || it.may_take());
            let read = if it.is_leaving { it.leaves_by.is_some() } else { reads };
            return self.sockets.watch(slot, &it.stream, read, it.has_output(), most);
        }
        let is_removed = self.sockets.remove(slot, &it.stream);
        if let Some(seat) = it.seat.as_ref().filter(|seat| seat.queue == 0) {
            seat.controller.end();
        }
        if it.parts > 0 || !is_removed {
            return;
        }
        let grants = it.commands.iter().flatten().filter(|command| command.has_small_grant);
        self.small_grants -= grants.count() as u32;
        if it.is_waiting {
            self.waiting.retain(|waiting| *waiting != slot);
        }
        let seat = it.seat.take();
        self.connections[slot] = None;
        self.free.push(slot);
        self.shared.lobby.leave(self.number);
        if let Some(seat) = seat {
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

    /// Disconnects those that take too long: to connect, to be heard again, or with data while they
    /// keep blocks that others wait for. Also looks for namespaces that have grown.
    pub(super) fn look_at_times(&mut self) {
        let now = Instant::now();
        let is_due = self.looks_at.is_some_and(|at| at <= now);
        let waits = !self.waiting.is_empty() || !self.deferred.is_empty() || self.door_rests;
        if !is_due && (!waits || now.duration_since(self.looked_at) < LOOK_EVERY) {
            return;
        }
        self.looked_at = now;
        if self.door_rests {
            self.rest_door(false);
        }
        self.retry_deferred();
        let limit = if self.shared.lobby.is_full() { LOOK_EVERY } else { CONNECT_LIMIT };
        let (mut late, mut next) = (Vec::new(), None::<Instant>);
        for (slot, it) in self.connections.iter().enumerate() {
            let Some(it) = it else { continue };
            let end = match (it.leaves_by, it.is_unassociated()) {
                (Some(by), _) => Some(by),
                (None, true) => Some(it.since + limit),
                (None, false) => it.keep_alive_end(),
            };
            let keeps = it.keeps_blocks() && !self.waiting.is_empty();
            if end.is_some_and(|end| end <= now) || keeps && now - it.moved_at > STALL {
                late.push(slot);
            } else if let Some(end) = end {
                next = Some(next.map_or(end, |next| next.min(end)));
            }
        }
        self.looks_at = next;
        for slot in late {
            let is_told = self.connections[slot].as_ref().is_some_and(|it| it.is_leaving);
            if !is_told {
                self.tell_of_end(slot, "the host was silent for too long");
            }
            self.end(slot);
        }
        for at in 0..self.spaces.len() {
            if self.spaces[at].is_resized() {
                self.renew_namespaces(at);
            }
        }
        if !self.dirty.is_empty() {
            self.attend();
        }
    }
}
