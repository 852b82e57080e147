//! Events for the guest, and the queue that carries them.

use qpair_memory::locks::Mutex;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qpair_block::{Error, Result, WakeEvent};
use qpair_scsi_unit::virtio::EventList;
use qpair_virtio::ring::{Broken, Segment as Named};
use qpair_virtio::scsi::{EVENT_BYTES, Event};

use super::controller::Controller;
use crate::queue::{Guest, GuestRing, Head, Verbs};

#[derive(Debug)]
pub(super) struct Events {
    all: Mutex<EventList>,
    has_any: AtomicBool,
    wake: WakeEvent,
}

impl Events {
    pub(super) fn new() -> Result<Self> {
        let wake =
            WakeEvent::new().map_err(|cause| Error::os(cause, "creating an event for a queue"))?;
        Ok(Self { all: Mutex::default(), has_any: AtomicBool::new(false), wake })
    }

    pub(super) fn tell(&self, told: Event) {
        let mut all = self.all.lock();
        all.push(told);
        self.has_any.store(true, Ordering::Release);
        drop(all);
        self.wake.signal();
    }

    /// Forgets all events.
    pub(super) fn clear(&self) {
        self.all.lock().clear();
        self.has_any.store(false, Ordering::Relaxed);
    }

    fn take(&self) -> Option<Event> {
        let mut all = self.all.lock();
        let first = all.pop();
        self.has_any.store(!all.is_empty(), Ordering::Relaxed);
        first
    }
}

/// The event queue's operations. They take memory from the guest only when there is an event.
pub(super) struct EventVerbs {
    controller: Arc<Controller>,
    named: Vec<Named>,
}

impl EventVerbs {
    pub(super) fn new(controller: Arc<Controller>) -> Self {
        Self { controller, named: Vec::new() }
    }
}

impl Verbs for EventVerbs {
    fn begin(
        &mut self,
        head: u16,
        ring: &mut GuestRing,
        guest: Guest<'_>,
    ) -> std::result::Result<(), Broken> {
        ring.walk(head, guest, &mut self.named)?;
        let place = Head::take(guest.memory, &mut self.named, EVENT_BYTES as u32).ok_or(Broken)?;
        // A chain that an earlier target process took may come when no event is queued: complete it
        // with the empty event.
        let told = self.controller.events().take();
        let told = told.unwrap_or(Event { kind: 0, address: [0; 8], reason: 0 });
        place.store(guest.memory, &told.encode());
        ring.give(head, EVENT_BYTES as u32, guest);
        Ok(())
    }

    fn settle(&mut self, _ring: &mut GuestRing, _guest: Guest<'_>) {}

    fn wants(&self) -> bool {
        self.controller.events().has_any.load(Ordering::Acquire)
    }

    fn rest(&mut self) -> bool {
        self.controller.events().wake.clear();
        true
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        Ok(Some(self.controller.events().wake.as_fd()))
    }
}
