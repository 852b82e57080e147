//! Tasks and events. Commands that a task terminates are completed before the task is, since
//! drivers rely on that order.

use qpair_scsi_unit::virtio::{Effect, answer};
use qpair_virtio::scsi::{EVENT_QUEUE, Event, REQUEST_QUEUE, TASK_BYTES, Task, place_of, response};

use super::device::{Slot, SoftVirtioScsi};
use super::queue::Parked;

impl SoftVirtioScsi {
    /// Runs a task of the control queue, whose lock the caller holds. Returns the response; `None`
    /// if the task is not answered.
    pub(super) fn run_task(&self, bytes: &[u8; TASK_BYTES]) -> Option<u8> {
        if self.faults().ignores_tasks() {
            return None;
        }
        let Some(task) = Task::decode(bytes) else { return Some(response::FUNCTION_REJECTED) };
        let (target, unit, effect) = match Effect::of(&task, |target| self.disk(target)) {
            Ok(found) => found,
            Err(response) => return Some(response),
        };
        if let Some(code) = effect.resets {
            unit.reset(code);
        }
        let concerns = |it: &Parked| {
            place_of(it.command.address).is_some_and(|(its, _)| its == target)
                && effect.id.is_none_or(|id| it.command.id == id)
        };
        let has_found = match effect.ends {
            Some(response) => self.end_parked(concerns, response),
            None => self.has_parked(concerns),
        };
        Some(answer(effect.ends, has_found))
    }

    /// Ends parked commands of all request queues. Returns whether there were any.
    fn end_parked(&self, which: impl Fn(&Parked) -> bool, response: u8) -> bool {
        let mut has_found = false;
        for slot in self.request_slots() {
            let mut queue = slot.lock();
            while let Some(at) = queue.parked.iter().position(&which) {
                queue.end_parked(at, response);
                has_found = true;
            }
        }
        has_found
    }

    fn has_parked(&self, which: impl Fn(&Parked) -> bool) -> bool {
        self.request_slots().any(|slot| slot.lock().parked.iter().any(&which))
    }

    fn request_slots(&self) -> impl Iterator<Item = &Slot> {
        (REQUEST_QUEUE..self.queues()).filter_map(|queue| self.slot(queue))
    }

    /// Reports an event to the driver, in memory that the driver gave for events.
    pub(super) fn tell(&self, it: Event) {
        self.events().push(it);
        if let Some(slot) = self.slot(EVENT_QUEUE) {
            slot.call_attention();
        }
    }
}
