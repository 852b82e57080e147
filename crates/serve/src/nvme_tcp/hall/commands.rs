//! I/O commands: from the capsule to the device's answer.

use qpair_block::{Error, ErrorKind, IoError, Op};
use qpair_nvme_device::{Part, Planned, RANGES_BYTES_MAX, plan, status_of};
use qpair_nvme_tcp::wire::{Fault, R2t, fes, put};
use qpair_nvme_wire::ana::AnaState;
use qpair_nvme_wire::command::{FORCE_UNIT_ACCESS, io};
use qpair_nvme_wire::fabrics::{FABRICS, fctype, sgl};
use qpair_nvme_wire::{Command as Entry, Range, Status};

use super::Hall;
use super::connect::CAPSULE_BYTES;
use super::spaces::find;
use crate::nvme_tcp::connection::{Command, Sink, Stage};
use crate::queue::{End, Job};
use crate::stream::{LARGE_BYTES, Pool, SMALL_BYTES};

/// The most small blocks of a hall that wait for data that R2T has asked for. The others are for
/// capsules, whose data comes before it.
const SMALL_GRANTS_MAX: u32 = 128;
/// The largest part of a request without data: a multiple of every logical block size.
const RANGE_BYTES_MAX: u64 = 1 << 31;

/// The parts of a command, and the bytes of its data.
struct Shape {
    part: Option<Part>,
    rest: Vec<Part>,
    len: u32,
    is_towards_host: bool,
}

impl Hall {
    /// Begins a command of an I/O queue, with `data` bytes in its capsule.
    pub(super) fn begin(&mut self, slot: usize, entry: Entry, data: u32) -> Result<(), Fault> {
        let Some(it) = self.connections.all.get_mut(slot) else { return Ok(()) };
        if it.is_full() {
            return Err(Fault::new(fes::LIMIT, 0, "a queue has more commands than entries"));
        }
        it.take_entry();
        let cid = entry.cid();
        if entry.opcode() == FABRICS {
            let is_end = entry.fctype() == fctype::DISCONNECT;
            let status = if is_end { Status::SUCCESS } else { Status::COMMAND_SEQUENCE_ERROR };
            it.peer.is_leaving = is_end;
            it.respond(cid, status, 0);
            self.connections.soil(slot);
            return Ok(());
        }
        let shape = self.shape(slot, &entry, data);
        let Some(it) = self.connections.all.get_mut(slot) else { return Ok(()) };
        let shape = match shape {
            Err(status) => {
                it.respond(cid, status, 0);
                self.connections.soil(slot);
                return Ok(());
            }
            Ok(None) => {
                it.respond(cid, Status::SUCCESS, 0);
                self.connections.soil(slot);
                return Ok(());
            }
            Ok(Some(shape)) => shape,
        };
        let receives = shape.len > 0 && !shape.is_towards_host;
        let number = it.commands.add(Command {
            entry,
            stage: if receives { Stage::Data } else { Stage::Part },
            part: shape.part,
            rest: shape.rest,
            durable: entry.cdw(12) & FORCE_UNIT_ACCESS != 0,
            block: None,
            len: shape.len,
            filled: 0,
            has_small_grant: false,
            failed: None,
        });
        if data > 0 {
            it.stalled = Some(number);
            self.unstall(slot);
        } else {
            it.pending.push_back(number);
            self.advance(slot);
        }
        Ok(())
    }

    /// Checks a command, and finds its parts; `None` if it needs no work.
    fn shape(&mut self, slot: usize, entry: &Entry, data: u32) -> Result<Option<Shape>, Status> {
        if !entry.is_single_with_sgl() {
            return Err(Status::INVALID_FIELD);
        }
        let seat = self.connections.all.get(slot).and_then(|it| it.seat.as_ref());
        let subsystem = seat.and_then(|seat| seat.controller.subsystem.as_ref());
        let space = find(&mut self.spaces, subsystem).ok_or(Status::INVALID_NAMESPACE)?;
        match space.ana.0 {
            AnaState::Optimized | AnaState::NonOptimized => {}
            AnaState::Inaccessible => return Err(Status::ANA_INACCESSIBLE),
            AnaState::PersistentLoss => return Err(Status::ANA_PERSISTENT_LOSS),
            AnaState::Change => return Err(Status::ANA_TRANSITION),
        }
        let is_ranges = entry.opcode() == io::DATASET_MANAGEMENT;
        let durable = entry.cdw(12) & FORCE_UNIT_ACCESS != 0;
        let shape = if is_ranges {
            let nsid = entry.nsid();
            if !space.infos.iter().any(|info| info.nsid == nsid) {
                return Err(Status::INVALID_NAMESPACE);
            }
            // Linux sends its whole buffer, of which the command may use a part.
            let len = entry.sgl().len_bytes;
            if !(ranges_of(entry) * Range::BYTES..=RANGES_BYTES_MAX).contains(&(len as usize)) {
                return Err(Status::INVALID_SGL_LENGTH);
            }
            Shape { part: None, rest: Vec::new(), len, is_towards_host: false }
        } else {
            let planned = plan(entry, &space.infos, durable, || Ok(Vec::new()))?;
            let Some(Planned { first, mut then }) = planned else { return Ok(None) };
            then.reverse();
            let len = match first.op {
                Op::Read | Op::Write => first.len_bytes,
                _ => 0,
            };
            if len > LARGE_BYTES.into() {
                return Err(Status::INVALID_FIELD);
            }
            let is_towards_host = first.op == Op::Read;
            Shape { part: Some(first), rest: then, len: len as u32, is_towards_host }
        };
        let sgl = entry.sgl();
        match sgl.kind {
            _ if shape.len == 0 && data == 0 => Ok(Some(shape)),
            _ if sgl.len_bytes != shape.len => Err(Status::INVALID_SGL_LENGTH),
            sgl::TRANSPORT if data == 0 => Ok(Some(shape)),
            sgl::IN_CAPSULE if shape.is_towards_host || sgl.address != 0 => {
                Err(Status::INVALID_SGL_TYPE)
            }
            sgl::IN_CAPSULE if data == shape.len && data <= CAPSULE_BYTES => Ok(Some(shape)),
            sgl::IN_CAPSULE => Err(Status::INVALID_SGL_LENGTH),
            _ => Err(Status::INVALID_SGL_TYPE),
        }
    }

