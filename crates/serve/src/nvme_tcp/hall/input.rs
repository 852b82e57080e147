//! Bytes from sockets: new connections, PDUs and their data.

use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_nvme_tcp::wire::{DataPdu, Digests, Fault, InitReq, InitResp, Pdu, Step, fes, put};
use qpair_nvme_wire::Status;
use qpair_tls::PskServer;
use tracing::info;

use super::{DOOR, Hall, POST};
use crate::nvme_tcp::connection::{ADMIN_CAPSULE_BYTES, Connection, Phase, Sink, Stage};
use crate::stream::{Arrival, LARGE_BYTES, News, Taken, receive};

/// The number of a hall's connections above which less is read of each at once, in bytes: a
/// connection that cannot be served now keeps what was read.
const CROWD: usize = 64;
const CROWDED_BYTES: usize = 32 << 10;
/// The time limit for a connection to become part of a controller.
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(10);

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
                // A lane's descriptor may stay readable until the hall rests.
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

    /// Gives new connections to the halls with the fewest.
    fn open_door(&mut self) {
        for count in 0..16 {
            let Some(stream) = self.shared.lobby.door.accept() else {
                // Without a descriptor for it, a connection stays at the door and would keep the
                // worker awake.
                if count == 0 {
                    self.rest_door(true);
                }
                return;
            };
            self.shared.lobby.admit(stream);
        }
    }

    /// Takes new connections, and notices those that are to end.
    fn take_post(&mut self) {
        let shared = self.shared.clone();
        let post = &shared.lobby.posts[self.number];
        post.wake.clear();
        self.cut_connections();
        self.retry_deferred();
        self.tell_of_discovery();
        loop {
            let Some(stream) = post.streams.lock().pop_front() else { return };
            // A session that cannot be made has no memory: the host comes again.
            let Ok(tls) = shared.tls.as_ref().map(PskServer::session).transpose() else {
                shared.lobby.leave(self.number);
                continue;
            };
            let slot = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            let stream = Arc::new(stream);
            if !self.sockets.add(slot, &stream, tls.is_some()) {
                self.free.push(slot);
                shared.lobby.leave(self.number);
                continue;
            }
            self.connections[slot] = Some(Box::new(Connection::new(stream, tls.map(Box::new))));
            self.look_by(Instant::now() + CONNECT_LIMIT);
            self.soil(slot);
        }
    }

    /// Returns how much is read of a connection at once, in bytes.
    pub(super) fn read_bytes_max(&self) -> usize {
        let is_crowded = self.connections.len() - self.free.len() > CROWD;
        if is_crowded { CROWDED_BYTES } else { usize::MAX }
    }

    /// Takes what has come from a connection, and its PDUs.
    fn read(&mut self, slot: usize, arrival: Arrival) {
        let most = self.read_bytes_max();
        let Some(it) = self.connections[slot].as_mut().filter(|it| !it.is_dead) else { return };
        let read = |staging: &mut [u8]| receive(&it.stream, it.tls.as_deref_mut(), staging);
        match self.sockets.take(arrival, &mut it.output, most, read) {
            Ok(Taken::Nothing) => {}
            Ok(Taken::Sent) => it.moved_at = Instant::now(),
            Ok(Taken::Bytes(bytes)) => {
                it.moved_at = Instant::now();
                it.heard_at = it.moved_at;
                if it.input.is_empty() {
                    let taken = self.take(slot, &bytes);
                    if let Some(it) = &mut self.connections[slot] {
                        it.input.extend(&bytes[taken..]);
                    }
                } else {
                    it.input.extend(&*bytes);
                    self.take_input(slot);
                }
                self.sockets.give_back(bytes);
            }
            Err(error) => {
                it.is_dead = true;
                if it.tls.is_some() && it.is_unassociated() {
                    let address = &self.shared.address;
                    info!(name: "refused", %address, %error, "a connection of NVMe/TCP has failed before Connect");
                }
            }
        }
    }

    /// Takes PDUs from the bytes that were read before.
    pub(super) fn take_input(&mut self, slot: usize) {
        let Some(it) = &mut self.connections[slot] else { return };
        let mut input = std::mem::take(&mut it.input);
        let taken = self.take(slot, &input);
        if let Some(it) = &mut self.connections[slot] {
            input.drain(..taken);
            // A connection on which much came once does not keep the memory.
            if input.is_empty() && input.capacity() > 4096 {
                input = Vec::new();
            }
            it.input = input;
        }
    }

    /// Takes what can be taken of `bytes`, and returns how many that are.
    fn take(&mut self, slot: usize, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while let Some(it) = &mut self.connections[slot] {
            if it.is_dead || it.stalled.is_some() || !it.receiver.is_inside() && !it.may_take() {
                break;
            }
            match it.receiver.next(&mut rest) {
                Ok(Step::Incomplete) => break,
                Ok(Step::Pdu(pdu)) => {
                    if let Err(fault) = self.take_pdu(slot, pdu) {
                        self.terminate(slot, &fault, &[]);
                    }
                }
                Ok(Step::Data(data)) => match it.sink {
                    Sink::Skip => {}
                    Sink::Capsule(_) => it.capsule.extend(data),
                    Sink::Command(number) => {
                        if let Some(command) = it.command(number) {
                            let at = command.filled as usize;
                            if let Some(block) = &mut command.block {
                                block.copy_from(at, data);
                            }
                            command.filled += data.len() as u32;
                        }
                    }
                },
                Ok(Step::DataEnd(is_right)) => self.end_data(slot, is_right),
                Err(fault) => self.terminate(slot, &fault, rest),
            }
        }
        if self.connections[slot].as_ref().is_none_or(|it| it.is_dead || it.is_leaving) {
            // Nothing more is taken from it.
            return bytes.len();
        }
        bytes.len() - rest.len()
    }

    fn take_pdu(&mut self, slot: usize, pdu: Pdu) -> Result<(), Fault> {
        let Some(it) = &mut self.connections[slot] else { return Ok(()) };
        it.sink = Sink::Skip;
        match (&it.phase, pdu) {
            (Phase::New, Pdu::InitReq(request)) => initialize(it, request)?,
            (_, Pdu::Term(_)) => self.end(slot),
            (Phase::Initialized, Pdu::Command(entry, data)) => {
                self.take_first(slot, entry, data);
            }
            (Phase::Admin(_) | Phase::Io, Pdu::Command(entry, data))
                if it.authenticates(&entry) =>
            {
                self.take_authentication(slot, entry, data);
            }
            (Phase::Admin(_), Pdu::Command(entry, data)) => {
                it.take_entry();
                if data > 0 {
                    it.capsule.clear();
                    it.sink = Sink::Capsule(entry);
                } else {
                    self.execute_admin(slot, &entry);
                }
            }
            (Phase::Io, Pdu::Command(entry, data)) => self.begin(slot, entry, data)?,
            (Phase::Io, Pdu::H2cData(data)) => begin_data(it, &data)?,
            _ => {
                let why = "a PDU came out of sequence";
                return Err(Fault::new(fes::SEQUENCE, 0, why));
            }
        }
        Ok(())
    }

    fn end_data(&mut self, slot: usize, is_right: bool) {
        let Some(it) = &mut self.connections[slot] else { return };
        match std::mem::replace(&mut it.sink, Sink::Skip) {
            Sink::Skip => {}
            Sink::Capsule(entry) if !is_right => {
                it.respond(entry.cid(), Status::TRANSIENT_TRANSPORT_ERROR, 0);
            }
            Sink::Capsule(entry) => {
                let capsule = std::mem::take(&mut it.capsule);
                match it.phase {
                    _ if it.authenticates(&entry) => self.authenticate(slot, &entry, &capsule),
                    Phase::Admin(_) => self.execute_admin(slot, &entry),
                    _ => self.connect(slot, entry, &capsule),
                }
            }
            Sink::Command(number) => {
                if let Some(command) = it.command(number)
                    && !is_right
                {
                    command.failed = Some(Status::TRANSIENT_TRANSPORT_ERROR);
                }
                self.end_command_data(slot, number);
            }
        }
    }
}

