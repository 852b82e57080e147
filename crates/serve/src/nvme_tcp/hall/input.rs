//! Bytes from hosts: PDUs and their data.

use qpair_nvme_tcp::wire::{DataPdu, Digests, Fault, InitReq, InitResp, Pdu, Step, fes, put};
use qpair_nvme_wire::Status;

use super::Hall;
use crate::nvme_tcp::connection::{ADMIN_CAPSULE_BYTES, Connection, Phase, Sink, Stage};
use crate::stream::LARGE_BYTES;

impl Hall {
    /// Takes what can be taken of `bytes`, and returns how many that are.
    pub(super) fn take_pdus(&mut self, slot: usize, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while let Some(it) = self.connections.all.get_mut(slot) {
            if it.peer.is_dead || it.stalled.is_some() || !it.receiver.is_inside() && !it.may_take()
            {
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
                        if let Some(command) = it.commands.get_mut(number) {
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
        if self.connections.all.get(slot).is_none_or(|it| it.peer.is_dead || it.peer.is_leaving) {
            // Nothing more is taken from it.
            return bytes.len();
        }
        bytes.len() - rest.len()
    }

    fn take_pdu(&mut self, slot: usize, pdu: Pdu) -> Result<(), Fault> {
        let Some(it) = self.connections.all.get_mut(slot) else { return Ok(()) };
        it.sink = Sink::Skip;
        match (&it.phase, pdu) {
            (Phase::New, Pdu::InitReq(request)) => initialize(it, request)?,
            (_, Pdu::Term(_)) => self.connections.end(slot),
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
        let Some(it) = self.connections.all.get_mut(slot) else { return };
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
                if let Some(command) = it.commands.get_mut(number)
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
    let Some(command) = it.commands.get_mut(number).filter(|it| receives(it)) else {
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
