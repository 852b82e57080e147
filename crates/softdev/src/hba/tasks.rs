//! Task management. Commands that a task terminates are answered before the task is, since drivers
//! rely on that order.

use qpair_mpi_wire::descriptor::RequestDescriptor;
use qpair_mpi_wire::ioc_status;
use qpair_mpi_wire::message::{self, DEFAULT_REPLY_BYTES};
use qpair_mpi_wire::task::{Task, TaskReply, kind, response};
use qpair_scsi_wire::sense::Code;

use super::device::SoftHba;
use super::lane::{FAULT_QUEUE, Parked};

impl SoftHba {
    /// Runs a task that came by reply queue `queue`. The caller does not hold the lock of that
    /// queue.
    pub(crate) fn run_task(&self, queue: u8, request: RequestDescriptor) {
        let smid = request.smid;
        let Some(slot) = self.slot(queue.into()) else { return };
        let mut lane = slot.lock();
        let Some(frame) = lane.frame(smid) else {
            self.stop(FAULT_QUEUE);
            return;
        };
        self.note_frame(&lane, request, &frame);
        drop(lane);
        if self.faults.ignores_tasks() {
            return;
        }
        let reply = match message::function_of(&frame) {
            qpair_mpi_wire::function::SCSI_TASK_MGMT => {
                self.manage(&Task::decode(&frame)).encode(&frame)
            }
            _ => message::reply(&frame, DEFAULT_REPLY_BYTES, ioc_status::INVALID_FUNCTION),
        };
        let mut lane = slot.lock();
        lane.answer(smid, Some(reply));
        drop(lane);
        slot.call_attention();
        self.step_queue(queue.into());
    }

    fn manage(&self, task: &Task) -> TaskReply {
        let Some((_, phy)) = self.phy_of(task.handle) else {
            // The target may have been pulled; its parked commands end all the same.
            let terminated = match task.kind {
                kind::TARGET_RESET => {
                    self.end_parked(|it| it.handle == task.handle, ioc_status::SCSI_TASK_TERMINATED)
                }
                _ => 0,
            };
            let ioc_status = ioc_status::SCSI_INVALID_DEVHANDLE;
            return TaskReply { response: response::COMPLETE, ioc_status, terminated };
        };
        let of_unit = |it: &Parked| it.handle == task.handle && it.lun == task.lun;
        let ended = ioc_status::SCSI_TASK_TERMINATED;
        let (response, terminated) = match task.kind {
            kind::ABORT_TASK => (
                response::COMPLETE,
                self.end_parked(|it| of_unit(it) && it.smid == task.smid, ended),
            ),
            kind::ABORT_TASK_SET => (response::COMPLETE, self.end_parked(of_unit, ended)),
            kind::LUN_RESET => {
                phy.unit.reset(Code::DEVICE_RESET);
                (response::COMPLETE, self.end_parked(of_unit, ended))
            }
            kind::TARGET_RESET => {
                phy.unit.hard_reset(Code::DEVICE_RESET);
                (response::COMPLETE, self.end_parked(|it| it.handle == task.handle, ended))
            }
            kind::QUERY_TASK => {
                let is_there = self.has_parked(|it| of_unit(it) && it.smid == task.smid);
                (if is_there { response::SUCCEEDED } else { response::COMPLETE }, 0)
            }
            _ => (response::NOT_SUPPORTED, 0),
        };
        TaskReply { response, ioc_status: ioc_status::SUCCESS, terminated }
    }

    /// Ends the parked commands of all queues that `which` selects, and returns their number.
    pub(crate) fn end_parked(&self, which: impl Fn(&Parked) -> bool, status: u16) -> u32 {
        let mut count = 0;
        for queue in 0..self.queues() {
            let Some(slot) = self.slot(queue) else { continue };
            let mut lane = slot.lock();
            let parked = std::mem::take(&mut lane.parked);
            let (ended, kept): (Vec<_>, Vec<_>) = parked.into_iter().partition(|it| which(it));
            lane.parked = kept;
            for Parked { smid, handle, frame, .. } in ended {
                lane.answer(smid, Some(Self::terminated(&frame, handle, status)));
                count += 1;
            }
            drop(lane);
            slot.call_attention();
            self.step_queue(queue);
        }
        count
    }

    fn has_parked(&self, which: impl Fn(&Parked) -> bool) -> bool {
        (0..self.queues())
            .filter_map(|queue| self.slot(queue))
            .any(|slot| slot.lock().parked.iter().any(&which))
    }
}
