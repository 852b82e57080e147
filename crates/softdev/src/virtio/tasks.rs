//! Tasks and events. What a task ends is given back before the task is: drivers judge by that.

use qpair_scsi_wire::sense::Code;
use qpair_virtio::scsi::{
    EVENT_QUEUE, Event, REQUEST_QUEUE, TASK_BYTES, Task, event, place_of, response, task,
};

use super::device::SoftVirtioScsi;
use super::queue::Parked;

/// Events that the driver has no memory for, at most.
const EVENTS_MAX: usize = 16;

impl SoftVirtioScsi {
    /// Runs what came by the control queue, whose lock is held: its answer. `None`: it is not
    /// answered.
    pub(super) fn run_task(&self, bytes: &[u8; TASK_BYTES]) -> Option<u8> {
        if self.faults().ignores_tasks() {
            return None;
        }
        let Some(found) = Task::decode(bytes) else { return Some(response::FUNCTION_REJECTED) };
        let Some((target, _)) = place_of(found.address) else {
            return Some(response::INCORRECT_LUN);
        };
        let Some(unit) = self.disk(target) else { return Some(response::BAD_TARGET) };
        match found.what {
            task::ABORT_TASK => self.end_parked(
                |it| it.command.id == found.id && it.command.address == found.address,
                response::ABORTED,
            ),
            task::LUN_RESET | task::NEXUS_RESET => {
                unit.reset(Code::DEVICE_RESET);
                self.end_parked(|it| it.command.address == found.address, response::RESET);
            }
            _ => return Some(response::FUNCTION_REJECTED),
        }
        Some(response::OK)
    }

    /// Ends parked commands of all request queues.
    pub(super) fn end_parked(&self, which: impl Fn(&Parked) -> bool, response: u8) {
        for queue in REQUEST_QUEUE..self.queues() {
            let Some(slot) = self.slot(queue) else { continue };
            let mut queue = slot.lock();
            while let Some(at) = queue.parked.iter().position(&which) {
                queue.end_parked(at, response);
            }
        }
    }

    /// Tells the driver of an event, with memory that it gave for one.
    pub(super) fn tell(&self, it: Event) {
        let mut events = self.events();
        if events.len() < EVENTS_MAX {
            events.push_back(it);
        } else if let Some(last) = events.back_mut() {
            last.kind |= event::MISSED;
        }
        drop(events);
        if let Some(slot) = self.slot(EVENT_QUEUE) {
            slot.call_attention();
        }
    }
}
