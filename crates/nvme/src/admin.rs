//! The admin queue. Callers get tickets for their commands, so that no thread has to wait with a
//! lock held.
//!
//! Invariants:
//! - A slot's number is its command's identifier. A slot is reused only after its command completed
//!   and the outcome was fetched, or after the rings were reset; then it gets another serial
//!   number.
//! - There are fewer slots than entries in the rings.

use std::time::{Duration, Instant};

use qpair_nvme_wire::{Command, Status};

use crate::rings::{Rings, Words};

pub(crate) const ENTRIES: u32 = 64;
const SLOTS: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    slot: u16,
    serial: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The command succeeded; the value is dword 0 of its completion.
    Done(u32),
    Failed(Status),
    /// The controller was reset meanwhile, or is gone.
    Lost,
}

#[derive(Clone, Copy, Debug)]
enum Slot {
    Free,
    /// A command in flight whose owner will fetch the outcome.
    Pending {
        deadline: Option<Instant>,
    },
    /// A command in flight without an owner: no caller will fetch its outcome.
    Unowned {
        deadline: Option<Instant>,
        purpose: Purpose,
    },
    Ended(Outcome),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Event,
    Abort,
    Other,
}

pub(crate) struct AdminQueue {
    rings: Rings,
    slots: [Slot; SLOTS],
    serials: [u32; SLOTS],
    /// Asynchronous events that arrived and have not been handled.
    events: Vec<u32>,
    /// The number of event requests that were completed and must be sent again.
    events_ended: u32,
}

impl AdminQueue {
    pub(crate) fn new(rings: Rings) -> Self {
        Self {
            rings,
            slots: [Slot::Free; SLOTS],
            serials: [0; SLOTS],
            events: Vec::new(),
            events_ended: 0,
        }
    }

    pub(crate) fn rings(&mut self) -> &mut Rings {
        &mut self.rings
    }

    pub(crate) fn submit(&mut self, command: Command, timeout: Duration) -> Option<Ticket> {
        let deadline = Instant::now().checked_add(timeout);
        let slot = self.send(command, Slot::Pending { deadline })?;
        Some(Ticket { slot, serial: self.serials[usize::from(slot)] })
    }

    /// Sends a command whose outcome no caller needs.
    pub(crate) fn submit_unowned(&mut self, command: Command, timeout: Duration) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        self.send(command, Slot::Unowned { deadline, purpose: Purpose::Other }).is_some()
    }

    /// Sends an abort. The command that it aborts receives the outcome.
    pub(crate) fn submit_abort(&mut self, command: Command, timeout: Duration) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        self.send(command, Slot::Unowned { deadline, purpose: Purpose::Abort }).is_some()
    }

    pub(crate) fn aborts(&self) -> u32 {
        let is_abort = |slot: &&Slot| matches!(slot, Slot::Unowned { purpose: Purpose::Abort, .. });
        self.slots.iter().filter(is_abort).count() as u32
    }

    pub(crate) fn submit_event_request(&mut self, command: Command) -> bool {
        self.send(command, Slot::Unowned { deadline: None, purpose: Purpose::Event }).is_some()
    }

    fn send(&mut self, mut command: Command, state: Slot) -> Option<u16> {
        let slot = self.slots.iter().position(|slot| matches!(slot, Slot::Free))?;
        self.slots[slot] = state;
        self.serials[slot] = self.serials[slot].wrapping_add(1);
        command.set_cid(slot as u16);
        self.rings.push(Words::of(&command));
        // If the controller does not respond, the time-out notices it.
        self.rings.kick();
        Some(slot as u16)
    }

    pub(crate) fn poll(&mut self) {
        while let Some(taken) = self.rings.take() {
            let Some(slot) = self.slots.get_mut(usize::from(taken.cid)) else { continue };
            let outcome = match taken.status.is_success() {
                true => Outcome::Done(taken.result),
                false => Outcome::Failed(taken.status),
            };
            match *slot {
                Slot::Pending { .. } => *slot = Slot::Ended(outcome),
                Slot::Unowned { purpose, .. } => {
                    *slot = Slot::Free;
                    if let (Purpose::Event, Outcome::Done(event)) = (purpose, outcome) {
                        self.events_ended += 1;
                        self.events.push(event);
                    }
                }
                // A command that was not in flight was completed: no caller is notified.
                Slot::Free | Slot::Ended(_) => {}
            }
        }
        self.rings.release();
    }

    /// Returns the outcome of a command, once; `None` while the command is in flight.
    pub(crate) fn fetch(&mut self, ticket: Ticket) -> Option<Outcome> {
        let slot = usize::from(ticket.slot);
        if self.serials[slot] != ticket.serial {
            return Some(Outcome::Lost);
        }
        match self.slots[slot] {
            Slot::Ended(outcome) => {
                self.slots[slot] = Slot::Free;
                Some(outcome)
            }
            Slot::Pending { .. } => None,
            Slot::Free | Slot::Unowned { .. } => Some(Outcome::Lost),
        }
    }

    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.slots.iter().any(|slot| match slot {
            Slot::Pending { deadline } | Slot::Unowned { deadline, .. } => {
                deadline.is_some_and(|deadline| deadline <= now)
            }
            Slot::Free | Slot::Ended(_) => false,
        })
    }

    pub(crate) fn next_event(&mut self) -> Option<u32> {
        self.events.pop()
    }

    /// Returns the number of event requests that must be sent again, and resets it.
    pub(crate) fn take_ended_event_requests(&mut self) -> u32 {
        std::mem::take(&mut self.events_ended)
    }

    /// Marks all commands as lost, because the controller no longer knows the rings.
    pub(crate) fn lose_all(&mut self) {
        // A caller that asks for a lost command finds its slot free, or taken by another command.
        self.slots.fill(Slot::Free);
        self.rings.reset();
    }
}
