//! SCSI commands: passes a frame to a unit, and turns the outcome into a reply.

use qpair_block::time;
use qpair_mpi_wire::descriptor::RequestDescriptor;
use qpair_mpi_wire::ioc_status;
use qpair_mpi_wire::message;
use qpair_mpi_wire::scsi_io::{
    CONTROL_READ, CONTROL_WRITE, STATE_AUTOSENSE, STATE_NO_STATUS, STATE_TERMINATED, ScsiIo,
    ScsiIoReply,
};
use qpair_scsi_wire::luns::Lun;
use qpair_scsi_wire::{CHECK_CONDITION, GOOD};

use super::device::SoftHba;
use super::faults::Fault;
use super::lane::{FRAME_BYTES, Lane, Parked};
use super::sgl::Walk;
use crate::scsi::{Answer, Data};

/// The maximum data length of a command, in bytes.
const DATA_BYTES_MAX: u32 = 16 << 20;

impl SoftHba {
    /// Runs a command, and then answers or parks it.
    #[inline]
    pub(crate) fn run_scsi_io(&self, lane: &mut Lane, queue: u8, request: RequestDescriptor) {
        let Some(frame) = lane.frame(request.smid) else {
            self.stop(super::lane::FAULT_QUEUE);
            return;
        };
        self.note_frame(lane, request, &frame);
        if message::function_of(&frame) != qpair_mpi_wire::function::SCSI_IO {
            return self.run_frame(lane, queue, request.smid, &frame);
        }
        let io = ScsiIo::decode(&frame);
        let command = qpair_scsi_wire::Command::decode(&io.cdb).ok().filter(is_of_blocks);
        if command.is_some()
            && let Some(fault) = self.faults.next()
        {
            return self.run_faulty(lane, request.smid, &frame, &io, fault);
        }
        let reply = self.execute(lane, &frame, &io);
        // A failed command takes no time.
        if let (Some(command), None) = (command, &reply)
            && let Some((_, phy)) = self.phy_of(io.handle)
            && let Some(due) = phy.timing.due(&command)
        {
            let (smid, handle, lun) = (request.smid, io.handle, io.lun);
            let due = Some((due, reply));
            lane.parked.push(Parked { smid, handle, lun, frame: frame.to_vec(), due });
            return;
        }
        lane.answer(request.smid, reply);
    }

    /// Executes a command. Returns the reply frame, or `None` if the command succeeded without one.
    fn execute(&self, lane: &mut Lane, frame: &[u8; FRAME_BYTES], io: &ScsiIo) -> Option<Vec<u8>> {
        let fail = |status: u16| {
            let state = STATE_NO_STATUS;
            let reply =
                ScsiIoReply { handle: io.handle, ioc_status: status, state, ..Default::default() };
            Some(reply.encode(frame))
        };
        let Some((_, phy)) = self.phy_of(io.handle) else {
            return fail(match self.is_old_handle(io.handle) {
                true => ioc_status::SCSI_DEVICE_NOT_THERE,
                false => ioc_status::SCSI_INVALID_DEVHANDLE,
            });
        };
        let cdb_bytes = usize::from(io.io_flags & 0x1FF).min(io.cdb.len());
        let direction = io.control & (CONTROL_READ | CONTROL_WRITE);
        let data_bytes = if direction == 0 { 0 } else { io.data_bytes };
        let list_at = usize::from(io.sgl_offset) * 4;
        if data_bytes > DATA_BYTES_MAX || direction == CONTROL_READ | CONTROL_WRITE {
            return fail(ioc_status::INVALID_FIELD);
        }
        let is_out = direction == CONTROL_WRITE;
        let Lane { table, last, extents, scratch, .. } = lane;
        let mut walk = Walk { table, last, extents, is_written: !is_out };
        if walk.list(frame.get(list_at..).unwrap_or(&[]), data_bytes).is_err() {
            return fail(ioc_status::INVALID_SGL);
        }
        let data = Data { table, extents, is_out, scratch };
        let answer = phy.unit.execute(Lun(io.lun), &io.cdb[..cdb_bytes], data);
        self.reply_to(lane, frame, io, &answer, data_bytes)
    }

