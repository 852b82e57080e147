//! Bytes from clients: negotiations and requests.

use qpair_nbd::server::{Settled, Step};
use qpair_nbd::wire::Request;
use qpair_nbd::wire::request::header_bytes;
use qpair_tls::TlsServer;
use tracing::{info, warn};

use super::Hall;
use crate::nbd::client::Phase;

impl Hall {
    /// Takes what can be taken of `bytes`, and returns how many that are.
    pub(super) fn take_requests(&mut self, slot: usize, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while let Some(client) = self.clients.all.get_mut(slot) {
            if client.peer.is_dead || rest.is_empty() {
                break;
            }
            let may_take = client.may_take();
            if let Phase::Negotiation(negotiation) = &mut client.phase {
                if !may_take {
                    break;
                }
                let mut output = Vec::new();
                let step = negotiation.take(&mut rest, &self.shared.exports, &mut output);
                client.peer.output.push(&output, None);
                match step {
                    Ok(Step::Continues) => {}
                    Ok(Step::StartsTls) if rest.is_empty() => {}
                    // Nobody but an attacker puts bytes in the open there.
                    Ok(Step::StartsTls) => {
                        self.send_away(slot, "the client sent bytes behind NBD_OPT_STARTTLS");
                    }
                    Ok(Step::Ended) => client.peer.is_leaving = true,
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
        let Some(client) = self.clients.all.get_mut(slot) else { return };
        let session = self.shared.tls.as_ref().map(TlsServer::session);
        match (session, &mut client.phase) {
            (Some(Ok(session)), Phase::Negotiation(negotiation)) => {
                negotiation.tls_begins();
                client.peer.tls = Some(Box::new(session));
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
            self.clients.end(slot);
        } else {
            info!(name: "connected", disk, "a client of NBD has come");
        }
        if let Some(client) = self.clients.all.get_mut(slot) {
            client.phase = Phase::Transmission(settled);
        }
    }
}
