//! Tasks and events, which belong to the device as a whole. One lock guards them.

use qpair_virtio::ring::{Broken, Descriptor, NEXT, WRITE};
use qpair_virtio::scsi::{EVENT_BYTES, Event, TASK_BYTES, Task};

use crate::virtqueue::Virtqueue;

/// The bytes for a task and its answer.
pub(crate) const TASK_STRIDE: usize = 64;
const ANSWER_AT: usize = 32;
/// An answer code that the device never gives.
const UNANSWERED: u8 = 0xFF;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Free,
    Sent,
    /// A task in flight that no caller waits for any more.
    Orphan,
    Answered(u8),
}

pub(crate) struct Core {
    control: Virtqueue,
    slots: Box<[Slot]>,
    events: Virtqueue,
    /// The number of events that there is memory for.
    events_max: u16,
}

impl Core {
    /// Makes a core with queues that are set up and empty.
    pub(crate) fn new(control: Virtqueue, tasks: u16, events: Virtqueue, events_max: u16) -> Self {
        Self { control, slots: vec![Slot::Free; tasks.into()].into(), events, events_max }
    }

    /// Gives the device memory for events, once the device is in use.
    pub(crate) fn expect_events(&mut self) {
        for number in 0..self.events_max {
            let at = self.events.slots_at() + usize::from(number) * EVENT_BYTES;
            let address = self.events.iova_of(at);
            let descriptor = Descriptor { address, len: EVENT_BYTES as u32, flags: WRITE, next: 0 };
            descriptor.store(self.events.areas().descriptors, number);
            self.events.offer(number);
        }
        self.events.publish();
    }

    pub(crate) fn begin(&mut self, task: &Task) -> Option<u16> {
        let number = self.slots.iter().position(|slot| *slot == Slot::Free)? as u16;
        let at = self.control.slots_at() + usize::from(number) * TASK_STRIDE;
        self.control.bytes().copy_from(at, &task.encode());
        self.control.bytes().store_u8(at + ANSWER_AT, UNANSWERED);
        let address = self.control.iova_of(at);
        let answer = address + ANSWER_AT as u64;
        let head = 2 * number;
        let descriptors = self.control.areas().descriptors;
        let len = TASK_BYTES as u32;
        Descriptor { address, len, flags: NEXT, next: head + 1 }.store(descriptors, head);
        Descriptor { address: answer, len: 1, flags: WRITE, next: 0 }.store(descriptors, head + 1);
        self.slots[usize::from(number)] = Slot::Sent;
        self.control.offer(head);
        self.control.publish();
        Some(number)
    }

    pub(crate) fn answer(&mut self, number: u16) -> Option<u8> {
        let slot = self.slots.get_mut(usize::from(number))?;
        let Slot::Answered(answer) = *slot else { return None };
        *slot = Slot::Free;
        Some(answer)
    }

    pub(crate) fn abandon(&mut self, number: u16) {
        if let Some(slot) = self.slots.get_mut(usize::from(number)) {
            *slot = if *slot == Slot::Sent { Slot::Orphan } else { Slot::Free };
        }
    }

    /// Takes the device's answers and events; calls `happened` for each event.
    pub(crate) fn look(&mut self, mut happened: impl FnMut(Event)) -> Result<(), Broken> {
        while let Some(used) = self.control.take()? {
            let number = (used.id / 2) as usize;
            let slot = self.slots.get_mut(number).filter(|_| used.id % 2 == 0).ok_or(Broken)?;
            let at = self.control.slots_at() + number * TASK_STRIDE + ANSWER_AT;
            *slot = match *slot {
                Slot::Sent => Slot::Answered(self.control.bytes().load_u8(at)),
                Slot::Orphan => Slot::Free,
                Slot::Free | Slot::Answered(_) => return Err(Broken),
            };
        }
        let mut has_new = false;
        while let Some(used) = self.events.take()? {
            let number = u16::try_from(used.id).map_err(|_| Broken)?;
            if number >= self.events_max {
                return Err(Broken);
            }
            let slots_at = self.events.slots_at();
            let at = slots_at + usize::from(number) * EVENT_BYTES;
            let mut bytes = [0; EVENT_BYTES];
            self.events.bytes().copy_to(at, &mut bytes);
            self.events.bytes().zero(at, EVENT_BYTES);
            happened(Event::decode(&bytes));
            self.events.offer(number);
            has_new = true;
        }
        if has_new {
            self.events.publish();
        }
        Ok(())
    }
}
