//! The device's side of a ring in a guest's memory.
//!
//! Invariant: a head is busy from the moment it is taken from the ring until it is given back.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use qpair_block::{Error, ErrorKind, Result};
use qpair_pci::IrqEvent;
use qpair_virtio::ring::{Area, Areas, Broken, DeviceRing, Layout, Segment as Named, walk};

use tracing::warn;

use super::inflight::Inflight;
use crate::memory::{GuestMemory, Place};
use crate::session::Call;
use crate::unit::Stopped;

/// The options of a ring.
#[derive(Debug)]
pub(crate) struct RingOptions {
    /// The name of the disk, for log events.
    pub(crate) disk: Arc<str>,
    pub(crate) number: u16,
    pub(crate) size: u16,
    /// The front end's addresses of the descriptors, the available ring and the used ring.
    pub(crate) addresses: [u64; 3],
    /// Heads taken so far, modulo 2^16.
    pub(crate) taken: u16,
    pub(crate) event_index: bool,
    pub(crate) indirect: bool,
    pub(crate) memory: Arc<GuestMemory>,
    pub(crate) kick: Option<OwnedFd>,
    pub(crate) call: Call,
    /// Signalled when the ring is malformed.
    pub(crate) error: Option<Arc<IrqEvent>>,
    pub(crate) inflight: Option<Inflight>,
}

/// A guest's memory, and the areas of a ring in it.
#[derive(Clone, Copy)]
pub(crate) struct Guest<'m> {
    pub(crate) memory: &'m GuestMemory,
    areas: Areas<'m>,
}

pub(crate) struct GuestRing {
    options: RingOptions,
    layout: Layout,
    places: [Place; 3],
    ring: DeviceRing,
    is_busy: Box<[bool]>,
    busy: u32,
    is_broken: bool,
    has_given: bool,
}

impl GuestRing {
    /// Finds the ring in the guest's memory.
    ///
    /// # Errors
    /// `Invalid` for a ring that is not in the guest's memory, or whose size is not valid.
    pub(crate) fn open(options: RingOptions) -> Result<Self> {
        let RingOptions { size, addresses, ref memory, .. } = options;
        let wrong = |what: &str| Error::new(ErrorKind::Invalid, what.to_owned());
        let layout = Layout::new(size).ok_or_else(|| wrong("the ring's size is not valid"))?;
        let lens = [layout.descriptors_bytes(), layout.available_bytes(), layout.used_bytes()];
        let mut places = [None; 3];
        for (number, place) in places.iter_mut().enumerate() {
            let (address, unit) = (addresses[number], [16, 2, 4][number]);
            // Without the event index, the words for it may lie outside the guest's memory.
            let event_bytes = if number == 0 || options.event_index { 0 } else { 2 };
            let len_bytes = (lens[number] - event_bytes) as u64;
            *place = memory.find_user(address, len_bytes).filter(|_| address.is_multiple_of(unit));
        }
        let [Some(descriptors), Some(available), Some(used)] = places else {
            return Err(wrong("the ring is not in the guest's memory"));
        };
        let places = [descriptors, available, used];
        let areas = areas_of(memory, places);
        Ok(Self {
            ring: DeviceRing::resume(layout, areas, options.taken, options.event_index),
            layout,
            places,
            is_busy: vec![false; size.into()].into(),
            busy: 0,
            is_broken: false,
            has_given: false,
            options,
        })
    }

    pub(crate) fn size(&self) -> u16 {
        self.layout.size()
    }

    pub(crate) fn memory(&self) -> Arc<GuestMemory> {
        self.options.memory.clone()
    }