    /// Returns the reply frame for a command with this outcome, or `None` if the command succeeded
    /// in full. Writes sense data to the driver's sense buffer.
    fn reply_to(
        &self,
        lane: &mut Lane,
        frame: &[u8],
        io: &ScsiIo,
        answer: &Answer,
        data_bytes: u32,
    ) -> Option<Vec<u8>> {
        let moved = answer.moved as u32;
        if answer.status == GOOD && moved == data_bytes && !answer.is_overrun {
            return None;
        }
        let mut reply = ScsiIoReply {
            handle: io.handle,
            scsi_status: answer.status,
            transferred: moved,
            ioc_status: match answer.is_overrun {
                true => ioc_status::SCSI_DATA_OVERRUN,
                false if moved < data_bytes => ioc_status::SCSI_DATA_UNDERRUN,
                false => ioc_status::SUCCESS,
            },
            ..ScsiIoReply::default()
        };
        if let (CHECK_CONDITION, Some(sense), Some(setup)) =
            (answer.status, answer.sense, lane.setup)
        {
            let fixed = sense.encode_fixed();
            let (long, len) = sense.encode_descriptors();
            // A block number beyond 32 bits needs the longer form of sense data.
            let is_wide = sense.information.is_some_and(|it| it > u64::from(u32::MAX));
            let bytes = if is_wide { &long[..len] } else { &fixed[..] };
            let bytes = &bytes[..bytes.len().min(io.sense_bytes.into())];
            let at = u64::from(setup.sense_high) << 32 | u64::from(io.sense_low);
            if lane.copy_out(at, bytes) {
                reply.state |= STATE_AUTOSENSE;
                reply.sense_bytes = bytes.len() as u32;
            }
        }
        Some(reply.encode(frame))
    }

    #[cold]
    fn run_faulty(
        &self,
        lane: &mut Lane,
        smid: u16,
        frame: &[u8; FRAME_BYTES],
        io: &ScsiIo,
        fault: Fault,
    ) {
        let parked =
            |due| Parked { smid, handle: io.handle, lun: io.lun, frame: frame.to_vec(), due };
        let not_done = |lane: &mut Lane, answer: Answer| {
            let reply = self.reply_to(lane, frame, io, &answer, io.data_bytes);
            lane.answer(smid, reply);
        };
        match fault {
            Fault::LoseCommand => lane.parked.push(parked(None)),
            Fault::LoseReply => {
                let _ = self.execute(lane, frame, io);
                lane.parked.push(parked(None));
            }
            Fault::Late(delay) => {
                let reply = self.execute(lane, frame, io);
                let due = time::now().checked_add(delay);
                lane.parked.push(parked(due.map(|due| (due, reply))));
            }
            Fault::DoubleReply => {
                let reply = self.execute(lane, frame, io);
                lane.answer(smid, reply.clone());
                lane.answer(smid, reply);
            }
            Fault::WrongId => {
                let reply = self.execute(lane, frame, io);
                lane.answer(u16::MAX, None);
                lane.answer(smid, reply);
            }
            Fault::Status(status) => {
                not_done(lane, Answer { status, ..Answer::good(0) });
            }
            Fault::Check(sense) => not_done(lane, Answer::check(sense)),
            Fault::IocStatus(status) => {
                let reply = ScsiIoReply {
                    handle: io.handle,
                    ioc_status: status,
                    state: STATE_NO_STATUS,
                    ..ScsiIoReply::default()
                };
                lane.answer(smid, Some(reply.encode(frame)));
            }
            Fault::IocFault(code) => self.stop(code),
            Fault::Pull => {
                lane.parked.push(parked(None));
                if let Some((number, _)) = self.phy_of(io.handle) {
                    // The removal waits until the lock of this queue is free.
                    self.pull_later(number);
                }
            }
        }
    }

    /// Returns the reply to a command that the controller terminated.
    pub(crate) fn terminated(frame: &[u8], handle: u16, status: u16) -> Vec<u8> {
        ScsiIoReply {
            handle,
            ioc_status: status,
            state: STATE_TERMINATED | STATE_NO_STATUS,
            ..ScsiIoReply::default()
        }
        .encode(frame)
    }
}

/// Whether faults apply to a command: it reads or writes blocks.
pub(crate) fn is_of_blocks(command: &qpair_scsi_wire::Command) -> bool {
    use qpair_scsi_wire::Command as C;
    matches!(
        command,
        C::Read { .. }
            | C::Write { .. }
            | C::SynchronizeCache { .. }
            | C::Unmap { .. }
            | C::WriteSame { .. }
            | C::Verify { .. }
    )
}
