//! Connect: a connection becomes a queue of a controller.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use qpair_nvme_device::{AdminState, ControllerOptions, Doorbells};
use qpair_nvme_wire::fabrics::{
    ANY_CONTROLLER, AUTHENTICATION_REQUIRED, Connect, ConnectData, DISCOVERY_NQN, FABRICS,
    NO_FLOW_CONTROL, WrongField, fctype, sgl,
};
use qpair_nvme_wire::{Command as Entry, Status};
use tracing::{info, warn};

use super::Hall;
use super::authentication::authentication_of;
use super::spaces::find;
use crate::nvme_tcp::connection::{Admin, Phase, Sink};
use crate::nvme_tcp::controller::{Controller, Seat};
use crate::stream::LARGE_BYTES;

/// The most I/O queues of a controller, and the most entries of a queue.
pub(super) const QUEUES_MAX: u16 = 64;
pub(super) const ENTRIES_MAX: u32 = 256;
/// The most data in the capsule of an I/O command, bytes: a small block.
pub(super) const CAPSULE_BYTES: u32 = 16 << 10;
/// The largest transfer, as a power of two of 4 KiB: a large block.
const MDTS: u8 = 6;
const _: () = assert!(4096 << MDTS == LARGE_BYTES);

/// The answer to Connect.
enum Outcome {
    Seated(Seat),
    Deferred,
    Refused(Status, u64),
}

fn wrong_data(at: u16) -> Outcome {
    const IN_DATA: u64 = 1 << 16;
    Outcome::Refused(Status::CONNECT_INVALID_PARAMETER, IN_DATA | u64::from(at))
}

fn wrong_command(at: u16) -> Outcome {
    Outcome::Refused(Status::CONNECT_INVALID_PARAMETER, at.into())
}

impl Hall {
    /// Takes a connection's first command, which must be Connect.
    pub(super) fn take_first(&mut self, slot: usize, entry: Entry, data: u32) {
        let Some(it) = self.connections.all.get_mut(slot) else { return };
        let is_connect = entry.opcode() == FABRICS && entry.fctype() == fctype::CONNECT;
        let refused = match entry.sgl() {
            _ if !is_connect => Some(Status::COMMAND_SEQUENCE_ERROR),
            sgl if sgl.kind != sgl::IN_CAPSULE => Some(Status::INVALID_SGL_TYPE),
            _ if data != ConnectData::BYTES as u32 => Some(Status::INVALID_SGL_LENGTH),
            _ => None,
        };
        match refused {
            Some(status) => it.respond(entry.cid(), status, 0),
            None => {
                it.capsule.clear();
                it.sink = Sink::Capsule(entry);
            }
        }
    }

    pub(super) fn connect(&mut self, slot: usize, entry: Entry, capsule: &[u8]) {
        let outcome = match ConnectData::decode(capsule) {
            Ok(data) if !self.is_by_right_channel(slot, &data) => {
                Outcome::Refused(Status::CONNECT_INVALID_HOST, 0)
            }
            Ok(data) => {
                let outcome = self.seat(&Connect::of(&entry), &data);
                if let (Outcome::Deferred, Some(it)) =
                    (&outcome, self.connections.all.get_mut(slot))
                {
                    it.phase = Phase::Deferred(entry, Box::new(data));
                    self.deferred.push(slot);
                    // Connections in other halls may have to end.
                    return self.shared.lobby.wake();
                }
                outcome
            }
            Err(WrongField(at)) => wrong_data(at),
        };
        self.conclude_connect(slot, &entry, outcome);
    }

    /// Whether a host is the one whose key TLS has, or has none and needs none.
    fn is_by_right_channel(&self, slot: usize, data: &ConnectData) -> bool {
        let tls = self.connections.all.get(slot).and_then(|it| it.peer.tls.as_ref());
        let (host, address) = (&data.host, &self.shared.address);
        let is_right = match tls {
            Some(session) => {
                let names = session.psk_identity().and_then(|it| self.shared.places.names(it));
                names.is_some_and(|it| it.host == *host && it.subsystem == data.subsystem)
            }
            // Somebody else could have its name in the open.
            None => {
                let subsystem = self.shared.places.find(&data.subsystem);
                !subsystem.is_some_and(|it| it.has_tls_key(host))
            }
        };
        if !is_right {
            let subsystem = &data.subsystem;
            warn!(name: "refused", %address, host, subsystem, "a host of NVMe/TCP has come with another's key of TLS, or without its own");
        }
        is_right
    }

    /// Tries the Connects again that wait for the end of earlier connections.
    pub(super) fn retry_deferred(&mut self) {
        for slot in std::mem::take(&mut self.deferred) {
            let Some(it) = self.connections.all.get_mut(slot) else { continue };
            let Phase::Deferred(entry, data) = &it.phase else { continue };
            let (entry, data) = (*entry, data.clone());
            match self.seat(&Connect::of(&entry), &data) {
                Outcome::Deferred => self.deferred.push(slot),
                outcome => self.conclude_connect(slot, &entry, outcome),
            }
        }
    }