fn initialize(it: &mut Connection, request: InitReq) -> Result<(), Fault> {
    if request.format != 0 {
        return Err(Fault::new(fes::UNSUPPORTED, 8, "a host asks for another PDU format"));
    }
    if request.alignment != 0 {
        return Err(Fault::new(fes::UNSUPPORTED, 10, "a host asks for aligned data"));
    }
    let Digests { header, data } = request.digests;
    let digests = Digests { header, data };
    let answer = InitResp { format: 0, alignment: 0, digests, data_bytes_max: LARGE_BYTES };
    it.push(|head, _| put::init_resp(head, &answer));
    it.receiver.initialize(digests);
    it.receiver.set_data_bytes_max(ADMIN_CAPSULE_BYTES);
    it.phase = Phase::Initialized;
    Ok(())
}

/// Checks the header of data that R2T has asked for.
fn begin_data(it: &mut Connection, data: &DataPdu) -> Result<(), Fault> {
    let number = usize::from(data.tag);
    let receives = |it: &super::super::connection::Command| {
        it.stage == Stage::Away && it.block.is_some() && it.filled < it.len
    };
    let Some(command) = it.command(number).filter(|it| receives(it)) else {
        return Err(Fault::new(fes::HEADER_FIELD, 10, "data came for no transfer"));
    };
    if command.entry.cid() != data.cid {
        return Err(Fault::new(fes::HEADER_FIELD, 8, "data came for another command"));
    }
    if data.offset != command.filled || data.len > command.len - command.filled {
        return Err(Fault::new(fes::DATA_RANGE, 12, "data came outside its transfer"));
    }
    it.sink = Sink::Command(number);
    Ok(())
}
