//! Bytes from sockets: new clients, negotiations and requests.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Instant;

use qpair_nbd::server::{Settled, Step};
use qpair_nbd::wire::Request;
use qpair_nbd::wire::request::header_bytes;
use qpair_tls::TlsServer;
use tracing::{info, warn};

use super::{DOOR, Hall, POST};
use crate::nbd::client::{Client, Phase};
use crate::stream::{Arrival, News, Taken, receive};

/// The number of a hall's clients above which less is read of each at once, in bytes: a client that
/// cannot be served now keeps what was read.
const CROWD: usize = 64;
const CROWDED_BYTES: usize = 32 << 10;

impl Hall {
    /// Handles what the sockets announce. Returns whether there was anything.
    pub(super) fn listen_to_sockets(&mut self) -> bool {
        let mut news = std::mem::take(&mut self.news);
        self.sockets.look(&mut news);
        let mut progress = false;
        for news in news.drain(..) {
            match news {
                News::Other(DOOR) => self.open_door(),
                News::Other(POST) => self.take_post(),
                News::Other(_) => continue,
                News::Client(slot, arrival) => {
                    self.read(slot, arrival);
                    self.soil(slot);
                }
            }
            progress = true;
        }
        self.news = news;
        progress
    }

    /// Gives new clients to the halls with the fewest.
    fn open_door(&mut self) {
        for count in 0..16 {
            let Some(stream) = self.shared.lobby.door.accept() else {
                // Without a descriptor for it, a client stays at the door and would keep the worker
                // awake.
                if count == 0 {
                    self.rest_door(true);
                }
                return;
            };
            self.shared.lobby.admit(stream);
        }
    }

    fn take_post(&mut self) {
        let shared = self.shared.clone();
        let post = &shared.lobby.posts[self.number];
        post.wake.clear();
        loop {
            let Some(stream) = post.streams.lock().pop_front() else { return };
            let slot = self.free.pop().unwrap_or_else(|| {
                self.clients.push(None);
                self.clients.len() - 1
            });
            let stream = Arc::new(stream);
            if !self.sockets.add(slot, &stream, shared.tls.is_some()) {
                self.free.push(slot);
                shared.lobby.leave(self.number);
                continue;
            }
            self.clients[slot] = Some(Box::new(Client::new(stream, shared.tls.is_some())));
            self.negotiating += 1;
            self.soil(slot);
        }
    }

    /// Returns how much is read of a client at once, in bytes.
    pub(super) fn read_bytes_max(&self) -> usize {
        let is_crowded = self.clients.len() - self.free.len() > CROWD;
        if is_crowded { CROWDED_BYTES } else { usize::MAX }
    }

    /// Takes what has come from a client, and its requests.
    fn read(&mut self, slot: usize, arrival: Arrival) {
        let most = self.read_bytes_max();
        let Some(client) = self.clients[slot].as_mut().filter(|client| !client.is_dead) else {
            return;
        };
        let read = |staging: &mut [u8]| receive(&client.stream, client.tls.as_deref_mut(), staging);
        match self.sockets.take(arrival, &mut client.output, most, read) {
            Ok(Taken::Nothing) => {}
            Ok(Taken::Sent) => client.moved_at = Instant::now(),
            Ok(Taken::Bytes(bytes)) => {
                client.moved_at = Instant::now();
                if client.input.is_empty() {
                    let taken = self.take(slot, &bytes);
                    if let Some(client) = &mut self.clients[slot] {
                        client.input.extend(&bytes[taken..]);
                    }
                } else {
                    client.input.extend(&*bytes);
                    self.take_input(slot);
                }
                self.sockets.give_back(bytes);
            }
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                self.send_away(slot, &error.to_string());
            }
            Err(_) => client.is_dead = true,
        }
    }

    /// Takes requests from the bytes that were read before.
    pub(super) fn take_input(&mut self, slot: usize) {
        let Some(client) = &mut self.clients[slot] else { return };
        let mut input = std::mem::take(&mut client.input);
        let taken = self.take(slot, &input);
        if let Some(client) = &mut self.clients[slot] {
            input.drain(..taken);
            // A client that sent much once does not keep the memory.
            if input.is_empty() && input.capacity() > 4096 {
                input = Vec::new();
            }
            client.input = input;
        }
    }

    /// Takes what can be taken of `bytes`, and returns how many that are.
    fn take(&mut self, slot: usize, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while let Some(client) = &mut self.clients[slot] {
            if client.is_dead || rest.is_empty() {
                break;
            }
            let may_take = client.may_take();
            if let Phase::Negotiation(negotiation) = &mut client.phase {
                if !may_take {
                    break;
                }
                let mut output = Vec::new();
                let step = negotiation.take(&mut rest, &self.shared.exports, &mut output);
                client.output.push(&output, None);
                match step {
                    Ok(Step::Continues) => {}
                    Ok(Step::StartsTls) if rest.is_empty() => {}
                    // Nobody but an attacker puts bytes in the open there.
                    Ok(Step::StartsTls) => {
                        self.send_away(slot, "the client sent bytes behind NBD_OPT_STARTTLS");
                    }
                    Ok(Step::Ended) => client.is_leaving = true,
                    Ok(Step::Settled(settled)) => self.begin_transmission(slot, settled),
                    Err(fault) => self.send_away(slot, fault.0),
                }
                continue;
            }
            if client.skip > 0 {
                let count = rest.len().min(usize::try_from(client.skip).unwrap_or(usize::MAX));
                client.skip -= count as u64;
                rest = &rest[count..];
            } else if client.receiving.is_some() {
                self.receive(slot, &mut rest);
            } else if !may_take {
                break;
            } else {
                let is_extended = client.style() == qpair_nbd::wire::Style::Extended;
                let len = header_bytes(is_extended);
                if rest.len() < len {
                    break;
                }
                match Request::decode(rest, is_extended) {
                    Some(request) => self.begin(slot, request),
                    None => self.send_away(slot, "the client sent no request of NBD"),
                }
                rest = &rest[len..];
            }
        }
        bytes.len() - rest.len()
    }

    /// Begins the TLS of a client to which nothing is to be sent in the open any more.
    pub(super) fn start_tls(&mut self, slot: usize) {
        let Some(client) = &mut self.clients[slot] else { return };
        let session = self.shared.tls.as_ref().map(TlsServer::session);
        match (session, &mut client.phase) {
            (Some(Ok(session)), Phase::Negotiation(negotiation)) => {
                negotiation.tls_begins();
                client.tls = Some(Box::new(session));
            }
            _ => self.send_away(slot, "TLS could not be started"),
        }
    }

    fn begin_transmission(&mut self, slot: usize, settled: Settled) {
        self.negotiating -= 1;
        let shared = self.shared.clone();
        let disk = &shared.exports.0[settled.export].disk.name;
        if let Err(error) = self.open_lane(settled.export) {
            warn!(name: "refused", disk, %error, "a client of NBD was sent away");
            self.end_client(slot);
        } else {
            info!(name: "connected", disk, "a client of NBD has come");
        }
        if let Some(client) = &mut self.clients[slot] {
            client.phase = Phase::Transmission(settled);
        }
    }
}
