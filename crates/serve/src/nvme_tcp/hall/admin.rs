//! Commands of admin queues: properties, Identify, logs, features, events.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use qpair_nvme_device::{AdminState, Event, NamespaceInfo, Traits};
use qpair_nvme_wire::ana::{ANA_LOG, AnaIdentity, AnaLog, AnaState, GROUPS_ONLY};
use qpair_nvme_wire::command::{admin, cns, feature};
use qpair_nvme_wire::fabrics::{
    DISCOVERY_LOG, FABRICS, FabricsIdentity, KEEP_ALIVE, KEEP_ALIVE_TIMER, fctype, sgl,
};
use qpair_nvme_wire::registers::{
    CAP, CC, CC_ENABLE, CC_SHUTDOWN_MASK, CSTS, CSTS_READY, CSTS_SHUTDOWN_COMPLETE,
    CSTS_SHUTDOWN_MASK, Capabilities, NSSR, VS,
};
use qpair_nvme_wire::{Command as Entry, Status};

use super::Hall;
use super::connect::{CAPSULE_BYTES, ENTRIES_MAX, QUEUES_MAX};
use super::spaces::find;
use crate::nvme_tcp::connection::{Admin, Connection};
use crate::nvme_tcp::controller::Controller;

/// NVM Express 1.4.
const VERSION: u32 = 0x0001_0400;
/// The unit of the keep alive timer that hosts are told of, 100 ms.
const KEEP_ALIVE_UNIT: u16 = 10;
/// The longest time in which a way has no state, seconds, and the group of all namespaces.
const ANA_TRANSITION_S: u8 = 10;
const ANA_GROUP: u32 = 1;
/// Dword 0 of the completion of an abort that found no command.
const NOT_ABORTED: u64 = 1;

/// The answer of an admin command.
enum Answer {
    Done(u64),
    Data(Vec<u8>),
    /// The command is answered later.
    Held,
}

type Answered = Result<Answer, Status>;

impl Hall {
    pub(super) fn execute_admin(&mut self, slot: usize, entry: &Entry) {
        let answered = self.answer_admin(slot, entry);
        let Some(it) = self.connections.all.get_mut(slot) else { return };
        match answered {
            Ok(Answer::Data(data)) => it.send_data(entry.cid(), Err(&data)),
            Ok(Answer::Done(result)) => it.respond(entry.cid(), Status::SUCCESS, result),
            Ok(Answer::Held) => {}
            Err(status) => it.respond(entry.cid(), status, 0),
        }
        self.send_events(slot);
        self.connections.soil(slot);
    }

