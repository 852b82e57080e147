//! The commands of a channel: what each one is for.
//!
//! Invariants:
//! - a slot's number is its command's identifier; a slot has at most one command under way, and is `Active` from when it was pushed
//!   until it completed or the controller can no longer touch memory;
//! - a request lies in its lead slot from `submit` until its completion is made, and is taken out once ([`Slots::end`]);
//! - slots below `depth` lead; those above are spare ones, for further commands of requests that are more than one.

use qpair_block::{IoError, Request};

/// No bounce buffer.
pub(crate) const NO_BOUNCE: u16 = u16::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing is in it.
    Free,
    /// A lead that has no command under way itself.
    Idle,
    /// Its command is under way.
    Active,
    /// The same, and the controller was asked to abort it.
    Aborting,
}

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) request: Option<Request>,
    /// When its command was pushed, in the channel's own time.
    pub(crate) epoch: u32,
    pub(crate) stage: Stage,
    /// The request is this one command, and needs no copy.
    pub(crate) is_whole: bool,
    /// Data of the request were copied through a bounce buffer.
    pub(crate) is_copied: bool,
    /// Has nothing under way, and waits for a bounce buffer.
    pub(crate) is_waiting: bool,
    /// Where its request is.
    pub(crate) lead: u16,
    /// The bounce buffer of its command.
    pub(crate) bounce: u16,
    /// Commands of this request under way.
    pub(crate) commands: u16,
    /// What of the request its command moves, bytes.
    pub(crate) at_bytes: u32,
    pub(crate) len_bytes: u32,
    /// What of the request is in commands already, bytes.
    pub(crate) sent_bytes: u32,
    /// The first error of its commands.
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

    /// Puts a request into a slot of its own.
    #[inline]
    pub(crate) fn begin(&mut self, request: Request) -> Result<u16, Request> {
        let Some(number) = self.free_leads.pop() else { return Err(request) };
        let slot = &mut self.slots[usize::from(number)];
        slot.request = Some(request);
        slot.stage = Stage::Idle;
        Ok(number)
    }

    /// A free lead, for [`Slots::begin_whole`].
    #[inline(always)]
    pub(crate) fn next_lead(&mut self) -> Option<u16> {
        self.free_leads.pop()
    }

    /// Puts a request into a lead that was taken for it, its only command having been pushed.
    #[inline(always)]
    pub(crate) fn begin_whole(&mut self, lead: u16, request: Request, epoch: u32) {
        let slot = &mut self.slots[usize::from(lead)];
        slot.request = Some(request);
        slot.stage = Stage::Active;
        slot.is_whole = true;
        slot.epoch = epoch;
    }

    /// Takes the request out of its slot.
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

    /// The slot of a command that completed; `None` if that command is not under way.
    #[inline]
    pub(crate) fn active(&mut self, cid: u16) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(usize::from(cid))?;
        matches!(slot.stage, Stage::Active | Stage::Aborting).then_some(slot)
    }

    /// A slot for one more command of the request in `lead`: its own if that has none.
    pub(crate) fn one_more(&mut self, lead: u16) -> Option<u16> {
        match self.get(lead).stage {
            Stage::Idle => Some(lead),
            _ => self.free_spares.pop(),
        }
    }

    /// The command in a slot is over.
    pub(crate) fn rest(&mut self, number: u16) {
        let is_lead = number < self.leads;
        self.get_mut(number).stage = if is_lead { Stage::Idle } else { Stage::Free };
        if !is_lead {
            self.free_spares.push(number);
        }
    }
}
