//! The control queue: task management. A task is answered when all commands that it ends have
//! ended.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use qpair_block::Result;
use qpair_scsi_unit::virtio::{Effect, answer};
use qpair_scsi_wire::sense::Code;
use qpair_virtio::ring::{Broken, Segment as Named};
use qpair_virtio::scsi::{
    EVENTS_ANSWER_BYTES, KIND_QUERY_EVENTS, KIND_SUBSCRIBE_EVENTS, TASK_BYTES, Task, response,
};

use super::controller::Controller;
use super::unit::Unit;
use super::visit::Visit;
use crate::queue::{Guest, GuestRing, Head, Verbs, take};

/// A task that is under way.
struct Pending {
    head: u16,
    place: Head,
    visit: Arc<Visit>,
    /// The unit that the task resets, and the unit attention that its initiator receives.
    resets: Option<(Arc<Unit>, Code)>,
}

pub(super) struct ControlVerbs {
    controller: Arc<Controller>,
    pending: Vec<Pending>,
    named: Vec<Named>,
}

impl ControlVerbs {
    pub(super) fn new(controller: Arc<Controller>) -> Self {
        Self { controller, pending: Vec::new(), named: Vec::new() }
    }

    /// Returns the visit that a task sends to request queues, with the unit that it resets if any,
    /// or the response that answers the task at once.
    #[allow(clippy::type_complexity, reason = "two results of one look")]
    fn plan(&self, task: &Task) -> std::result::Result<(Visit, Option<(Arc<Unit>, Code)>), u8> {
        let units = self.controller.units_now();
        let find = |target| units.get(usize::from(target)).cloned().flatten();
        let (target, unit, effect) = Effect::of(task, find)?;
        let resets = effect.resets.map(|code| (unit, code));
        Ok((Visit::new(target, effect.id, effect.ends), resets))
    }
}

impl Verbs for ControlVerbs {
    fn begin(
        &mut self,
        head: u16,
        ring: &mut GuestRing,
        guest: Guest<'_>,
    ) -> std::result::Result<(), Broken> {
        let memory = guest.memory;
        ring.walk(head, guest, &mut self.named)?;
        let mut bytes = [0; TASK_BYTES];
        let (kind, rest) = bytes.split_at_mut(4);
        let is_whole = take(memory, &mut self.named, kind);
        let kind = u32::from_le_bytes([kind[0], kind[1], kind[2], kind[3]]);
        if is_whole && matches!(kind, KIND_QUERY_EVENTS | KIND_SUBSCRIBE_EVENTS) {
            // A disk has no asynchronous events.
            let len = EVENTS_ANSWER_BYTES as u32;
            let place = Head::take(memory, &mut self.named, len).ok_or(Broken)?;
            place.store(memory, &[0, 0, 0, 0, response::OK]);
            ring.give(head, len, guest);
            return Ok(());
        }
        let is_whole = is_whole && take(memory, &mut self.named, rest);
        let place = Head::take(memory, &mut self.named, 1).ok_or(Broken)?;
        let task = Task::decode(&bytes).filter(|_| is_whole);
        match task.ok_or(response::FUNCTION_REJECTED).and_then(|task| self.plan(&task)) {
            Ok((visit, resets)) => {
                let visit = Arc::new(visit);
                self.controller.send(&visit);
                self.pending.push(Pending { head, place, visit, resets });
            }
            Err(answer) => {
                place.store(memory, &[answer]);
                ring.give(head, 1, guest);
            }
        }
        Ok(())
    }

    fn settle(&mut self, ring: &mut GuestRing, guest: Guest<'_>) {
        self.pending.retain(|pending| {
            let is_over = pending.visit.is_over();
            if is_over {
                if let Some((unit, code)) = &pending.resets {
                    unit.logical.reset(*code);
                }
                let visit = &pending.visit;
                let answer = answer(visit.response, visit.has_found());
                pending.place.store(guest.memory, &[answer]);
                ring.give(pending.head, 1, guest);
            }
            !is_over
        });
    }

    fn stopping(&mut self, ring: &mut GuestRing, guest: Guest<'_>) {
        // The request queues that these tasks wait for may stop after this one.
        for pending in self.pending.drain(..) {
            pending.place.store(guest.memory, &[response::FAILURE]);
            ring.give(pending.head, 1, guest);
        }
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        Ok(None)
    }
}