    /// Returns the ring in the guest's memory, which is `memory`.
    #[inline]
    pub(crate) fn guest<'m>(&self, memory: &'m GuestMemory) -> Guest<'m> {
        Guest { memory, areas: areas_of(memory, self.places) }
    }

    /// Returns the heads that an earlier target had taken and not given back, in the order in which
    /// it took them.
    pub(crate) fn recover(&mut self, guest: Guest<'_>) -> Vec<u16> {
        let Some(inflight) = &mut self.options.inflight else { return Vec::new() };
        let used = self.ring.used();
        let found = inflight.recover(used);
        let taken = used.wrapping_add(found.len() as u16);
        let event_index = self.options.event_index;
        self.ring = DeviceRing::resume(self.layout, guest.areas, taken, event_index);
        found
    }

    pub(crate) fn kick_fd(&self) -> Option<BorrowedFd<'_>> {
        self.options.kick.as_ref().map(AsFd::as_fd)
    }

    /// Returns the number of busy heads.
    pub(crate) fn busy(&self) -> u32 {
        self.busy
    }

    /// Takes the next available head.
    #[inline]
    pub(crate) fn take(&mut self, guest: Guest<'_>) -> Option<u16> {
        if self.is_broken {
            return None;
        }
        match self.ring.take(guest.areas) {
            Ok(head) => head,
            Err(Broken) => {
                self.give_up();
                None
            }
        }
    }

    /// Marks a head as busy. Returns false, and gives the ring up, if the head is busy already.
    #[inline]
    pub(crate) fn begin(&mut self, head: u16) -> bool {
        if std::mem::replace(&mut self.is_busy[usize::from(head)], true) {
            self.give_up();
            return false;
        }
        if let Some(inflight) = &mut self.options.inflight {
            inflight.take(head);
        }
        self.busy += 1;
        true
    }

    /// Marks a head as not busy without giving it back, since the place of its answer is not known.
    /// Gives the ring up.
    pub(crate) fn drop_head(&mut self, head: u16) {
        self.is_busy[usize::from(head)] = false;
        self.busy -= 1;
        self.give_up();
    }

    /// Marks the ring as malformed: nothing more is taken from it.
    #[cold]
    fn give_up(&mut self) {
        self.is_broken = true;
        let (disk, queue) = (&*self.options.disk, self.options.number);
        warn!(name: "broken", disk, queue, "the guest's ring makes no sense: it is stopped");
        if let Some(error) = &self.options.error {
            error.signal();
        }
    }

    /// Lists the parts of a head's chain: those that the device reads, then those that it writes.
    ///
    /// # Errors
    /// The chain is malformed.
    #[inline]
    pub(crate) fn walk(
        &self,
        head: u16,
        guest: Guest<'_>,
        named: &mut Vec<Named>,
    ) -> std::result::Result<(), Broken> {
        named.clear();
        let indirect = self.options.indirect;
        let read = |address, into: &mut [u8]| indirect && guest.memory.read(address, into);
        walk(self.layout, guest.areas.descriptors, head, read, named)
    }

    /// Gives a head back, with the number of bytes that were written for it.
    #[inline]
    pub(crate) fn give(&mut self, head: u16, written: u32, guest: Guest<'_>) {
        self.is_busy[usize::from(head)] = false;
        self.busy -= 1;
        if let Some(inflight) = &mut self.options.inflight {
            inflight.give(head);
        }
        self.ring.give(guest.areas, head, written);
        self.has_given = true;
    }

    /// Lets the guest see the heads that were given back. Returns whether the guest was signalled;
    /// `None` if no heads were given back.
    #[inline]
    pub(crate) fn publish(&mut self, guest: Guest<'_>) -> Option<bool> {
        if !std::mem::take(&mut self.has_given) {
            return None;
        }
        let wants_call = self.ring.publish(guest.areas);
        if let Some(inflight) = &mut self.options.inflight {
            inflight.published(self.ring.used());
        }
        Some(wants_call && self.call())
    }

    /// Whether [`GuestRing::ask`] must be called.
    #[inline]
    pub(crate) fn is_owing(&self) -> bool {
        self.ring.is_owing()
    }

    /// Signals the guest if it has begun to wait for heads that were given back. Returns whether it
    /// was signalled.
    #[inline]
    pub(crate) fn ask(&mut self, guest: Guest<'_>) -> bool {
        self.ring.ask(guest.areas) && self.call()
    }

    fn call(&self) -> bool {
        let call = self.options.call.lock();
        if let Some(call) = &*call {
            call.signal();
        }
        call.is_some()
    }

    /// Whether more is available than was taken.
    pub(crate) fn has_more(&self, guest: Guest<'_>) -> bool {
        !self.is_broken && self.ring.has_more(guest.areas)
    }

    /// Asks the driver to kick. Returns false if something is available already.
    pub(crate) fn listen(&self, guest: Guest<'_>) -> bool {
        self.is_broken || !self.ring.listen(guest.areas)
    }

    /// Asks the driver not to kick any more.
    pub(crate) fn be_quiet(&self, guest: Guest<'_>) {
        self.ring.be_quiet(guest.areas);
    }

    /// Ends the ring. No head may be busy.
    pub(crate) fn stop(self) -> Stopped {
        let Self { ring, options, is_broken, .. } = self;
        Stopped { taken: ring.taken(), kick: options.kick, is_broken }
    }
}

fn areas_of(memory: &GuestMemory, places: [Place; 3]) -> Areas<'_> {
    let [descriptors, available, used] = places.map(|place| {
        let (bytes, at) = memory.bytes(place);
        Area::new(bytes, at)
    });
    Areas { descriptors, available, used }
}