    /// Finds a block for the data of a capsule.
    pub(super) fn unstall(&mut self, slot: usize) {
        let Some(it) = self.connections.all.get_mut(slot) else { return };
        let Some(number) = it.stalled else { return };
        let Some(command) = it.commands.get_mut(number) else { return };
        let block = pool(&mut self.pool).ok().and_then(|pool| pool.lease(command.len));
        if block.is_some() {
            command.block = block;
            command.stage = Stage::Away;
            it.stalled = None;
            it.sink = Sink::Command(number);
        } else {
            self.connections.wait(slot);
        }
    }

    /// Takes the end of a PDU's data for a command.
    pub(super) fn end_command_data(&mut self, slot: usize, number: usize) {
        let Some(it) = self.connections.all.get_mut(slot) else { return };
        let Some(command) = it.commands.get_mut(number) else { return };
        if command.filled < command.len {
            return;
        }
        if std::mem::take(&mut command.has_small_grant) {
            self.small_grants -= 1;
        }
        if let Some(status) = command.failed {
            it.finish(number, status);
            return self.connections.soil(slot);
        }
        if command.part.is_none() {
            let mut bytes = vec![0; command.len as usize];
            if let Some(block) = command.block.take() {
                block.copy_to(0, &mut bytes);
            }
            let (entry, durable) = (command.entry, command.durable);
            let (chunks, _) = bytes.as_chunks::<{ Range::BYTES }>();
            let ranges = chunks.iter().take(ranges_of(&entry)).map(Range::decode);
            let ranges = ranges.filter(|range| range.blocks > 0);
            let subsystem = it.seat.as_ref().and_then(|seat| seat.controller.subsystem.as_ref());
            let planned = match find(&mut self.spaces, subsystem) {
                Some(space) => plan(&entry, &space.infos, durable, || Ok(ranges.collect())),
                None => Err(Status::INVALID_NAMESPACE),
            };
            match planned {
                Ok(Some(Planned { first, mut then })) => {
                    then.reverse();
                    let Some(command) = it.commands.get_mut(number) else { return };
                    (command.part, command.rest) = (Some(first), then);
                    // No more data moves.
                    (command.len, command.filled) = (0, 0);
                }
                other => {
                    it.finish(number, other.err().unwrap_or(Status::SUCCESS));
                    return self.connections.soil(slot);
                }
            }
        }
        if let Some(command) = it.commands.get_mut(number) {
            command.stage = Stage::Part;
        }
        it.pending.push_back(number);
        self.advance(slot);
    }

    /// Moves pending commands on, as many as can be.
    pub(super) fn advance(&mut self, slot: usize) {
        loop {
            let Some(it) = self.connections.all.get_mut(slot) else { return };
            if it.peer.is_dead {
                return;
            }
            let Some(&number) = it.pending.front() else { return };
            let Some(command) = it.commands.get_mut(number) else {
                it.pending.pop_front();
                continue;
            };
            let has_moved = match command.stage {
                Stage::Data => self.grant(slot, number),
                Stage::Part => self.carry_out(slot, number),
                Stage::Away => true,
            };
            if !has_moved {
                return self.connections.wait(slot);
            }
            if let Some(it) = self.connections.all.get_mut(slot) {
                it.pending.pop_front();
            }
        }
    }

    /// Asks for the data of a command. Returns false if there is no block for it.
    fn grant(&mut self, slot: usize, number: usize) -> bool {
        let Some(it) = self.connections.all.get_mut(slot) else { return true };
        let Some(command) = it.commands.get_mut(number) else { return true };
        let is_small = command.len <= SMALL_BYTES;
        if is_small && self.small_grants >= SMALL_GRANTS_MAX {
            return false;
        }
        let block = pool(&mut self.pool).ok().and_then(|pool| pool.lease(command.len));
        let Some(block) = block else { return false };
        command.block = Some(block);
        command.stage = Stage::Away;
        if is_small {
            command.has_small_grant = true;
            self.small_grants += 1;
        }
        let (cid, len) = (command.entry.cid(), command.len);
        let r2t = R2t { cid, tag: number as u16, offset: 0, len };
        it.push(|head, digests| put::r2t(head, digests, &r2t));
        self.connections.soil(slot);
        true
    }

