//! Authentication of a queue: the host proves who it is before any other command is carried out.

use std::sync::Arc;

use qpair_nvme_auth::{Controller as Authentication, MESSAGE_BYTES_MAX, Names, PROTOCOL, Policy};
use qpair_nvme_wire::fabrics::{fctype, sgl};
use qpair_nvme_wire::{Command as Entry, Status};
use tracing::{info, warn};

use super::Hall;
use crate::nvme_tcp::connection::{Connection, Sink};
use crate::nvme_tcp::controller::Controller;

/// The most bytes that are sent for an Authentication Receive, more than any message has.
const ROOM_BYTES_MAX: u32 = 4096;

/// Returns the authentication of a host that has keys at a subsystem.
pub(super) fn authentication_of(
    controller: &Controller,
    policy: Arc<Policy>,
) -> Option<Box<Authentication>> {
    let subsystem = controller.subsystem.as_ref()?;
    let keys = subsystem.keys_of(&controller.host)?;
    let names = Names { host: controller.host.clone(), subsystem: subsystem.nqn.clone() };
    Some(Box::new(Authentication::new(keys, names, policy)))
}

impl Connection {
    /// Whether a command belongs to the authentication, or comes before the end of it.
    pub(super) fn authenticates(&self, entry: &Entry) -> bool {
        self.authentication.is_some() && (entry.is_authentication() || self.is_unproved())
    }
}

impl Hall {
    /// Takes a command of a queue with an authentication, with `data` bytes in its capsule.
    pub(super) fn take_authentication(&mut self, slot: usize, entry: Entry, data: u32) {
        let Some(it) = self.connections.all.get_mut(slot) else { return };
        it.take_entry();
        let is_send = entry.fctype() == fctype::AUTHENTICATION_SEND;
        let refused = match entry.sgl() {
            _ if !entry.is_authentication() => Some(Status::AUTHENTICATION_REQUIRED),
            _ if !entry.is_single_with_sgl() || entry.cdw(10) != PROTOCOL => {
                Some(Status::INVALID_FIELD)
            }
            sgl if sgl.kind != if is_send { sgl::IN_CAPSULE } else { sgl::TRANSPORT } => {
                Some(Status::INVALID_SGL_TYPE)
            }
            _ if is_send && (data != entry.cdw(11) || data > MESSAGE_BYTES_MAX as u32) => {
                Some(Status::INVALID_SGL_LENGTH)
            }
            sgl if !is_send && (data > 0 || sgl.len_bytes < entry.cdw(11)) => {
                Some(Status::INVALID_SGL_LENGTH)
            }
            _ => None,
        };
        match refused {
            // The data of the capsule is skipped.
            Some(status) => it.respond(entry.cid(), status, 0),
            None if data > 0 => {
                it.capsule.clear();
                it.sink = Sink::Capsule(entry);
                return;
            }
            None => return self.authenticate(slot, &entry, &[]),
        }
        self.connections.soil(slot);
    }

    /// Carries out a command of the authentication.
    pub(super) fn authenticate(&mut self, slot: usize, entry: &Entry, message: &[u8]) {
        let address = &self.shared.address;
        let Some(it) = self.connections.all.get_mut(slot) else { return };
        let Some(authentication) = &mut it.authentication else { return };
        let was_authenticated = authentication.is_authenticated();
        let answer = match entry.fctype() {
            fctype::AUTHENTICATION_SEND => {
                authentication.take(message);
                Ok(None)
            }
            _ => {
                let room = entry.cdw(11).min(ROOM_BYTES_MAX) as usize;
                let message = authentication.give(room).ok_or(Status::COMMAND_SEQUENCE_ERROR);
                message.map(|mut message| {
                    // Linux's target fills the host's buffer too.
                    message.resize(room, 0);
                    Some(message)
                })
            }
        };
        let (is_authenticated, has_failed) =
            (authentication.is_authenticated(), authentication.has_failed());
        match answer {
            Ok(Some(message)) => it.send_data(entry.cid(), Err(&message)),
            Ok(None) => it.respond(entry.cid(), Status::SUCCESS, 0),
            Err(status) => it.respond(entry.cid(), status, 0),
        }
        if let Some(seat) = &it.seat {
            let (host, queue) = (&seat.controller.host, seat.queue);
            if has_failed {
                warn!(name: "refused", %address, host, queue, "a host of NVMe/TCP did not prove who it is");
            } else if is_authenticated && !was_authenticated && queue == 0 {
                info!(name: "authenticated", %address, host, "a host of NVMe/TCP has proved who it is");
            }
        }
        it.peer.is_leaving |= has_failed;
        self.connections.soil(slot);
    }
}