    fn answer_admin(&mut self, slot: usize, entry: &Entry) -> Answered {
        let shared = self.shared.clone();
        let Some(it) = self.connections.all.get_mut(slot) else { return Ok(Answer::Held) };
        let Some(controller) = it.seat.as_ref().map(|seat| seat.controller.clone()) else {
            return Err(Status::COMMAND_SEQUENCE_ERROR);
        };
        if entry.opcode() == FABRICS {
            let answered = fabrics(it, &controller, entry);
            // A reset ends the connections of I/O queues, in all halls.
            shared.lobby.wake();
            return answered;
        }
        let subsystem = controller.subsystem.as_ref();
        let space = find(&mut self.spaces, subsystem).map(|space| &*space);
        let namespaces: &[NamespaceInfo] = space.map_or(&[], |space| &space.infos);
        let ana =
            reports_ana(&controller).then(|| space.map_or(Default::default(), |space| space.ana));
        let local = matches!(entry.opcode(), admin::GET_LOG_PAGE).then(|| local_address(it));
        let Some(admin) = it.admin() else { return Err(Status::COMMAND_SEQUENCE_ERROR) };
        if admin.status & CSTS_READY == 0 && entry.opcode() != KEEP_ALIVE {
            return Err(Status::COMMAND_SEQUENCE_ERROR);
        }
        match entry.opcode() {
            KEEP_ALIVE => Ok(Answer::Done(0)),
            admin::IDENTIFY => identify(admin, &controller, namespaces, entry),
            admin::GET_LOG_PAGE => {
                let is_discovery = subsystem.is_none();
                let local = local.unwrap_or_default();
                let data = admin.state.log_page(
                    entry,
                    &admin.options,
                    qpair_nvme_device::Counts::default(),
                    Traits::default(),
                    |page| {
                        if page == ANA_LOG {
                            return ana.map(|ana| ana_log(ana, namespaces, entry));
                        }
                        let is_it = page == DISCOVERY_LOG && is_discovery;
                        is_it.then(|| shared.directory.log(&shared, &local, &controller.host))
                    },
                )?;
                let data = fitting(entry, data)?;
                admin.state.log_was_read(entry);
                Ok(data)
            }
            admin::SET_FEATURES => set_features(admin, &controller, entry),
            admin::GET_FEATURES if entry.cdw(10) as u8 == KEEP_ALIVE_TIMER => {
                Ok(Answer::Done(admin.keep_alive.as_millis() as u64))
            }
            admin::GET_FEATURES => {
                let first = AdminState::new(&admin.options).features;
                admin.state.get_features(entry, &first, 1).map(|it| Answer::Done(it.into()))
            }
            admin::ASYNC_EVENT_REQUEST => {
                admin.state.events.request(entry.cid())?;
                Ok(Answer::Held)
            }
            admin::ABORT if entry.cdw(10) as u16 == 0 => {
                let found = admin.state.events.abort((entry.cdw(10) >> 16) as u16);
                Ok(Answer::Done(if found { 0 } else { NOT_ABORTED }))
            }
            admin::ABORT => Ok(Answer::Done(NOT_ABORTED)),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    /// Answers requests that wait for events which have happened.
    pub(super) fn send_events(&mut self, slot: usize) {
        let Some(it) = self.connections.all.get_mut(slot) else { return };
        while let Some((cid, status, result)) =
            it.admin().and_then(|it| it.state.events.take_next())
        {
            it.respond(cid, status, result.into());
        }
        self.connections.soil(slot);
    }

    /// Tells hosts of the discovery subsystem that its log has changed.
    pub(super) fn tell_of_discovery(&mut self) {
        let generation = self.shared.directory.generation();
        for slot in 0..self.connections.all.end() {
            let Some(it) = self.connections.all.get_mut(slot) else { continue };
            let is_discovery =
                it.seat.as_ref().is_some_and(|seat| seat.controller.subsystem.is_none());
            let Some(admin) = it.admin().filter(|it| is_discovery && it.generation != generation)
            else {
                continue;
            };
            admin.generation = generation;
            if admin.state.happen(Event::DiscoveryChanged) {
                self.send_events(slot);
            }
        }
    }

    /// Ends the connections whose controllers have ended, or whose queues are cut.
    pub(super) fn cut_connections(&mut self) {
        for slot in 0..self.connections.all.end() {
            let it = self.connections.all.get(slot);
            if it.and_then(|it| it.seat.as_ref()).is_some_and(|seat| seat.is_over()) {
                self.connections.end(slot);
            }
        }
    }
}

/// Executes a Fabrics command of an admin queue.
fn fabrics(it: &mut Connection, controller: &Controller, entry: &Entry) -> Answered {
    let Some(admin) = it.admin() else { return Err(Status::COMMAND_SEQUENCE_ERROR) };
    let (is_wide, offset) = (entry.cdw(10) & 7 == 1, u64::from(entry.cdw(11)));
    match entry.fctype() {
        fctype::PROPERTY_GET => Ok(Answer::Done(match (offset, is_wide) {
            (CAP, true) => Capabilities::of(ENTRIES_MAX, 10_000).0,
            (VS, false) => VERSION.into(),
            (CC, false) => admin.configuration.into(),
            (CSTS, false) => admin.status.into(),
            (NSSR, false) => 0,
            _ => return Err(Status::INVALID_FIELD),
        })),
        fctype::PROPERTY_SET if (offset, is_wide) == (CC, false) => {
            let (before, now) = (admin.configuration, entry.cdw(12));
            admin.configuration = now;
            if now & CC_ENABLE != 0 && before & CC_ENABLE == 0 {
                admin.status = CSTS_READY;
            }
            if now & CC_ENABLE == 0 && before & CC_ENABLE != 0 {
                admin.state = AdminState::new(&admin.options);
                admin.status = 0;
                controller.cut_queues();
            }
            if now & CC_SHUTDOWN_MASK != 0 {
                admin.status = admin.status & !CSTS_SHUTDOWN_MASK | CSTS_SHUTDOWN_COMPLETE;
                controller.cut_queues();
            }
            let is_enabled = admin.status & (CSTS_READY | CSTS_SHUTDOWN_MASK) == CSTS_READY;
            controller.is_enabled.store(is_enabled, Ordering::Release);
            Ok(Answer::Done(0))
        }
        fctype::PROPERTY_SET => Err(Status::INVALID_FIELD),
        fctype::CONNECT => Err(Status::COMMAND_SEQUENCE_ERROR),
        _ => Err(Status::INVALID_OPCODE),
    }
}

/// Returns data as an answer, if the host has room for it.
fn fitting(entry: &Entry, data: Vec<u8>) -> Answered {
    let sgl = entry.sgl();
    match sgl.kind {
        _ if !entry.is_single_with_sgl() => Err(Status::INVALID_FIELD),
        sgl::TRANSPORT if sgl.len_bytes as usize >= data.len() => Ok(Answer::Data(data)),
        sgl::TRANSPORT => Err(Status::INVALID_SGL_LENGTH),
        _ => Err(Status::INVALID_SGL_TYPE),
    }
}

fn identify(
    admin: &Admin,
    controller: &Controller,
    namespaces: &[NamespaceInfo],
    entry: &Entry,
) -> Answered {
    let mut data =
        AdminState::identify(entry, &admin.options, namespaces, Traits::default())?.to_vec();
    if entry.cdw(10) as u8 == cns::CONTROLLER {
        let is_discovery = controller.subsystem.is_none();
        let identity = FabricsIdentity {
            is_discovery,
            keep_alive_granularity: KEEP_ALIVE_UNIT,
            commands_max: ENTRIES_MAX as u16,
            capsule_units: if is_discovery { 4 } else { (64 + CAPSULE_BYTES) / 16 },
        };
        identity.put(&mut data);
    }
    if reports_ana(controller) {
        let namespaces_max = admin.options.namespaces_max;
        let ana = AnaIdentity { transition_s: ANA_TRANSITION_S, groups: ANA_GROUP, namespaces_max };
        match entry.cdw(10) as u8 {
            cns::CONTROLLER => ana.put(&mut data),
            cns::NAMESPACE if namespaces.iter().any(|it| it.nsid == entry.nsid()) => {
                AnaIdentity::put_group(&mut data, ANA_GROUP);
            }
            _ => {}
        }
    }
    fitting(entry, data)
}

fn reports_ana(controller: &Controller) -> bool {
    let subsystem = controller.subsystem.as_ref();
    subsystem.is_some_and(|it| it.reports_ana.load(Ordering::Relaxed))
}

fn ana_log(
    (state, changes): (AnaState, u64),
    namespaces: &[NamespaceInfo],
    entry: &Entry,
) -> Vec<u8> {
    let has_list = entry.cdw(10) & GROUPS_ONLY == 0;
    let namespaces = namespaces.iter().filter(|_| has_list).map(|it| it.nsid).collect();
    AnaLog { changes, group: ANA_GROUP, state, namespaces }.encode()
}

fn set_features(admin: &mut Admin, controller: &Controller, entry: &Entry) -> Answered {
    let (number, value) = (entry.cdw(10) as u8, entry.cdw(11));
    match number {
        _ if entry.cdw(10) >> 31 != 0 => Err(Status::FEATURE_NOT_SAVEABLE),
        KEEP_ALIVE_TIMER => {
            admin.keep_alive = Duration::from_millis(value.into());
            Ok(Answer::Done(0))
        }
        // The devices have caches of their own, which stay on.
        feature::VOLATILE_WRITE_CACHE if value & 1 == 0 => Err(Status::FEATURE_NOT_CHANGEABLE),
        _ => {
            let result = admin.state.features.set(number, value, 1, controller.has_queues())?;
            let most = admin.state.features.queue_max().min(QUEUES_MAX);
            controller.queue_max.store(most, Ordering::Release);
            Ok(Answer::Done(result.into()))
        }
    }
}

/// Returns the address at which a host has reached this machine.
fn local_address(it: &Connection) -> String {
    use std::net::SocketAddr;
    let found = rustix::net::getsockname(&it.peer.stream).ok();
    let address = found.and_then(|address| SocketAddr::try_from(address).ok());
    address.map_or(String::new(), |address| address.ip().to_string())
}

impl Connection {
    /// Returns the time by which the host must be heard again.
    pub(super) fn keep_alive_end(&self) -> Option<Instant> {
        match &self.phase {
            crate::nvme_tcp::connection::Phase::Admin(admin) if !admin.keep_alive.is_zero() => {
                Some(self.peer.heard_at + admin.keep_alive)
            }
            _ => None,
        }
    }
}