    /// Gives a command's part to its device. Returns false if there is no head or no block.
    fn carry_out(&mut self, slot: usize, number: usize) -> bool {
        let Some(it) = self.connections.all.get_mut(slot) else { return true };
        let subsystem = it.seat.as_ref().and_then(|seat| seat.controller.subsystem.clone());
        let Some(command) = it.commands.get_mut(number) else { return true };
        let Some(part) = command.part else { return true };
        let lane = match (find(&mut self.spaces, subsystem.as_ref()), pool(&mut self.pool)) {
            (Some(space), Ok(pool)) => match space.lane(part.nsid, pool, &self.connections.sockets)
            {
                Some(Ok(lane)) => Ok((lane, pool)),
                // The host may retry: resources that are short now may be available later.
                Some(Err(error)) => {
                    let kind = error.kind();
                    let is_short = matches!(kind, ErrorKind::Limit | ErrorKind::Busy);
                    Err(status_of(
                        part.op,
                        Err(if is_short { IoError::NO_THREAD } else { IoError::IO }),
                    ))
                }
                None => Err(Status::INVALID_NAMESPACE),
            },
            (_, Err(_)) => Err(status_of(part.op, Err(IoError::NO_THREAD))),
            (None, _) => Err(Status::INVALID_NAMESPACE),
        };
        let (lane, pool) = match lane {
            Ok(found) => found,
            Err(status) => {
                it.finish(number, status);
                self.connections.soil(slot);
                return true;
            }
        };
        if lane.free.is_empty() {
            return false;
        }
        if part.op == Op::Read {
            match pool.lease(command.len) {
                Some(block) => command.block = Some(block),
                None => return false,
            }
        }
        let Some(head) = lane.free.pop() else { return false };
        let list = command.block.take();
        // A longer range is carried out in pieces.
        let len_bytes = part.len_bytes.min(RANGE_BYTES_MAX);
        if len_bytes < part.len_bytes {
            let (offset_bytes, left) = (part.offset_bytes + len_bytes, part.len_bytes - len_bytes);
            command.rest.push(Part { offset_bytes, len_bytes: left, ..part });
        }
        command.stage = Stage::Away;
        let job = Job {
            op: part.op,
            durable: command.durable,
            offset_bytes: part.offset_bytes,
            len_bytes: len_bytes as u32,
        };
        it.parts += 1;
        lane.lane.count_taken();
        lane.parts[usize::from(head)] = Some((slot, number));
        lane.lane.begin(head, job, list);
        true
    }

    /// Takes the ends of parts from the lanes. Returns whether there was one.
    pub(super) fn settle(&mut self) -> bool {
        let (mut progress, mut ended) = (false, std::mem::take(&mut self.ended));
        let mut finished = Vec::new();
        for space in &mut self.spaces {
            for it in space.lanes.values_mut() {
                it.lane.settle(|end| ended.push(end));
                for end in ended.drain(..) {
                    it.free.push(end.head);
                    if let Some(place) = it.parts[usize::from(end.head)].take() {
                        finished.push((place, end));
                    }
                }
            }
        }
        progress |= !finished.is_empty();
        for ((slot, number), end) in finished {
            self.end_part(slot, number, end);
        }
        self.ended = ended;
        progress
    }

    fn end_part(&mut self, slot: usize, number: usize, end: End) {
        let End { job, list, result, .. } = end;
        let Some(it) = self.connections.all.get_mut(slot) else { return };
        it.parts -= 1;
        if let Some(command) = it.commands.get_mut(number) {
            match result {
                Err(_) => it.finish(number, status_of(job.op, result)),
                Ok(()) => match (command.rest.pop(), list) {
                    (Some(next), _) => {
                        (command.part, command.stage) = (Some(next), Stage::Part);
                        it.pending.push_back(number);
                        self.advance(slot);
                    }
                    (None, Some(block)) if job.op == Op::Read => {
                        if let Some(cid) = it.close(number) {
                            it.send_data(cid, Ok((block, job.len_bytes)));
                        }
                    }
                    (None, _) => it.finish(number, Status::SUCCESS),
                },
            }
        }
        self.connections.soil(slot);
    }
}

/// Returns the number of ranges of a Dataset Management command.
fn ranges_of(entry: &Entry) -> usize {
    (entry.cdw(10) & 0xFF) as usize + 1
}

/// Returns the memory of the hall, which is allocated for its first command.
pub(super) fn pool(pool: &mut Option<Pool>) -> Result<&Pool, Error> {
    if pool.is_none() {
        *pool = Some(Pool::new(false)?);
    }
    match pool {
        Some(pool) => Ok(pool),
        None => Err(Error::new(ErrorKind::Limit, "there is no memory for clients")),
    }
}