    /// Finds the place of a connection.
    fn seat(&self, connect: &Connect, data: &ConnectData) -> Outcome {
        if connect.format != 0 {
            return Outcome::Refused(Status::CONNECT_FORMAT, 0);
        }
        let is_discovery = data.subsystem == DISCOVERY_NQN;
        let subsystem = if is_discovery { None } else { self.shared.places.find(&data.subsystem) };
        match &subsystem {
            None if !is_discovery => return wrong_data(ConnectData::SUBSYSTEM_AT),
            Some(it) if !it.is_allowed(&data.host) => {
                return Outcome::Refused(Status::CONNECT_INVALID_HOST, 0);
            }
            _ => {}
        }
        let entries = u32::from(connect.last_entry) + 1;
        if connect.last_entry == 0 || entries > ENTRIES_MAX {
            return wrong_command(44);
        }
        if connect.queue == 0 {
            if data.controller_id != ANY_CONTROLLER {
                return wrong_data(ConnectData::CONTROLLER_AT);
            }
            return match self.shared.controllers.begin(subsystem, &data.host, data.host_id) {
                Err(status) => Outcome::Refused(status, 0),
                Ok(None) => Outcome::Deferred,
                Ok(Some(controller)) => match controller.sit(0) {
                    Some(seat) => Outcome::Seated(seat),
                    None => Outcome::Deferred,
                },
            };
        }
        let found = self.shared.controllers.find(data.controller_id);
        let is_its = |it: &Controller| {
            it.host == data.host
                && it.host_id == data.host_id
                && it.subsystem.as_ref().is_some_and(|its| its.nqn == data.subsystem)
        };
        let Some(controller) = found.filter(|it| is_its(it)) else {
            return wrong_data(ConnectData::CONTROLLER_AT);
        };
        if connect.queue > controller.queue_max.load(Ordering::Acquire) {
            return wrong_command(42);
        }
        // A peer that has proved nothing yet cuts no connection of a host.
        let has_keys = subsystem.as_ref().is_some_and(|it| it.keys_of(&data.host).is_some());
        if !controller.is_enabled.load(Ordering::Acquire)
            || has_keys && controller.has_seat(connect.queue)
        {
            return Outcome::Refused(Status::COMMAND_SEQUENCE_ERROR, 0);
        }
        controller.sit(connect.queue).map_or(Outcome::Deferred, Outcome::Seated)
    }

    fn conclude_connect(&mut self, slot: usize, entry: &Entry, outcome: Outcome) {
        let generation = self.shared.directory.generation();
        let policy = self.shared.directory.policy.lock().clone();
        let Some(it) = self.connections.all.get_mut(slot) else { return };
        let seat = match outcome {
            Outcome::Seated(seat) => seat,
            Outcome::Deferred => return,
            Outcome::Refused(status, result) => {
                it.phase = Phase::Initialized;
                it.respond(entry.cid(), status, result);
                return self.connections.soil(slot);
            }
        };
        let connect = Connect::of(entry);
        let entries = u32::from(connect.last_entry) + 1;
        it.set_queue(entries, connect.flags & NO_FLOW_CONTROL == 0);
        it.take_entry();
        let controller = seat.controller.clone();
        let authentication = authentication_of(&controller, policy);
        it.seat = Some(seat);
        let mut keep_alive = Duration::ZERO;
        if connect.queue == 0 {
            keep_alive = Duration::from_millis(connect.keep_alive_ms.into());
            let options = options_of(&controller);
            let state = AdminState::new(&options);
            controller.queue_max.store(state.features.queue_max(), Ordering::Release);
            it.phase = Phase::Admin(Box::new(Admin {
                state,
                options,
                configuration: 0,
                status: 0,
                keep_alive,
                generation,
            }));
            let (host, address) = (&controller.host, &self.shared.address);
            info!(name: "connected", %address, host, "a host of NVMe/TCP has come");
        } else {
            it.phase = Phase::Io;
            it.receiver.set_data_bytes_max(LARGE_BYTES);
        }
        it.authentication = authentication;
        let flags = if it.is_unproved() { AUTHENTICATION_REQUIRED } else { 0 };
        it.respond(entry.cid(), Status::SUCCESS, (flags | u32::from(controller.id)).into());
        if let Some(space) = find(&mut self.spaces, controller.subsystem.as_ref()) {
            space.post.has_client.store(true, Ordering::Relaxed);
        }
        if !keep_alive.is_zero() {
            self.look_by(Instant::now() + keep_alive);
        }
        self.connections.soil(slot);
    }
}

/// Returns the options of a controller.
fn options_of(controller: &Controller) -> ControllerOptions {
    let subsystem = controller.subsystem.as_ref();
    let text = |text: Option<&String>, other: &str| text.map_or(other.to_owned(), Clone::clone);
    ControllerOptions {
        queues_max: QUEUES_MAX,
        queue_entries_max: ENTRIES_MAX,
        mdts: MDTS,
        doorbells: Doorbells::default(),
        // Hosts send flushes, and the devices decide what to do with them.
        volatile_write_cache: true,
        serial: text(subsystem.map(|it| &it.serial), "discovery"),
        model: text(subsystem.map(|it| &it.model), "qpair"),
        subsystem: text(subsystem.map(|it| &it.nqn), DISCOVERY_NQN),
        controller_id: controller.id,
        namespaces_max: subsystem.map_or(0, |it| it.namespaces_max),
        is_shared: true,
    }
}
