//! The slots of a channel. Each names the request to which its command belongs.
//!
//! Invariants:
//! - A slot's number is its command's identifier. A slot has at most one command in flight. It is
//!   `Active` from the push of that command until the command completed or the controller can no
//!   longer access memory.
//! - A request is in its lead slot from `submit` until its completion is made, and is taken out
//!   once ([`Slots::end`]).
//! - Slots below `depth` are leads. Slots above are spares, for further commands of requests that
//!   need more than one.

use qpair_block::{IoError, Request};

pub(crate) const NO_BOUNCE: u16 = u16::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Free,
    /// A lead without a command of its own in flight.
    Idle,
    Active,
    /// The slot's command is in flight, and the controller was asked to abort it.
    Aborting,
}

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) request: Option<Request>,
    /// The time at which the command was pushed, as the number of the channel's period.
    pub(crate) epoch: u32,
    pub(crate) stage: Stage,
    /// Whether the request is this one command, and its data is not copied.
    pub(crate) is_whole: bool,
    /// Whether data of the request was copied through a bounce buffer.
    pub(crate) is_copied: bool,
    /// Whether the request has no command in flight, and waits for a bounce buffer.
    pub(crate) is_waiting: bool,
    /// The lead slot with the request.
    pub(crate) lead: u16,
    pub(crate) bounce: u16,
    /// The number of commands of this request in flight.
    pub(crate) commands: u16,
    /// The offset in the request of the data that the command moves, in bytes.
    pub(crate) at_bytes: u32,
    pub(crate) len_bytes: u32,
    /// The bytes of the request that have been put into commands so far.
    pub(crate) sent_bytes: u32,
    /// The first error of the request's commands.
    pub(crate) error: Option<IoError>,
}

pub(crate) struct Slots {
    slots: Box<[Slot]>,
    free_leads: Vec<u16>,
    free_spares: Vec<u16>,
    leads: u16,
}

impl Slots {
    pub(crate) fn new(leads: u16, spares: u16) -> Self {
        let count = leads + spares;
        let slot = |number| Slot {
            request: None,
            epoch: 0,
            stage: Stage::Free,
            is_whole: false,
            is_copied: false,
            is_waiting: false,
            lead: number,
            bounce: NO_BOUNCE,
            commands: 0,
            at_bytes: 0,
            len_bytes: 0,
            sent_bytes: 0,
            error: None,
        };
        Self {
            slots: (0..count).map(slot).collect(),
            free_leads: (0..leads).rev().collect(),
            free_spares: (leads..count).rev().collect(),
            leads,
        }
    }

    pub(crate) fn len(&self) -> u16 {
        self.slots.len() as u16
    }

    #[inline]
    pub(crate) fn begin(&mut self, request: Request) -> Result<u16, Request> {
        let Some(number) = self.free_leads.pop() else { return Err(request) };
        let slot = &mut self.slots[usize::from(number)];
        slot.request = Some(request);
        slot.stage = Stage::Idle;
        Ok(number)
    }

    /// Takes a free lead, for [`Slots::begin_whole`].
    #[inline(always)]
    pub(crate) fn next_lead(&mut self) -> Option<u16> {
        self.free_leads.pop()
    }

    /// Puts a request into a lead that was taken for it, after its only command was pushed.
    #[inline(always)]
    pub(crate) fn begin_whole(&mut self, lead: u16, request: Request, epoch: u32) {
        let slot = &mut self.slots[usize::from(lead)];
        slot.request = Some(request);
        slot.stage = Stage::Active;
        slot.is_whole = true;
        slot.epoch = epoch;
    }

    #[inline]
    pub(crate) fn end(&mut self, lead: u16) -> Option<Request> {
        let slot = &mut self.slots[usize::from(lead)];
        let request = slot.request.take()?;
        slot.stage = Stage::Free;
        self.free_leads.push(lead);
        Some(request)
    }

    #[inline]
    pub(crate) fn get(&self, number: u16) -> &Slot {
        &self.slots[usize::from(number)]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u16) -> &mut Slot {
        &mut self.slots[usize::from(number)]
    }

    /// Returns the slot of a command that completed; `None` if that command is not in flight.
    #[inline]
    pub(crate) fn active(&mut self, cid: u16) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(usize::from(cid))?;
        matches!(slot.stage, Stage::Active | Stage::Aborting).then_some(slot)
    }

    /// Takes a slot for one more command of the request in `lead`: the lead itself if it has no
    /// command.
    pub(crate) fn one_more(&mut self, lead: u16) -> Option<u16> {
        match self.get(lead).stage {
            Stage::Idle => Some(lead),
            _ => self.free_spares.pop(),
        }
    }

    pub(crate) fn rest(&mut self, number: u16) {
        let is_lead = number < self.leads;
        self.get_mut(number).stage = if is_lead { Stage::Idle } else { Stage::Free };
        if !is_lead {
            self.free_spares.push(number);
        }
    }
}
